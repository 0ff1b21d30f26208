//! `/proc/self/mountinfo` and `/sys/dev/block`.

use std::path::{Path, PathBuf};

use rustix::fs::{Dev, major, makedev, minor};

use super::DriveFacts;

/// `root` is where `sys` and `dev` are.
pub(super) fn facts(device: Dev, path: &Path, mounts: &str, root: &Path) -> DriveFacts {
    let mount = mounts.lines().filter_map(Mount::parse).filter(|mount| mount.holds(device, path));
    let mount = mount.max_by_key(|mount| mount.point.as_os_str().len());
    let mut facts = DriveFacts::default();
    if let Some(mount) = &mount {
        facts.filesystem = Some(mount.filesystem.into());
        facts.mount_options = Some(format!("{},{}", mount.options, mount.filesystem_options));
    }
    // Some file systems (btrfs) have devices of their own; what is mounted is then the drive.
    let source = || rustix::fs::stat(root.join(mount.as_ref()?.source.strip_prefix('/')?)).ok();
    let folder = block_folder(root, device).or_else(|| block_folder(root, source()?.st_rdev));
    if let Some(folder) = folder {
        add_block_facts(&mut facts, &folder);
    }
    facts
}

/// A line of mountinfo.
struct Mount<'a> {
    device: Dev,
    point: PathBuf,
    options: &'a str,
    filesystem: &'a str,
    source: &'a str,
    filesystem_options: &'a str,
}

impl<'a> Mount<'a> {
    /// `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda1 rw,errors=continue`
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(2);
        let (major, minor) = fields.next()?.split_once(':')?;
        let device = makedev(major.parse().ok()?, minor.parse().ok()?);
        let (point, options) = (unescape(fields.nth(1)?), fields.next()?);
        let mut fields = filesystem.split(' ');
        let (filesystem, source) = (fields.next()?, fields.next()?);
        Some(Self { device, point, options, filesystem, source, filesystem_options: fields.next()? })
    }

    /// A subvolume's files have another device than the line.
    fn holds(&self, device: Dev, path: &Path) -> bool {
        path.starts_with(&self.point) && (self.device == device || major(device) == 0)
    }
}

/// Blanks are written as `\040`.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(bytes).into()
}

/// The folder of a drive, also if the device is one of its partitions.
fn block_folder(root: &Path, device: Dev) -> Option<PathBuf> {
    let link = root.join(format!("sys/dev/block/{}:{}", major(device), minor(device)));
    let folder = link.canonicalize().ok()?;
    match folder.join("partition").exists() {
        true => folder.parent().map(Path::to_owned),
        false => Some(folder),
    }
}

fn add_block_facts(facts: &mut DriveFacts, folder: &Path) {
    let text = |name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let flag = |name| text(name).map(|text| text == "1");
    facts.device = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    facts.model = text("device/model").or_else(|| text("dm/name"));
    facts.serial = ["device/serial", "device/wwid", "wwid", "serial", "dm/uuid"].into_iter().find_map(text);
    facts.is_rotational = flag("queue/rotational");
    let is_usb = folder.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"usb"));
    facts.is_removable = flag("removable").map(|removable| removable || is_usb);
    let read_ahead_kib: Option<u64> = text("queue/read_ahead_kb").and_then(|text| text.parse().ok());
    facts.read_ahead_bytes = read_ahead_kib.map(|kib| kib << 10);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MOUNTS: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
bad line
40 27 259:3 / /mnt/my\\040models rw,noatime shared:3 - xfs /dev/nvme0n1p3 rw,attr2
41 27 0:45 /@data /data rw - btrfs /dev/sdb1 rw,compress=zstd:3,ssd
42 27 0:50 / /net rw - nfs4 server:/models rw,vers=4.2
";

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Advice about the wrong drive, or a tuning that is used for another one.
    #[test]
    fn facts_of_drives() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let drive = "sys/devices/pci/nvme/nvme0/nvme0n1";
        write(root, &format!("{drive}/device/model"), "Fast 990 \n");
        write(root, &format!("{drive}/device/serial"), "S1\n");
        write(root, &format!("{drive}/queue/rotational"), "0\n");
        write(root, &format!("{drive}/queue/read_ahead_kb"), "128\n");
        write(root, &format!("{drive}/removable"), "0\n");
        write(root, &format!("{drive}/nvme0n1p3/partition"), "3\n");
        let stick = "sys/devices/usb2/2-1/block/sdb";
        write(root, &format!("{stick}/removable"), "0\n");
        fs::create_dir_all(root.join("sys/dev/block")).unwrap();
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(root.join(target), root.join("sys/dev/block").join(name)).unwrap()
        };
        link(&format!("{drive}/nvme0n1p3"), "259:3");
        link(stick, "8:16");

        let of = |device, path: &str| facts(device, Path::new(path), MOUNTS, root);
        let fast = of(makedev(259, 3), "/mnt/my models/a/b");
        let right = DriveFacts {
            device: Some("nvme0n1".into()),
            model: Some("Fast 990".into()),
            serial: Some("S1".into()),
            is_rotational: Some(false),
            is_removable: Some(false),
            read_ahead_bytes: Some(128 << 10),
            filesystem: Some("xfs".into()),
            mount_options: Some("rw,noatime,rw,attr2".into()),
        };
        assert_eq!(fast, right);
        assert!(!fast.is_compressed());
        let stick = of(makedev(8, 16), "/elsewhere");
        assert_eq!(
            (stick.device.as_deref(), stick.is_removable, stick.model),
            (Some("sdb"), Some(true), None)
        );
        let subvolume = of(makedev(0, 46), "/data/models");
        assert_eq!(subvolume.filesystem.as_deref(), Some("btrfs"));
        assert!(subvolume.is_compressed() && subvolume.device.is_none());
        let net = of(makedev(0, 50), "/net/x");
        assert_eq!((net.filesystem.as_deref(), net.device), (Some("nfs4"), None));
        assert_eq!(of(makedev(254, 0), "/tmp").filesystem.as_deref(), Some("ext4"));
    }

    /// A new key at every start would tune again each time.
    #[test]
    fn keys_are_stable() {
        let dir = tempfile::tempdir().unwrap();
        let (key, again) = (crate::drive_key(dir.path()), crate::drive_key(dir.path()));
        eprintln!("{key:?} {:?}", crate::drive_facts(dir.path()));
        assert_eq!(key, again);
        assert_eq!(crate::drive_key(&dir.path().join("missing")), None);
    }
}
