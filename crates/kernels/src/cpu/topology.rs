//! Which cores there are for this process, as far as the system tells.
//!
//! One thread computes on each physical core of the fast kind. Decode reads memory as fast as it can be read and
//! prefill keeps the multipliers busy, so a second thread on a core adds nothing but a longer barrier; llama.cpp
//! counts physical cores for the same reason. A slow core would do a smaller share of each step, but weights that
//! are cut into many jobs are shared out by speed only until the last job: its owner is waited for. Threads are not
//! bound to cores: schedulers put busy threads on fast cores, and a bound thread cannot give way to another
//! program's.
//!
//! Linux: the files of `/sys/devices/system/cpu` (kernel documentation, `admin-guide/cputopology.rst` and
//! `ABI/testing/sysfs-devices-system-cpu`), `/sys/devices/cpu_core` of hybrid Intel processors, `Cpus_allowed_list` of
//! `/proc/self/status`, and the processor time of control groups where those are mounted by custom. macOS: `sysctl`.
//! Windows: `GetLogicalProcessorInformationEx`. Elsewhere the standard library's count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

/// Cores are fast from this share of the fastest one's speed on: middle cores of three kinds are, cores made to save
/// energy are not.
const FAST: f64 = 0.6;

/// The cores that this process may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores {
    /// Logical processors.
    pub n_cpu: usize,
    /// Physical cores of these.
    pub n_core: usize,
    /// Cores of the fast kind of these: all of them where there is one kind.
    pub n_fast: usize,
    /// Processor seconds a second that the control group may use, if it is limited.
    pub quota: Option<f64>,
}

impl Cores {
    /// Of this machine, as it is now.
    pub fn read() -> Self {
        let n = std::thread::available_parallelism().map_or(1, usize::from);
        let found = if cfg!(target_os = "linux") { Self::of_linux(Path::new("/")) } else { system::cores(n) };
        found.unwrap_or(Self { n_cpu: n, n_core: n, n_fast: n, quota: None })
    }

    /// Threads to compute on: the fast cores, but no more than can run all the time.
    pub fn n_thread(&self) -> usize {
        let quota = self.quota.map_or(usize::MAX, |quota| quota as usize);
        self.n_fast.min(quota).max(1)
    }

    /// `root` is where `proc` and `sys` are.
    fn of_linux(root: &Path) -> Option<Self> {
        let cpu_dir = root.join("sys/devices/system/cpu");
        let online = read::<CpuList>(&cpu_dir.join("online"))?.0;
        let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let allowed = allowed.and_then(|list| list.parse::<CpuList>().ok());
        let usable: BTreeSet<usize> = match allowed {
            Some(allowed) => online.intersection(&allowed.0).copied().collect(),
            None => online,
        };
        // A core goes by its lowest usable processor.
        let mut cores: BTreeSet<usize> = BTreeSet::new();
        for &cpu in &usable {
            let topology = cpu_dir.join(format!("cpu{cpu}/topology"));
            let siblings = ["core_cpus_list", "thread_siblings_list"]
                .into_iter()
                .find_map(|name| read::<CpuList>(&topology.join(name)));
            let first = siblings.and_then(|siblings| siblings.0.intersection(&usable).next().copied());
            cores.insert(first.unwrap_or(cpu));
        }
        let n_fast = fast(root, &cpu_dir, &cores).len();
        let found = Self { n_cpu: usable.len(), n_core: cores.len(), n_fast, quota: quota(root) };
        (0 < n_fast).then_some(found)
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} core{}", self.n_core, if self.n_core == 1 { "" } else { "s" })?;
        if self.n_fast < self.n_core {
            write!(f, ", {} of them fast", self.n_fast)?;
        }
        if self.n_core < self.n_cpu {
            write!(f, ", {} logical", self.n_cpu)?;
        }
        self.quota.map_or(Ok(()), |quota| write!(f, ", this container may use {quota:.1}"))
    }
}

/// Those of `cores` that are of the fast kind.
fn fast(root: &Path, cpu_dir: &Path, cores: &BTreeSet<usize>) -> BTreeSet<usize> {
    if let Some(CpuList(performance)) = read(&root.join("sys/devices/cpu_core/cpus")) {
        let fast: BTreeSet<usize> = cores.intersection(&performance).copied().collect();
        return if fast.is_empty() { cores.clone() } else { fast };
    }
    for file in ["cpu_capacity", "cpufreq/cpuinfo_max_freq"] {
        let speed = |&cpu: &usize| Some((cpu, read::<f64>(&cpu_dir.join(format!("cpu{cpu}/{file}")))?));
        let speeds: Option<BTreeMap<usize, f64>> = cores.iter().map(speed).collect();
        if let Some(speeds) = speeds {
            let fastest = speeds.values().copied().fold(0.0, f64::max);
            return speeds
                .into_iter()
                .filter(|&(_, speed)| FAST * fastest <= speed)
                .map(|(cpu, _)| cpu)
                .collect();
        }
    }
    cores.clone()
}

