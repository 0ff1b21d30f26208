//! `pull`, and models that were pulled, from a hub on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::hub_server::{ALWAYS, Act, Bench, File, REPO, Rule, kept_bytes, wait_until};
use crate::support::{Done, checkpoint, command, finish, flash_moe};

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.disk.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        for variable in
            ["HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"]
        {
            command.env_remove(variable);
        }
        command.env("NO_PROXY", "127.0.0.1").env("HF_ENDPOINT", self.server.url());
        command.env("HF_HOME", self.disk.path());
        command
    }

    fn run(&self, args: &[&str]) -> Done {
        finish(self.command(args).stdin(Stdio::null()).spawn().unwrap())
    }
}

/// The files of a tiny model.
fn tiny() -> Vec<File> {
    let files = fs::read_dir(checkpoint("qwen3_5_moe_quantable")).unwrap().flatten();
    let files = files
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors" || e == "json"));
    files.map(|path| File::of_disk(&path)).collect()
}

/// A pulled model would not be found by its name, or by scripts.
#[test]
fn a_pulled_model_is_known_by_its_name() {
    let bench = Bench::new(tiny(), vec![Rule::new("resolve", ALWAYS, Act::Redirect)]);
    bench.run(&["inspect", REPO]).fails(1, "neither a path nor in the cache", "flash-moe pull owner/model");
    let done = bench.run(&["pull", REPO]).ok();
    let snapshot = Path::new(done.stdout.trim());
    assert!(snapshot.starts_with(bench.path("hub/models--owner--model/snapshots")), "{done:?}");
    assert!(done.stderr.contains("MB/s"), "{done:?}");
    assert!(bench.run(&["pull", REPO]).ok().stderr.contains("all were there already"));
    let done = bench.run(&["inspect", REPO]);
    assert!(done.stderr.contains("owner/model: taking "), "{done:?}");
}

