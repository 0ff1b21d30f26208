//! What a user could change: rules on what was found, worst first.

use stream::{DriveFacts, MemoryFacts};

use crate::drive::DRIVE_FLOOR_BYTES_S;
use crate::predict::Limit;
use crate::size::Size;

/// No spinning disk reads more at random places.
const SPINNING_BYTES_S: f64 = 300e6;
/// What a SATA SSD or a good USB SSD reaches: above it the drive is what people expect.
const DRIVE_PLAIN_BYTES_S: f64 = 1e9;
/// Less available memory than this share of all memory: something else takes it.
const AVAILABLE_SHARE: u64 = 2;

/// File systems that are on another machine, or behind another system.
const REMOTE: [&str; 12] =
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "drvfs", "virtiofs", "fuse.sshfs", "ceph", "afs", "davfs"];

/// What the rules look at.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    pub(super) memory: MemoryFacts,
    pub(super) drive_bytes_s: Option<f64>,
    pub(super) drive: Option<DriveFacts>,
    /// Do reads go past the page cache?
    pub(super) is_direct: Option<bool>,
    /// A hot part and its degrees.
    pub(super) too_hot: Option<(&'static str, i64)>,
    /// Of the model, if there is one: the experts on disk, and what limits decode.
    pub(super) expert_bytes: Option<u64>,
    pub(super) limit: Option<Limit>,
    /// The budget was chosen by the user.
    pub(super) is_budget_given: bool,
    pub(super) budget_bytes: u64,
}

/// Sentences, one a line.
pub(super) fn advise(f: &Findings) -> Vec<String> {
    let mut advice = drive(f);
    if 0 < f.memory.swap_used_bytes {
        advice.push(format!(
            "swap: {} are swapped out; close programs before the model starts, swapped memory is slower than \
             reading the model again",
            Size(f.memory.swap_used_bytes)
        ));
    }
    advice.extend(memory(f));
    if let Some((part, degrees)) = f.too_hot {
        advice.push(format!("heat: the {part} is at {degrees} °C and slows itself down; give it air"));
    }
    advice
}

fn drive(f: &Findings) -> Vec<String> {
    let mut advice = Vec::new();
    let facts = f.drive.clone().unwrap_or_default();
    let filesystem = facts.filesystem.as_deref().unwrap_or("this file system");
    if REMOTE.contains(&filesystem) {
        advice.push(format!(
            "drive: the model is on a network or shared file system ({filesystem}); a local SSD is faster"
        ));
    }
    // Virtual disks say that they spin, too.
    if facts.is_rotational == Some(true) && f.drive_bytes_s.is_some_and(|rate| rate < SPINNING_BYTES_S) {
        advice.push("drive: this is a spinning disk; an SSD reads experts 20 times as fast".into());
    }
    if facts.is_compressed() {
        advice.push(format!(
            "drive: {filesystem} compresses here, which gains nothing on weights and keeps reads from going past \
             the page cache; keep the model in a folder without compression"
        ));
    } else if f.is_direct == Some(false) {
        advice.push(format!(
            "drive: {filesystem} refuses reads past the page cache, so the system keeps a second copy of what is read"
        ));
    }
    let usb = match facts.is_removable {
        Some(true) => " (on USB? an internal or Thunderbolt SSD is 3 to 10 times as fast)",
        _ => "",
    };
    match f.drive_bytes_s {
        Some(rate) if rate < DRIVE_FLOOR_BYTES_S => advice.push(format!(
            "drive: {:.0} MB/s is too slow to stream from: expect seconds for each token{usb}",
            rate / 1e6
        )),
        Some(rate) if f.limit == Some(Limit::Drive) && rate < DRIVE_PLAIN_BYTES_S => advice.push(format!(
            "drive: it decides the speed here; an NVMe SSD gives 3 to 7 GB/s, this one {:.2}{usb}",
            rate / 1e9
        )),
        _ => {}
    }
    advice
}

