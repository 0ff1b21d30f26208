//! Memory limits of control groups, v1 and v2, from the text of `/proc/self/cgroup` and `/proc/self/mountinfo`.
//!
//! A group's limit holds for all groups in it, so every folder from the process's own up to the root of the mount
//! counts. In a container the mount shows a part of the tree only: its root (a field of `mountinfo`) is cut off the
//! group's path. What cannot be read or understood sets no limit.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// v1 reports the largest page-aligned number for "no limit". No machine has that much.
const UNLIMITED_BYTES: u64 = 1 << 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// One folder that may set a limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cgroup {
    version: Version,
    dir: PathBuf,
}

impl Cgroup {
    /// All groups that limit the process, innermost first.
    pub(super) fn enclosing(proc_cgroup: &str, mountinfo: &str) -> Vec<Self> {
        let mut groups = Vec::new();
        for mount in mountinfo.lines().filter_map(Mount::parse) {
            if let Some(path) = own_path(proc_cgroup, mount.version) {
                let inside = path.strip_prefix(mount.root).unwrap_or(Path::new(""));
                // `..` means that the group lies outside of what this namespace may see.
                let is_visible = !inside.components().any(|part| part.as_os_str() == "..");
                let inside = if is_visible { inside } else { Path::new("") };
                let dirs = inside.ancestors().map(|part| mount.point.join(part));
                groups.extend(dirs.map(|dir| Self { version: mount.version, dir }));
            }
        }
        groups
    }

    /// The group's limit, if it has one.
    pub(super) fn limit_bytes(&self) -> Option<u64> {
        match self.version {
            // At `memory.high` the kernel throttles the group until it is below again: nobody wants to run there.
            Version::V2 => {
                [self.number("memory.max"), self.number("memory.high")].into_iter().flatten().min()
            }
            Version::V1 => {
                // The second also tells limits of groups above the mount.
                let limits = [self.number("memory.limit_in_bytes"), self.stat("hierarchical_memory_limit")];
                limits.into_iter().flatten().min()
            }
        }
        .filter(|&limit| limit < UNLIMITED_BYTES)
    }

    /// What the group may still take; negative if a lowered limit is exceeded. File pages are charged to it, but go
    /// when memory is needed.
    pub(super) fn margin_bytes(&self) -> Option<i64> {
        let limit = self.limit_bytes()?;
        let (usage, inactive, active) = match self.version {
            Version::V2 => ("memory.current", "inactive_file", "active_file"),
            Version::V1 => ("memory.usage_in_bytes", "total_inactive_file", "total_active_file"),
        };
        let cache = self.stat(inactive).unwrap_or(0).saturating_add(self.stat(active).unwrap_or(0));
        let used = self.number(usage).unwrap_or(0).saturating_sub(cache);
        let as_signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        Some(as_signed(limit).saturating_sub(as_signed(used)))
    }

    /// How long some task of the group waited for memory, in all. v2 only.
    pub(super) fn stalled(&self) -> Option<Duration> {
        match self.version {
            Version::V2 => stalled(&fs::read_to_string(self.dir.join("memory.pressure")).ok()?),
            Version::V1 => None,
        }
    }

    /// A file with one number. `max` is none.
    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.dir.join(file)).ok()?.trim().parse().ok()
    }

    /// One line of `memory.stat`.
    fn stat(&self, key: &str) -> Option<u64> {
        let text = fs::read_to_string(self.dir.join("memory.stat")).ok()?;
        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
    }
}

/// A mounted tree of groups that can limit memory.
struct Mount<'a> {
    version: Version,
    /// Path, in the tree, of the group that is seen at `point`.
    root: &'a str,
    point: &'a Path,
}

impl<'a> Mount<'a> {
    /// `31 23 0:28 ROOT POINT OPTIONS… - TYPE SOURCE SUPER_OPTIONS`, see proc_pid_mountinfo(5).
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, Path::new(mount.next()?));
        let mut kind = kind.split(' ');
        let version = match kind.next()? {
            "cgroup2" => Version::V2,
            "cgroup" if kind.next_back()?.split(',').any(|option| option == "memory") => Version::V1,
            _ => return None,
        };
        Some(Self { version, root, point })
    }
}

/// The process's group: `0::PATH` (v2), or `N:CONTROLLERS:PATH` with `memory` among the controllers (v1).
fn own_path(proc_cgroup: &str, version: Version) -> Option<&Path> {
    proc_cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_ours = match version {
            Version::V2 => id == "0" && controllers.is_empty(),
            Version::V1 => controllers.split(',').any(|name| name == "memory"),
        };
        is_ours.then_some(Path::new(path))
    })
}

/// The `total`, in microseconds, of the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234` of a pressure file.
pub(super) fn stalled(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split(' ').find_map(|field| field.strip_prefix("total="))?;
    total.trim().parse().ok().map(Duration::from_micros)
}

