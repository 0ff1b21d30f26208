//! Which drive a path is on, and what the system says of it.

#[cfg(target_os = "linux")]
mod linux;

use std::path::Path;

/// What is known of the drive under a path, as far as the system tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveFacts {
    /// The system's name of the drive, `nvme0n1`.
    pub device: Option<String>,
    /// What the maker calls it.
    pub model: Option<String>,
    /// The maker's number of this very drive.
    pub serial: Option<String>,
    /// Does the system take it for a spinning disk? Virtual disks say so without being any.
    pub is_rotational: Option<bool>,
    /// Is it on USB, or can it be taken out?
    pub is_removable: Option<bool>,
    /// What buffered reads fetch ahead.
    pub read_ahead_bytes: Option<u64>,
    /// `ext4`, `btrfs`, `nfs4`, …
    pub filesystem: Option<String>,
    /// Of the file system, separated by commas.
    pub mount_options: Option<String>,
}

impl DriveFacts {
    /// Does the file system compress? Direct reads are then none.
    pub fn is_compressed(&self) -> bool {
        let options = self.mount_options.as_deref().unwrap_or_default();
        options.split(',').any(|option| {
            matches!(option.split_once('=').unwrap_or((option, "")),
                ("compress" | "compress-force", value) if value != "no" && value != "none")
        })
    }
}

/// A stable name of the drive under `path`, under which a tuning can be remembered. None where the system does not
/// tell.
pub fn drive_key(path: &Path) -> Option<String> {
    let facts = drive_facts(path)?;
    let name = match (facts.model, facts.serial) {
        (Some(model), Some(serial)) => format!("{model} {serial}"),
        (model, serial) => model.or(serial).or(facts.device)?,
    };
    Some(format!("{name} {}", facts.filesystem.unwrap_or_default()).trim_end().to_owned())
}

/// What the system says of the drive under `path`. None if the path does not exist, or the system does not tell.
#[cfg(target_os = "linux")]
pub fn drive_facts(path: &Path) -> Option<DriveFacts> {
    let path = path.canonicalize().ok()?;
    let device = rustix::fs::stat(&path).ok()?.st_dev;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    Some(linux::facts(device, &path, &mounts, Path::new("/")))
}

/// What the system says of the drive under `path`. None if the path does not exist, or the system does not tell.
#[cfg(not(target_os = "linux"))]
pub fn drive_facts(_path: &Path) -> Option<DriveFacts> {
    None
}