/// The least processor time of the control groups that this process is in.
fn quota(root: &Path) -> Option<f64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mount = root.join("sys/fs/cgroup");
    let mut least: Option<f64> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let mounts = match controllers {
            "" => vec![mount.clone(), mount.join("unified")],
            _ if controllers.split(',').any(|name| name == "cpu") => {
                vec![mount.join("cpu"), mount.join(controllers)]
            }
            _ => continue,
        };
        // In a container the path may be the host's, and what is mounted the own group.
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let limits = mounts.iter().filter_map(|mount| group_quota(&mount.join(group)));
            least = limits.chain(least).min_by(f64::total_cmp);
        }
    }
    least
}

/// The processor time that one group may use.
fn group_quota(group: &Path) -> Option<f64> {
    let (quota, period): (f64, f64) = match fs::read_to_string(group.join("cpu.max")) {
        Ok(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.parse().ok()?, period.parse().ok()?)
        }
        Err(_) => (read::<f64>(&group.join("cpu.cfs_quota_us"))?, read(&group.join("cpu.cfs_period_us"))?),
    };
    // -1 is no limit.
    (0.0 < quota && 0.0 < period).then_some(quota / period)
}

/// A file that holds one value.
fn read<T: FromStr>(path: &Path) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Processors as the kernel lists them: `0-3,8,10-11`.
#[derive(Debug, PartialEq)]
struct CpuList(BTreeSet<usize>);

/// More than any kernel supports: a list is not a reason to take all memory.
const N_CPU_MAX: usize = 1 << 16;

impl FromStr for CpuList {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (first.parse().map_err(drop)?, last.parse().map_err(drop)?);
            if N_CPU_MAX <= last {
                return Err(());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

#[cfg(target_vendor = "apple")]
mod system {
    use std::ffi::{CStr, c_char, c_int, c_void};
    use std::ptr;

    use super::Cores;

    unsafe extern "C" {
        fn sysctlbyname(
            name: *const c_char,
            old: *mut c_void,
            old_len: *mut usize,
            new: *mut c_void,
            new_len: usize,
        ) -> c_int;
    }

    fn number(name: &CStr) -> Option<usize> {
        let (mut value, mut len) = (0i32, size_of::<i32>());
        // SAFETY: the name ends with a zero, `value` has room for `len` bytes, and nothing is set.
        let failed = unsafe {
            sysctlbyname(name.as_ptr(), ptr::from_mut(&mut value).cast(), &mut len, ptr::null_mut(), 0)
        };
        usize::try_from(value).ok().filter(|&n| failed == 0 && len == size_of::<i32>() && 0 < n)
    }

    /// `n_cpu` processors; level 0 are the performance cores.
    pub(super) fn cores(n_cpu: usize) -> Option<Cores> {
        let n_core = number(c"hw.physicalcpu")?;
        let n_fast = number(c"hw.perflevel0.physicalcpu").unwrap_or(n_core);
        Some(Cores { n_cpu, n_core, n_fast, quota: None })
    }
}

#[cfg(windows)]
mod system {
    use std::ffi::c_void;
    use std::ptr;

    use super::{Cores, count_windows};

    /// The relation that is asked for: which processors are one core.
    const PROCESSOR_CORE: i32 = 0;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetLogicalProcessorInformationEx(relation: i32, out: *mut c_void, out_bytes: *mut u32) -> i32;
    }

    /// `n_cpu` processors.
    pub(super) fn cores(n_cpu: usize) -> Option<Cores> {
        let mut bytes = 0;
        // SAFETY: no room is offered, so only the number of bytes is written.
        unsafe { GetLogicalProcessorInformationEx(PROCESSOR_CORE, ptr::null_mut(), &mut bytes) };
        let mut records = vec![0_u64; (bytes as usize).div_ceil(size_of::<u64>())];
        // SAFETY: there is aligned room for `bytes` bytes.
        let done = unsafe {
            GetLogicalProcessorInformationEx(PROCESSOR_CORE, records.as_mut_ptr().cast(), &mut bytes)
        };
        let records: Vec<u8> = records.into_iter().flat_map(u64::to_le_bytes).take(bytes as usize).collect();
        let (n_core, n_fast) = count_windows(&records).filter(|_| done != 0)?;
        // More than 64 processors are several groups, of which the threads of a process first get one.
        Some(Cores { n_cpu, n_core: n_core.min(n_cpu), n_fast: n_fast.min(n_cpu), quota: None })
    }
}

/// Cores, and those of the fastest kind, in records that each begin with `u32 kind | u32 bytes of the record | u8 flags
/// | u8 class`; faster cores have a higher class.
#[cfg(any(windows, test))]
fn count_windows(mut records: &[u8]) -> Option<(usize, usize)> {
    let mut classes = Vec::new();
    while let [_, _, _, _, a, b, c, d, _, class, ..] = *records {
        classes.push(class);
        let record_bytes = u32::from_le_bytes([a, b, c, d]) as usize;
        records = records.get(record_bytes.max(1)..)?;
    }
    let fastest = classes.iter().max()?;
    Some((classes.len(), classes.iter().filter(|class| *class == fastest).count()))
}

#[cfg(not(any(target_vendor = "apple", windows)))]
mod system {
    pub(super) fn cores(_n_cpu: usize) -> Option<super::Cores> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths and contents.
    type Files = Vec<(String, String)>;

