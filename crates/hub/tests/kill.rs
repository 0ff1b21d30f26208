//! A download that is killed, again and again: the right bytes come, and hardly any of them twice.

#[path = "common/server.rs"]
mod server;

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hub::{Options, Settings, Target, pull};
use server::{Act, File, REPO, Rule, Server, kept_bytes, wait_until};

/// Set in the process that downloads: the hub's address and the folder.
const ADDRESS: &str = "FLASH_MOE_TEST_HUB";
const FOLDER: &str = "FLASH_MOE_TEST_FOLDER";

const N_KILL: u64 = 5;
const N_CONNECTION: u64 = 3;
const SPAN_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 64 << 10;

fn files() -> Vec<File> {
    vec![
        File::new("config.json", 900),
        File::new("model-00001-of-00002.safetensors", (14 << 20) + 5),
        File::new("model-00002-of-00002.safetensors", 10 << 20),
    ]
}

/// The process that is killed; does nothing when it runs as one of the tests.
#[test]
fn downloader() {
    let (Ok(endpoint), Some(folder)) = (env::var(ADDRESS), env::var_os(FOLDER)) else { return };
    let settings = Settings { endpoint, token: None, cache: "nowhere".into(), use_proxy: false };
    let options = Options {
        n_connection: N_CONNECTION as usize,
        span_bytes: SPAN_BYTES,
        block_bytes: BLOCK_BYTES,
        ..Options::default()
    };
    let target = Target::Folder(Path::new(&folder));
    pull(&settings, &REPO.parse().unwrap(), target, &options, &mut |_| ()).unwrap();
}

fn start(server: &Server, folder: &Path) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "downloader"]).env(ADDRESS, server.url()).env(FOLDER, folder);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// A killed download would start over, be damaged, or fetch again what it had.
#[test]
fn killed_five_times_nothing_is_fetched_twice_but_what_was_in_flight() {
    // It misbehaves besides: drops, and refusals.
    let rules = vec![
        Rule::new("00001-of", 2..9, Act::Drop(300_000)),
        Rule::new("00002-of", 0..2, Act::Refuse(503, &[("Retry-After", "0")], "")),
        Rule::new("00002-of", 3..5, Act::Drop(10_000)),
    ];
    let server = Server::start(files(), rules);
    let folder = tempfile::tempdir().unwrap();
    let total_bytes: u64 = files().iter().map(|file| file.bytes).sum();
    // A connection loses the block that it is in the middle of.
    let lost_bytes_max = N_CONNECTION * BLOCK_BYTES;
    for n in 0..N_KILL {
        let gate_bytes = (n + 1) * total_bytes / (N_KILL + 1);
        server.set_gate(gate_bytes);
        let mut child = start(&server, folder.path());
        // What the server has sent is on its way through the system; a kill at this point would lose it, as it would
        // from any server. The test is about what the program has received.
        // The server counts what it was about to send to those that were killed before, too.
        let uncounted_bytes = (n + 1) * 2 * lost_bytes_max;
        let kept_bytes = || kept_bytes(folder.path(), &files(), BLOCK_BYTES);
        wait_until("the download", || kept_bytes() + uncounted_bytes >= gate_bytes);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(kept_bytes() < total_bytes, "it was over before kill {n}");
    }
    server.set_gate(u64::MAX);
    assert!(start(&server, folder.path()).wait().unwrap().success());
    for file in files() {
        let bytes = fs::read(folder.path().join(&file.name)).unwrap();
        assert!(bytes == file.content(0..file.bytes), "{} has wrong bytes", file.name);
    }
    let twice_bytes = server.twice_bytes();
    println!("{twice_bytes} bytes came twice");
    assert!(twice_bytes <= N_KILL * SPAN_BYTES, "{twice_bytes} bytes came twice");
}
