//! Weight files that come one after the other.

#[path = "common/server.rs"]
mod server;

#[cfg(unix)]
use std::{fs, path::Path, sync::Mutex};

use hub::{Event, HubError, Options, Settings, Shards};
use server::{Act, File, REPO, Rule, Server};

const BLOCK_BYTES: u64 = 64 << 10;

fn options() -> Options {
    Options { span_bytes: 256 << 10, block_bytes: BLOCK_BYTES, n_try: 3, wait: |_| (), ..Options::default() }
}

fn settings(server: &Server) -> Settings {
    Settings { endpoint: server.url(), token: None, cache: "nowhere".into(), use_proxy: false }
}

/// With a length field that says 1000 bytes.
fn shard(i: u64) -> File {
    let head = vec![0xe8, 3, 0, 0, 0, 0, 0, 0];
    File { head, ..File::new(&format!("model-{i:05}-of-00005.safetensors"), (1 << 20) + i) }
}

fn files() -> Vec<File> {
    [File::new("config.json", 700)].into_iter().chain((1..=5).map(shard)).collect()
}

/// Room that the weight files in a folder take.
#[cfg(unix)]
fn taken_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = fs::read_dir(dir).unwrap().flatten();
    files.map(|file| file.metadata().map_or(0, |meta| meta.blocks() * 512)).sum()
}

/// A file would be used before it is there (by who finds the folder, too), stay when it was used, or come when there is
/// no room for it.
#[test]
#[cfg(unix)]
fn files_come_in_order_and_go() {
    let rules =
        vec![Rule::new("00002-of", 1..4, Act::Drop(100_000)), Rule::new("00003-of", 1..2, Act::WrongBytes)];
    let server = Server::start(files(), rules);
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("model");
    let (repo, options, report) = (REPO.parse().unwrap(), options(), |_: Event| ());
    let shards = Shards::open(&settings(&server), &repo, &options, &dir, &report).unwrap();
    assert_eq!(fs::read(dir.join("config.json")).unwrap(), files()[0].content(0..700));
    let error = hub::resolve(&dir, None).unwrap_err().to_string();
    assert!(error.contains("'pull --pack' was interrupted"), "weights that are zeros: {error}");
    (1..=5).for_each(|i| assert_eq!(dir.join(shard(i).name).metadata().unwrap().len(), shard(i).bytes));
    // Opened before anything came: the files stay the same ones.
    let opened: Vec<fs::File> = (1..=5).map(|i| fs::File::open(dir.join(shard(i).name)).unwrap()).collect();
    let names: Vec<String> = [2, 1, 3, 5].map(|i| shard(i).name).to_vec();
    shards.run(|| {
        shards.plan(&names, 1).unwrap();
        for i in [2, 1, 3, 5] {
            shards.need(&shard(i).name).unwrap();
            let mut bytes = vec![0; shard(i).bytes as usize];
            store::read_exact_at(&opened[i as usize - 1], &mut bytes, 0).unwrap();
            assert!(bytes == shard(i).content(0..shard(i).bytes), "{i}");
            shards.done(&shard(i).name);
        }
    });
    shards.remove().unwrap();
    assert!(!dir.exists());
}

/// What was made of the files would not be known again by their times, or be taken for that of another version.
#[test]
fn a_content_has_a_time() {
    let times = |files: Vec<File>| {
        let server = Server::start(files, vec![]);
        let folder = tempfile::tempdir().unwrap();
        let (repo, options, report) = (REPO.parse().unwrap(), options(), |_: Event| ());
        Shards::open(&settings(&server), &repo, &options, folder.path(), &report).unwrap();
        let modified = |i| folder.path().join(shard(i).name).metadata().unwrap().modified().unwrap();
        (1..=5).map(modified).collect::<Vec<_>>()
    };
    let first = times(files());
    assert_eq!(times(files()), first);
    // The same header, as long, at another commit.
    let mut changed = files();
    changed[2].seed += 1;
    let changed = times(changed);
    let is_same: Vec<bool> = first.iter().zip(&changed).map(|(a, b)| a == b).collect();
    assert_eq!(is_same, [true, false, true, true, true]);
}

/// Headers would be guessed, or more of a file be fetched than its header.
#[test]
#[cfg(unix)]
fn headers_come_first() {
    let server = Server::start(files(), vec![]);
    let folder = tempfile::tempdir().unwrap();
    let (repo, options, report) = (REPO.parse().unwrap(), options(), |_: Event| ());
    let shards = Shards::open(&settings(&server), &repo, &options, folder.path(), &report).unwrap();
    assert!(taken_bytes(folder.path()) < 5 * (16 << 10), "headers and holes");
    let names: Vec<String> = (1..=5).map(|i| shard(i).name).collect();
    let most_bytes = Mutex::new(0);
    shards.run(|| {
        shards.plan(&names, 1).unwrap();
        for name in &names {
            shards.need(name).unwrap();
            let mut most = most_bytes.lock().unwrap();
            *most = taken_bytes(folder.path()).max(*most);
            shards.done(name);
        }
    });
    let most_bytes = most_bytes.into_inner().unwrap();
    assert!(most_bytes < 2 * (1 << 20) + (128 << 10), "{most_bytes} bytes: more than two files at a time");
    assert!(taken_bytes(folder.path()) < 5 * (16 << 10), "headers are left");
}

/// Somebody would wait for ever for a file that does not come.
#[test]
fn a_file_that_does_not_come_is_an_error() {
    let rules = vec![Rule::new("00002-of", 1..u64::MAX, Act::Refuse(500, &[], ""))];
    let server = Server::start(files(), rules);
    let folder = tempfile::tempdir().unwrap();
    let (repo, options, report) = (REPO.parse().unwrap(), options(), |_: Event| ());
    let shards = Shards::open(&settings(&server), &repo, &options, folder.path(), &report).unwrap();
    shards.run(|| {
        shards.plan(&[shard(1).name, shard(2).name], 1).unwrap();
        shards.need(&shard(1).name).unwrap();
        let error = shards.need(&shard(2).name).unwrap_err();
        assert!(matches!(error, HubError::Status { status: 500, .. }), "{error}");
        assert!(shards.need(&shard(2).name).is_err());
    });
    let gguf = Server::start(vec![File::new("m-Q8_0.gguf", 10)], vec![]);
    let error = Shards::open(&settings(&gguf), &repo, &options, folder.path(), &report).err().unwrap();
    assert!(error.to_string().contains("only safetensors"), "{error}");
}
