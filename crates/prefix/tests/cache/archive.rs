//! A session in a file: what comes out is what went in, or nothing does.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prefix::disk::{Block, Header};
use prefix::{ArchiveError, Cache, Disk, DiskLimits, Identity, Imported, Shape, Timeline, export, import};
use tar::EntryType;
use tempfile::TempDir;

use crate::model::{STATE_BYTES, Session, identity, open_limited};

const LIMITS: DiskLimits = DiskLimits {
    size_bytes: u64::MAX,
    daily_write_bytes: 0,
    expiry: Duration::from_secs(1_000_000),
    free_bytes: 0,
};

/// A folder for a file and one for a cache.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("session")
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn import(&self, bytes: &[u8]) -> Result<Imported, ArchiveError> {
        fs::write(self.file(), bytes).unwrap();
        import(&self.file(), &self.root(), &LIMITS, "mine", &|_| Ok(()))
    }

    /// Names and contents of all files in the folder of the identity.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let Ok(entries) = fs::read_dir(self.root().join(identity().root().hex())) else { return Vec::new() };
        let read =
            |path: PathBuf| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap());
        let mut files: Vec<_> = entries.map(|entry| read(entry.unwrap().path())).collect();
        files.sort();
        files
    }
}

fn ids(n: u32) -> Vec<u32> {
    (0..n).map(|i| i * 7 % 1000).collect()
}

/// The file of a session that was fed `ids`.
fn exported(ids: &[u32], with_logits: bool) -> Vec<u8> {
    let (mut bytes, session) = (Vec::new(), Session::fed(ids));
    let n = export(&mut bytes, &identity(), ids, &session.state(with_logits), &session).unwrap();
    assert_eq!(n, bytes.len() as u64);
    bytes
}

/// Names and contents of a file's entries.
fn entries(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(bytes);
    let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        (entry.path().unwrap().to_str().unwrap().to_owned(), content)
    };
    archive.entries().unwrap().map(read).collect()
}