    /// The cores of a made-up machine.
    fn machine(files: &[(String, String)]) -> Option<Cores> {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{content}\n")).unwrap();
        }
        Cores::of_linux(root.path())
    }

    fn file(path: &str, content: &str) -> (String, String) {
        (path.to_owned(), content.to_owned())
    }

    /// A file of each processor.
    fn each(n: usize, name: &str, content: impl Fn(usize) -> String) -> Files {
        (0..n).map(|cpu| (format!("sys/devices/system/cpu/cpu{cpu}/{name}"), content(cpu))).collect()
    }

    fn online(list: &str) -> (String, String) {
        file("sys/devices/system/cpu/online", list)
    }

    fn allowed(list: &str) -> (String, String) {
        file(
            "proc/self/status",
            &format!("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{list}\nMems_allowed:\t1"),
        )
    }

    /// Pairs of neighbours up to processor `n_pair * 2`, single cores behind them.
    fn siblings(n: usize, n_pair: usize) -> Files {
        each(n, "topology/core_cpus_list", |cpu| match cpu / 2 {
            pair if pair < n_pair => format!("{}-{}", 2 * pair, 2 * pair + 1),
            _ => cpu.to_string(),
        })
    }

    fn cores(n_cpu: usize, n_core: usize, n_fast: usize, quota: Option<f64>) -> Option<Cores> {
        Some(Cores { n_cpu, n_core, n_fast, quota })
    }

    /// Threads would run on slow cores, two on one core, or on cores that are not ours.
    #[test]
    fn cores_of_known_kinds_of_machines() {
        let i9 = [vec![online("0-31")], siblings(32, 8)].concat();
        let i9_kinds =
            [file("sys/devices/cpu_core/cpus", "0-15"), file("sys/devices/cpu_atom/cpus", "16-31")];
        let phone = each(8, "cpu_capacity", |cpu| ["250", "700", "1024"][cpu / 4 + cpu / 7].into());
        let frequencies =
            each(8, "cpufreq/cpuinfo_max_freq", |cpu| if cpu < 4 { "1800000" } else { "2400000" }.into());
        let old_board =
            each(6, "cpufreq/cpuinfo_max_freq", |cpu| if cpu < 4 { "1000000" } else { "1800000" }.into());
        let epyc = [
            vec![online("0-15")],
            each(16, "topology/thread_siblings_list", |cpu| format!("{},{}", cpu % 8, cpu % 8 + 8)),
        ]
        .concat();
        let cases: Vec<(&str, Files, Option<Cores>)> = vec![
            (
                "hybrid Intel, 8 fast cores with two threads and 16 slow ones",
                [&i9[..], &i9_kinds].concat(),
                cores(32, 24, 8, None),
            ),
            ("the same, kinds unknown", i9.clone(), cores(32, 24, 24, None)),
            (
                "the same, only slow cores are ours",
                [&i9[..], &i9_kinds, &[allowed("20-31")]].concat(),
                cores(12, 12, 12, None),
            ),
            (
                "the same, one thread of two fast cores is ours",
                [&i9[..], &i9_kinds, &[allowed("1,2,16")]].concat(),
                cores(3, 3, 2, None),
            ),
            ("three kinds of Arm cores", [vec![online("0-7")], phone].concat(), cores(8, 8, 4, None)),
            (
                "two frequencies of one kind",
                [vec![online("0-7")], frequencies].concat(),
                cores(8, 8, 8, None),
            ),
            ("an old Arm board", [vec![online("0-5")], old_board].concat(), cores(6, 6, 2, None)),
            ("two threads a core", epyc.clone(), cores(16, 8, 8, None)),
            (
                "the same, some are off",
                [vec![online("0-3,8-9")], epyc[1..].to_vec()].concat(),
                cores(6, 4, 4, None),
            ),
            ("no topology", vec![online("0-5"), allowed("0-63")], cores(6, 6, 6, None)),
            ("nothing", vec![], None),
            ("nonsense", vec![online("zero")], None),
            ("a huge list", vec![online("0-99999999999")], None),
            ("nothing is ours", vec![online("0-3"), allowed("8")], None),
        ];
        for (name, files, expected) in cases {
            assert_eq!(machine(&files), expected, "{name}");
        }
    }