/// Bytes of a line like `MemTotal:  24684084 kB` in `/proc/meminfo` and `/proc/self/status`.
pub(super) fn kib_field(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;
    const V1_UNLIMITED: &str = "9223372036854771712\n";

    /// Least limit and least margin of `files` under a folder that is mounted at `root` of a tree of this type.
    fn check(
        kind: &str,
        root: &str,
        proc_cgroup: &str,
        files: &[(&str, &str)],
        limit: Option<i64>,
        margin: Option<i64>,
    ) {
        let mounts = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = mounts.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let point = mounts.path().display();
        let mountinfo = format!(
            "23 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
             31 23 0:28 {root} {point} rw,nosuid shared:9 - {kind}\n\
             33 31 0:30 {root} {point} rw,relatime - cgroup cgroup rw,cpu\n"
        );
        let groups = Cgroup::enclosing(proc_cgroup, &mountinfo);
        let got = groups.iter().filter_map(Cgroup::limit_bytes).min().map(|bytes| bytes as i64);
        assert_eq!(got, limit, "limit: {kind} {proc_cgroup:?} {files:?}");
        let got = groups.iter().filter_map(Cgroup::margin_bytes).min();
        assert_eq!(got, margin, "margin: {kind} {proc_cgroup:?} {files:?}");
    }

    /// A limit that is not seen gets the process killed.
    #[test]
    fn v2_limits() {
        let v2 = "cgroup2 cgroup2 rw,nsdelegate";
        let stat = "anon 5\ninactive_file 1073741824\nactive_file 536870912\ninactive_file_x 7\n";
        // In a container: the path is `/`.
        let own = [("memory.max", "8589934592\n"), ("memory.current", "3221225472\n"), ("memory.stat", stat)];
        check(v2, "/", "0::/\n", &own, Some(8 * GIB), Some(8 * GIB - 3 * GIB / 2));
        // The outer group is the tighter one.
        let nested = [
            ("a/b/memory.max", "8589934592\n"),
            ("a/b/memory.current", "0\n"),
            ("a/memory.max", "4294967296\n"),
            ("a/memory.current", "1073741824\n"),
        ];
        check(v2, "/", "0::/a/b\n", &nested, Some(4 * GIB), Some(3 * GIB));
        // The outer group has the higher limit but less left.
        let full = [
            ("a/b/memory.max", "4294967296"),
            ("a/b/memory.current", "0"),
            ("a/memory.max", "8589934592"),
            ("a/memory.current", "7516192768"),
        ];
        check(v2, "/", "0::/a/b\n", &full, Some(4 * GIB), Some(GIB));
        check(v2, "/", "0::/\n", &[("memory.max", "max\n"), ("memory.current", "7\n")], None, None);
        let high =
            [("memory.max", "max\n"), ("memory.high", "2147483648\n"), ("memory.current", "3147483648\n")];
        check(v2, "/", "0::/\n", &high, Some(2 * GIB), Some(-1_000_000_000));
        check(v2, "/", "0::/gone\n", &[], None, None);
        check(v2, "/", "0::/../outside\n", &own, Some(8 * GIB), Some(8 * GIB - 3 * GIB / 2));
        check(v2, "/", "", &own, None, None);
        check(v2, "/", "0::/\n", &[("memory.max", "-3"), ("memory.current", "x")], None, None);
    }

    /// The same for v1, where the huge number means no limit and a mount may show a part of the tree.
    #[test]
    fn v1_limits() {
        let v1 = "cgroup cgroup rw,memory";
        let stat = "inactive_file 7\ntotal_inactive_file 1073741824\nhierarchical_memory_limit 6442450944\n";
        let own = [("memory.limit_in_bytes", "8589934592\n"), ("memory.usage_in_bytes", "3221225472\n")];
        check(v1, "/", "9:pids:/x\n4:cpu,memory:/\n0::/\n", &own, Some(8 * GIB), Some(5 * GIB));
        // A container without its own namespace: the mount shows its group only.
        check(v1, "/docker/12", "4:memory:/docker/12\n", &own, Some(8 * GIB), Some(5 * GIB));
        let with_stat = [own[0], own[1], ("memory.stat", stat)];
        check(v1, "/", "4:memory:/\n", &with_stat, Some(6 * GIB), Some(4 * GIB));
        check(v1, "/", "4:memory:/\n", &[("memory.limit_in_bytes", V1_UNLIMITED)], None, None);
        let nested = [
            ("a/memory.limit_in_bytes", V1_UNLIMITED),
            ("memory.limit_in_bytes", "1073741824\n"),
            ("memory.usage_in_bytes", "2147483648\n"),
        ];
        check(v1, "/", "4:memory:/a/b/c\n", &nested, Some(GIB), Some(-GIB));
        check("cgroup cgroup rw,cpuset", "/", "4:memory:/\n", &own, None, None);
    }

    /// The governor would not see pressure.
    #[test]
    fn stalls_are_read() {
        let text = "some avg10=1.50 avg60=0.00 avg300=0.00 total=2676434\nfull avg10=0.00 total=7\n";
        assert_eq!(stalled(text), Some(Duration::from_micros(2_676_434)));
        for text in ["", "some", "some total=", "some total=-1", "full avg10=0.00 total=7"] {
            assert_eq!(stalled(text), None, "{text:?}");
        }
    }

    /// Hostile or odd text must neither panic nor count.
    #[test]
    fn odd_text() {
        for text in ["", "MemTotal:", "MemTotal: kB", "MemTotal: 12 MB", "MemTotal: 99999999999999999999 kB"]
        {
            assert_eq!(kib_field(text, "MemTotal"), None, "{text:?}");
        }
        assert_eq!(kib_field("MemTotal: 18446744073709551615 kB", "MemTotal"), None);
        assert_eq!(kib_field("MemTotalX: 1 kB\nMemTotal:   3 kB\n", "MemTotal"), Some(3 * 1024));
        for mountinfo in ["", " - cgroup2", "1 2 3 - cgroup2 x y", "1 2 3 / - cgroup2", "a - cgroup"] {
            assert_eq!(Cgroup::enclosing("0::/", mountinfo), []);
        }
    }
}