/// A packed download would be another store than a packed checkpoint, or leave the checkpoint behind.
#[test]
fn a_download_is_packed_on_the_way() {
    let rules = vec![Rule::new("model.safetensors", 1..2, Act::Drop(50_000))];
    let bench = Bench::new(tiny(), rules);
    let (out, local) = (bench.path("out.store"), bench.path("local.store"));
    let golden = checkpoint("qwen3_5_moe_quantable");
    flash_moe(&["pack".as_ref(), golden.as_os_str(), local.as_os_str(), "--bits=6".as_ref()]).ok();
    let args = ["pull", REPO, out.to_str().unwrap(), "--pack", "--bits", "6"];
    let done = bench.run(&args).ok();
    assert_eq!(done.stdout.trim(), out.to_str().unwrap());
    flash_moe(&["verify".as_ref(), out.as_os_str()]).ok();
    let experts = |store: &Path| fs::read(store.join("experts/layer-000.bin")).unwrap();
    assert!(experts(&out) == experts(&local));
    assert!(fs::read(out.join("dense.bin")).unwrap() == fs::read(local.join("dense.bin")).unwrap());
    let mut names: Vec<_> =
        fs::read_dir(bench.disk.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    names.sort();
    assert_eq!(names, ["local.store", "out.store"]);
    bench.run(&args).fails(1, "already exists", "another name");
    bench.run(&["pull", "owner/model:Q4_0", "x.store", "--pack"]).fails(2, "safetensors", "");
}

/// A refusal would not say what to do about it.
#[test]
fn refusals_come_with_a_hint() {
    let refuse = |status, headers| Rule::new("/api/", ALWAYS, Act::Refuse(status, headers, ""));
    let gated: &[_] = &[("X-Error-Code", "GatedRepo")];
    let rows = [
        (refuse(401, &[]), "does not exist, or may be seen only with a token", "set HF_TOKEN"),
        (refuse(403, gated), "access to owner/model is refused", "accept its terms"),
        (refuse(404, &[]), "does not exist", "check owner, name and revision"),
        (refuse(418, &[]), "answers 418", "run the same command again"),
        (Rule::new("/api/", ALWAYS, Act::Json("<html>".into())), "no list of files", "HF_ENDPOINT"),
    ];
    for (rule, says, hint) in rows {
        let bench = Bench::new(tiny(), vec![rule]);
        bench.run(&["pull", REPO, bench.path("dir").to_str().unwrap()]).fails(1, says, hint);
    }
    let gguf = ["m-Q4_0.gguf", "m-Q8_0.gguf"].map(|name| File::new(name, 1000));
    let bench = Bench::new(gguf.to_vec(), vec![]);
    bench.run(&["pull", REPO]).fails(1, "2 models: Q4_0 (1.0 kB), Q8_0 (1.0 kB)", "OWNER/NAME:Q4_K_M");
    let done = bench.run(&["pull", "owner/model:q8_0"]).ok();
    assert!(done.stdout.trim().ends_with("m-Q8_0.gguf"), "{done:?}");
    let endpoint = bench.command(&["pull", REPO]).env("HF_ENDPOINT", "nowhere").spawn().unwrap();
    finish(endpoint).fails(1, "HF_ENDPOINT", "");
}

/// The program would start over when it is killed, or finish with wrong bytes.
#[test]
fn a_killed_pull_goes_on() {
    const N_KILL: u64 = 5;
    const N_CONNECTION: u64 = 2;
    const BLOCK_BYTES: u64 = 1 << 20;
    let files = vec![File::new("config.json", 900), File::new("model.safetensors", (24 << 20) + 5)];
    let total_bytes: u64 = files.iter().map(|file| file.bytes).sum();
    let bench = Bench::new(files.clone(), vec![Rule::new("model.safetensors", 1..3, Act::Drop(2_500_000))]);
    let dir = bench.path("dir");
    let args = ["pull", REPO, dir.to_str().unwrap(), "--connections", "2"];
    for n in 0..N_KILL {
        let gate_bytes = (n + 1) * total_bytes / (N_KILL + 1);
        bench.server.set_gate(gate_bytes);
        let mut child = bench.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // What is in the middle of a block is lost each time.
        let lost_bytes = (n + 1) * N_CONNECTION * (BLOCK_BYTES + (128 << 10));
        wait_until("the download", || kept_bytes(&dir, &files, BLOCK_BYTES) + lost_bytes >= gate_bytes);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    bench.server.set_gate(u64::MAX);
    bench.run(&args).ok();
    for file in &files {
        assert!(fs::read(dir.join(&file.name)).unwrap() == file.content(0..file.bytes), "{}", file.name);
    }
    let twice_bytes = bench.server.twice_bytes();
    println!("{twice_bytes} bytes came twice");
    // A block of each connection at each kill and drop, and what the server had given the system to send.
    assert!(
        twice_bytes <= (N_KILL * N_CONNECTION + 2) * (BLOCK_BYTES + (256 << 10)),
        "{twice_bytes} bytes came twice"
    );
}

/// Weights that are not there yet would be used as zeros, or a killed program start over.
#[test]
fn a_killed_pull_that_packs_is_no_model() {
    let files: Vec<File> = tiny().into_iter().filter(|file| !file.name.starts_with("golden")).collect();
    let bench = Bench::new(files, vec![]);
    let (out, local) = (bench.path("out.store"), bench.path("local.store"));
    let golden = checkpoint("qwen3_5_moe_quantable");
    flash_moe(&["pack".as_ref(), golden.as_os_str(), local.as_os_str()]).ok();
    // Headers, and about half of the weights.
    bench.server.set_gate(1_500_000);
    let args = ["pull", REPO, out.to_str().unwrap(), "--pack"];
    let mut child = bench.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pulled = bench.path("out.store.pulled");
    let weights = pulled.join("model/model.safetensors");
    let full_bytes = golden.join("model.safetensors").metadata().unwrap().len();
    wait_until("headers and holes", || weights.metadata().is_ok_and(|meta| meta.len() == full_bytes));
    child.kill().unwrap();
    child.wait().unwrap();
    for model in [&pulled, &pulled.join("model"), &weights] {
        for command in ["inspect", "verify", "bench"] {
            let args = [command, model.to_str().unwrap()];
            bench.run(&args).fails(1, "'pull --pack' was interrupted; run the same command again", "");
        }
    }
    bench.server.set_gate(u64::MAX);
    bench.run(&args).ok();
    assert!(fs::read(out.join("dense.bin")).unwrap() == fs::read(local.join("dense.bin")).unwrap());
    assert!(!pulled.exists());
}