    /// Threads would be stopped in the middle of a step because their container used up its time.
    #[test]
    fn containers_limit_the_threads() {
        let v1 = |quota: &str| {
            vec![
                file("proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a/b\n0::/"),
                file("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", quota),
                file("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000"),
            ]
        };
        let v2 = |path: &str, limits: &[(&str, &str)]| {
            let mut files = vec![file("proc/self/cgroup", &format!("0::{path}"))];
            files.extend(
                limits.iter().map(|(group, max)| file(&format!("sys/fs/cgroup/{group}cpu.max"), max)),
            );
            files
        };
        let cases = [
            (v2("/a/b", &[("a/b/", "150000 100000")]), Some(1.5), 1),
            (v2("/a/b", &[("a/b/", "max 100000"), ("a/", "250000 100000")]), Some(2.5), 2),
            (v2("/a/b", &[("a/b/", "300000 100000"), ("a/", "90000 100000")]), Some(0.9), 1),
            (v2("/the/host/knows", &[("", "600000 100000")]), Some(6.0), 4),
            (v2("/a", &[("a/", "max 100000")]), None, 4),
            (v2("/a", &[("a/", "150000 0")]), None, 4),
            (v2("/a", &[("a/", "150000")]), None, 4),
            (v1("350000"), Some(3.5), 3),
            (v1("-1"), None, 4),
        ];
        for (files, quota, n_thread) in cases {
            let found = machine(&[&files[..], &[online("0-3")]].concat()).unwrap();
            assert_eq!((found.quota, found.n_thread()), (quota, n_thread), "{files:?}");
        }
    }

    /// Two threads would compute on each core of Windows, or some on slow ones.
    #[test]
    fn cores_of_windows() {
        let record = |bytes: u32, class: u8| {
            let mut record = vec![0; bytes as usize];
            record[4..8].copy_from_slice(&bytes.to_le_bytes());
            record[9] = class;
            record
        };
        let kinds = [vec![record(48, 1); 8], vec![record(64, 0); 4]].concat().concat();
        let cases = [
            (vec![record(48, 0); 6].concat(), Some((6, 6))),
            (kinds.clone(), Some((12, 8))),
            (kinds[..kinds.len() - 1].to_vec(), None),
            (vec![0; 10], Some((1, 1))),
            (vec![], None),
        ];
        for (records, expected) in cases {
            assert_eq!(count_windows(&records), expected, "{records:?}");
        }
    }

    /// The report would name other cores than there are.
    #[test]
    fn cores_are_described() {
        let text = |n_cpu, n_core, n_fast, quota| Cores { n_cpu, n_core, n_fast, quota }.to_string();
        assert_eq!(text(1, 1, 1, None), "1 core");
        assert_eq!(text(2, 2, 2, Some(1.5)), "2 cores, this container may use 1.5");
        assert_eq!(text(32, 24, 8, None), "24 cores, 8 of them fast, 32 logical");
    }

    /// This machine would get no thread, or more than it runs at once.
    #[test]
    fn there_is_a_core_here() {
        let cores = Cores::read();
        let n = std::thread::available_parallelism().map_or(1, usize::from);
        assert!((1..=n.max(cores.n_cpu)).contains(&cores.n_thread()), "{cores:?}");
        assert!(cores.n_fast <= cores.n_core && cores.n_core <= cores.n_cpu, "{cores:?}");
    }
}