/// A prepared session would not be found on the other machine, or go on in another way than the prompt that was read.
#[test]
fn a_session_goes_on_elsewhere() {
    for with_logits in [false, true] {
        let (place, ids) = (Place::new(), ids(700));
        let file = exported(&ids, with_logits);
        let imported = place.import(&file).unwrap();
        let folder = place.root().join(identity().root().hex());
        let expected = Imported {
            identity: identity(),
            n_token: 700,
            file_bytes: file.len() as u64,
            folder,
            is_new: true,
        };
        assert_eq!(imported, expected);
        // The files are those of the archive.
        let mut files = entries(&file);
        let of_others: Vec<_> = place.files().into_iter().filter(|(name, _)| name != "about.json").collect();
        assert!(files.remove(0).0 == "about.json" && files == of_others);
        let about: Identity =
            serde_json::from_slice(&fs::read(imported.folder.join("about.json")).unwrap()).unwrap();
        assert_eq!(about, Identity { model: "mine".into(), ..identity() });
        #[cfg(unix)]
        for (name, _) in place.files() {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(imported.folder.join(&name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let written: u64 = of_others.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        assert_eq!(prefix::disk::written_today_bytes(&place.root()), written);
        assert!(!place.import(&file).unwrap().is_new);
        let mut cache = open_limited(&place.root(), u64::MAX, u64::MAX);
        let prompt = [&ids[..], &[5, 6, 7]].concat();
        assert_eq!(Session::fed(&[]).take_up(&mut cache, &prompt).n_reused, 700);
        assert_eq!(Session::fed(&[]).take_up(&mut cache, &ids).n_reused, if with_logits { 700 } else { 0 });
        assert_eq!(cache.take_warnings(), [""; 0]);
    }
}

/// A model that attends.
struct Attending;

impl Timeline for Attending {
    fn read_kv(&self, positions: std::ops::Range<usize>, out: &mut [u8]) -> Result<(), String> {
        out.fill(positions.start as u8);
        Ok(())
    }

    fn write_kv(&mut self, positions: std::ops::Range<usize>, bytes: &[u8]) -> Result<(), String> {
        assert!(bytes.iter().all(|byte| *byte == positions.start as u8));
        Ok(())
    }

    fn resume(&mut self, _: &[u32], state: &[u8]) -> Result<(), String> {
        assert!(state.is_empty());
        Ok(())
    }
}

/// Sessions of models without recurrent state, or with keys and values of megabytes, would be lost on the way.
#[test]
fn all_shapes_go_through() {
    for kv_token_bytes in [64, 100_000, 9 << 20] {
        let (place, ids) = (Place::new(), ids(3));
        let shape = Shape { kv_token_bytes, state_bytes: 0, logits_bytes: 40 };
        let identity = Identity { shape, ..identity() };
        let mut file = Vec::new();
        export(&mut file, &identity, &ids, &[], &Attending).unwrap();
        place.import(&file).unwrap();
        let (disk, found) = Disk::open(&place.root(), &identity, LIMITS).unwrap();
        let mut cache = Cache::new(identity, u64::MAX).with_disk(disk, found);
        assert_eq!(cache.load(&[&ids[..], &[9]].concat(), 0, &mut Attending).n_reused, 3);
        assert_eq!(cache.take_warnings(), [""; 0], "{kv_token_bytes}");
    }
}

/// One wrong byte would lead to wrong answers, or leave files behind that nobody can use.
#[test]
fn every_byte_counts() {
    let (place, whole) = (Place::new(), exported(&ids(3), false));
    place.import(&whole).unwrap();
    let right: Vec<_> = place.files().into_iter().filter(|(name, _)| name != "about.json").collect();
    fs::remove_dir_all(place.root()).unwrap();
    let (mut bytes, mut n_refused) = (whole.clone(), 0);
    // Most of the file is zeros behind something.
    for at in (0..whole.len()).filter(|at| whole[*at] != 0 || at % 61 == 0) {
        bytes[at] ^= 1 << (at % 8);
        match place.import(&bytes) {
            Err(_) => {
                n_refused += 1;
                assert_eq!(place.files(), [], "byte {at}");
            }
            // The model's name, or a zero that nobody reads.
            Ok(_) => {
                let files = place.files().into_iter().filter(|(name, _)| name != "about.json");
                assert!(files.eq(right.iter().cloned()), "byte {at}");
                fs::remove_dir_all(place.root()).unwrap();
            }
        }
        bytes[at] = whole[at];
    }
    assert!(n_refused > 500, "{n_refused}");
    let ends = (0..whole.len()).step_by(512).flat_map(|at| [at, at + 1, at + 511]);
    for n in ends.filter(|n| *n < whole.len()) {
        assert!(place.import(&whole[..n]).is_err(), "{n} bytes");
        assert_eq!(place.files(), [], "{n} bytes");
    }
    assert!(place.import(&[&whole[..], &[0]].concat()).is_err());
    assert_eq!(place.files(), []);
}

/// An entry of an archive, whatever it says.
#[derive(Clone)]
struct Made {
    kind: EntryType,
    name: String,
    size: u64,
    content: Vec<u8>,
}

impl Made {
    fn new(name: &str, content: &[u8]) -> Self {
        let kind = EntryType::Regular;
        Self { kind, name: name.into(), size: content.len() as u64, content: content.to_vec() }
    }

    fn named(&self, name: &str) -> Self {
        Self { name: name.into(), ..self.clone() }
    }

    fn of(&self, content: &[u8]) -> Self {
        Self::new(&self.name, content)
    }

    fn sized(&self, size: u64) -> Self {
        Self { size, ..self.clone() }
    }

    fn kind(&self, kind: EntryType) -> Self {
        Self { kind, ..self.clone() }
    }

    /// A kind that has no content.
    fn bare(&self, kind: EntryType) -> Self {
        self.of(b"").kind(kind)
    }
}

fn archive(entries: &[&Made]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Made { kind, name, size, content } in entries {
        let mut header = tar::Header::new_gnu();
        // `set_path` would refuse what somebody else may write.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(*size);
        header.set_cksum();
        bytes.extend(header.as_bytes());
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// The entries of a session's file.
fn right_entries(n: u32) -> [Made; 3] {
    let entries = entries(&exported(&ids(n), false)).into_iter();
    let entries: Vec<Made> = entries.map(|(name, content)| Made::new(&name, &content)).collect();
    entries.try_into().unwrap_or_else(|_| panic!("not three entries"))
}

/// Each is refused for its reason, and leaves nothing.
fn assert_refused(cases: &[(&str, Vec<u8>, &str)]) {
    let place = Place::new();
    for (what, bytes, why) in cases {
        let error = place.import(bytes).expect_err(what).to_string();
        assert!(error.contains(why), "{what}: {error}");
        assert_eq!(place.files(), [], "{what}");
    }
}

/// The file of a part, whatever it says.
fn part_file(header: &Header, payload: &[u8]) -> Vec<u8> {
    let (mut bytes, mut at) = (Vec::new(), 0);
    let block = |block: &Block| {
        let of_it = &payload[at..at + block.bytes];
        at += block.bytes;
        (Block { bytes: block.bytes, xxh3: xxhash_rust::xxh3::xxh3_64(of_it) }, of_it)
    };
    let (blocks, contents): (Vec<_>, Vec<_>) = header.blocks.iter().map(block).unzip();
    bytes.extend(Header { blocks, ..header.clone() }.encode());
    for content in contents {
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(16384), 0);
    }
    bytes
}

/// Somebody would get files written elsewhere, links followed, or memory.
#[test]
fn other_entries_are_refused() {
    use EntryType as Kind;
    let [about, kv, state] = &right_entries(300);
    let [_, other_kv, other_state] = &right_entries(301);
    let first = |entry: Made| archive(&[&entry, kv, state]);
    let second = |entry: Made| archive(&[about, &entry, state]);
    let third = |entry: Made| archive(&[about, kv, &entry]);
    let short = kv.of(&kv.content[..kv.content.len() - 512]);
    assert!(Place::new().import(&archive(&[about, kv, state])).unwrap().is_new, "archives are understood");
    assert_refused(&[
        ("nothing", Vec::new(), "is not a session file"),
        ("a text", b"hello".repeat(1000), "is not a session file: it is no tar archive"),
        ("an empty archive", archive(&[]), "is not a session file"),
        ("another order", archive(&[kv, about, state]), "does not begin with"),
        ("keys behind the state", archive(&[about, state, kv]), "another name"),
        ("no state", archive(&[about, kv]), "entries are missing"),
        ("a fourth entry", archive(&[about, kv, state, state]), "bytes, not"),
        ("a path upwards", second(kv.named(&format!("../{}", kv.name))), "another name"),
        ("a path from the top", second(kv.named(&format!("/{}", kv.name))), "another name"),
        ("a folder in the name", second(kv.named(&format!("./{}", kv.name))), "another name"),
        ("a name in capitals", second(kv.named(&kv.name.to_uppercase())), "another name"),
        ("the name of another", second(kv.named(&other_kv.name)), "than its name says"),
        ("the state of another", third(other_state.clone()), "another name"),
        ("a link", second(kv.bare(Kind::Symlink)), "not a file"),
        ("a hard link", second(kv.bare(Kind::Link)), "not a file"),
        ("a device", second(kv.bare(Kind::Char)), "not a file"),
        ("a pipe", third(state.bare(Kind::Fifo)), "not a file"),
        ("a folder", second(kv.bare(Kind::Directory)), "not a file"),
        ("a long name", second(kv.kind(Kind::GNULongName)), "not a file"),
        ("an extension", second(kv.kind(Kind::XHeader)), "not a file"),
        ("holes", second(kv.kind(Kind::GNUSparse)), "is damaged"),
        ("a huge identity", first(about.sized(1 << 60)), "does not begin with"),
        ("huge keys", second(kv.sized(1 << 60)), "its header says"),
        ("short keys", second(short), "its header says"),
    ]);
}

/// Somebody who can write checksums would have keys and values of other tokens used, or of another model.
#[test]
fn other_contents_are_refused() {
    let [about, kv, state] = &right_entries(300);
    let header = Header::decode(&kv.content, kv.size).unwrap();
    let payload: Vec<u8> = [&kv.content[16384..16384 + 6144], &kv.content[32768..32768 + 1056]].concat();
    assert_eq!(part_file(&header, &payload), kv.content, "parts are understood");
    let later = Header { parent: identity().root().child(&[9]), start: 1, ..header.clone() };
    let later = Made::new(&format!("{}.kv", later.key().hex()), &part_file(&later, &payload));
    let cut = [100, 7100].map(|bytes| Block { bytes, xxh3: 0 }).to_vec();
    let cut = kv.of(&part_file(&Header { blocks: cut, ..header.clone() }, &payload));
    let other = serde_json::to_vec(&Identity { fingerprint: 8, ..identity() }).unwrap();
    let long = [&about.content[..], &[b' '; 64 << 10]].concat();
    let first = |content: &[u8]| archive(&[&about.of(content), kv, state]);
    assert_refused(&[
        ("no identity", first(b"{}"), "about.json is wrong"),
        ("a long identity", first(&long), "does not begin with"),
        ("another identity", first(&other), "another model"),
        ("keys for a state", archive(&[about, kv, &state.of(&kv.content)]), "than its name says"),
        ("a node that goes on", archive(&[about, &later, state]), "first token"),
        ("other blocks", archive(&[about, &cut, state]), "other sizes"),
    ]);
}

/// A session of another model would be used, a drive be filled, or a user not be told why nothing came.
#[test]
fn what_is_refused_leaves_nothing() {
    let (place, whole) = (Place::new(), exported(&ids(300), false));
    fs::write(place.file(), &whole).unwrap();
    let limited = |limits: DiskLimits, refused: Option<&str>| {
        let accept = |found: &Identity| {
            assert_eq!(*found, identity());
            refused.map_or(Ok(()), |why| Err(why.to_owned()))
        };
        let error = import(&place.file(), &place.root(), &limits, "mine", &accept).unwrap_err();
        assert_eq!(place.files(), []);
        assert!(!place.root().join(identity().root().hex()).exists());
        error
    };
    let error = limited(LIMITS, Some("is of another model"));
    assert_eq!(error.to_string(), format!("{}: is of another model", place.file().display()));
    let size_bytes = whole.len() as u64 - 1;
    let error = limited(DiskLimits { size_bytes, ..LIMITS }, None);
    assert!(matches!(error, ArchiveError::TooLarge { .. }), "{error}");
    let error = limited(DiskLimits { free_bytes: u64::MAX, ..LIMITS }, None);
    assert!(matches!(error, ArchiveError::NoRoom { .. }), "{error}");
    let missing = |path: &Path| import(path, &place.root(), &LIMITS, "mine", &|_| Ok(())).unwrap_err();
    assert!(matches!(missing(&place.folder.path().join("none")), ArchiveError::Io { .. }));
    assert!(matches!(missing(place.folder.path()), ArchiveError::Foreign { .. }));
    // What others have in the folder stays.
    place.import(&exported(&ids(400), false)).unwrap();
    let before = place.files();
    let mut damaged = whole;
    let n = damaged.len();
    damaged[n - 20_000] ^= 1;
    place.import(&damaged).unwrap_err();
    assert_eq!(place.files(), before);
}

/// A device that fails would give a file that looks like a session.
#[test]
fn a_failing_device_is_told() {
    let mut session = Session::fed(&ids(300));
    let state = session.state(false);
    assert_eq!(state.len(), STATE_BYTES);
    session.fails_in = Some(0);
    let error = export(&mut Vec::new(), &identity(), &ids(300), &state, &session).unwrap_err();
    assert!(error.to_string().contains("the device has failed"), "{error}");
}