fn memory(f: &Findings) -> Vec<String> {
    let mut advice = Vec::new();
    let m = &f.memory;
    let total = m.limit_bytes.unwrap_or(m.physical_bytes);
    if m.available_bytes < total / AVAILABLE_SHARE {
        advice.push(format!(
            "memory: other programs hold {}; each GiB that they give back keeps more experts in memory",
            Size(total.saturating_sub(m.available_bytes))
        ));
    }
    if f.is_budget_given && f.limit == Some(Limit::Drive) && f.budget_bytes < m.available_bytes / 4 * 3 {
        advice.push(format!(
            "memory: --memory is {}, but {} are available",
            Size(f.budget_bytes),
            Size(m.available_bytes)
        ));
    }
    if let (Some(limit), Some(experts)) = (m.limit_bytes, f.expert_bytes)
        && limit < experts
        && limit < m.physical_bytes / 4 * 3
    {
        advice.push(format!(
            "memory: this container may use {} of the machine's {}; raise its limit if you can",
            Size(limit),
            Size(m.physical_bytes)
        ));
    }
    if f.limit == Some(Limit::Processor) {
        advice.push("processor: arithmetic decides the speed here; a faster drive would not help".into());
    } else if let Some(experts) = f.expert_bytes
        && f.limit == Some(Limit::Drive)
        && total < experts / 10
    {
        advice.push(format!(
            "memory: less than a tenth of the model's {} of experts can stay in memory; fewer --bits or more \
             memory help most",
            Size(experts)
        ));
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// A machine about which there is nothing to say.
    fn good() -> Findings {
        let memory =
            MemoryFacts { physical_bytes: 64 * GIB, available_bytes: 60 * GIB, ..MemoryFacts::default() };
        Findings {
            memory,
            drive_bytes_s: Some(5e9),
            drive: Some(DriveFacts { filesystem: Some("ext4".into()), ..DriveFacts::default() }),
            is_direct: Some(true),
            expert_bytes: Some(200 * GIB),
            limit: Some(Limit::Drive),
            budget_bytes: 48 * GIB,
            ..Findings::default()
        }
    }

    fn changed(change: fn(&mut Findings)) -> Findings {
        let mut findings = good();
        change(&mut findings);
        findings
    }

    /// A user with a fine machine would be worried, or one with a problem not told.
    #[test]
    fn each_problem_has_its_advice() {
        assert_eq!(advise(&good()), Vec::<String>::new());
        let check = |change: fn(&mut Findings), expected: &str| {
            let advice = advise(&changed(change));
            assert!(advice.len() == 1 && advice[0].contains(expected), "'{expected}' in {advice:?}");
        };
        check(|f| f.drive_bytes_s = Some(40e6), "40 MB/s is too slow");
        check(|f| f.drive_bytes_s = Some(9e8), "an NVMe SSD");
        check(|f| f.drive.as_mut().unwrap().filesystem = Some("nfs4".into()), "network or shared");
        let spinning = |f: &mut Findings| {
            f.drive.as_mut().unwrap().is_rotational = Some(true);
            f.limit = Some(Limit::Processor);
            f.drive_bytes_s = Some(150e6);
        };
        assert!(advise(&changed(spinning)).iter().any(|advice| advice.contains("spinning disk")));
        check(|f| f.too_hot = Some(("drive", 80)), "the drive is at 80 °C");
        check(|f| f.is_direct = Some(false), "ext4 refuses reads past the page cache");
        check(|f| f.memory.swap_used_bytes = GIB, "1.00 GiB are swapped out");
        check(|f| f.memory.available_bytes = 20 * GIB, "other programs hold 44.00 GiB");
        check(|f| f.limit = Some(Limit::Processor), "arithmetic decides");
        let compressed = |f: &mut Findings| {
            let drive = f.drive.as_mut().unwrap();
            drive.filesystem = Some("btrfs".into());
            drive.mount_options = Some("rw,compress=zstd:1".into());
            f.is_direct = Some(false);
        };
        check(compressed, "btrfs compresses");
        let small = |f: &mut Findings| {
            f.memory.physical_bytes = 8 * GIB;
            f.memory.available_bytes = 7 * GIB;
        };
        check(small, "less than a tenth");
        let limited = |f: &mut Findings| {
            f.memory.limit_bytes = Some(32 * GIB);
            f.memory.available_bytes = 31 * GIB;
        };
        check(limited, "raise its limit");
        let thrifty = |f: &mut Findings| {
            f.is_budget_given = true;
            f.budget_bytes = 6 * GIB;
        };
        check(thrifty, "--memory is 6.00 GiB");
    }
}
