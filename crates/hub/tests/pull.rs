//! Pulls from a hub on this machine that misbehaves in every way that is known.

#[path = "common/server.rs"]
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hub::{Event, HubError, Options, Pulled, Settings, Target, Token, pull, resolve};
use server::{ALWAYS, Act, Bench, COMMIT, File, REPO, Rule, Server};

const FIRST: &str = "model-00001-of-00002.safetensors";
const SECOND: &str = "model-00002-of-00002.safetensors";
const SPAN_BYTES: u64 = 512 << 10;
const BLOCK_BYTES: u64 = 64 << 10;

/// What `pull` should fetch, and three files that it should not.
fn files() -> Vec<File> {
    let mut files = needed();
    files.extend(["README.md", "pytorch_model.bin", "onnx/model.onnx"].map(|name| File::new(name, 1000)));
    files
}

fn needed() -> Vec<File> {
    vec![
        File::new("config.json", 700),
        File::new("chat_template.jinja", 0),
        File::new("tokenizer.json", 300_000),
        File::new(FIRST, (3 << 20) + 123),
        File::new(SECOND, 1 << 20),
    ]
}

fn no_wait(_: Duration) {}

fn options() -> Options {
    Options {
        n_connection: 4,
        span_bytes: SPAN_BYTES,
        block_bytes: BLOCK_BYTES,
        n_try: 4,
        wait: no_wait,
        ..Options::default()
    }
}

impl Bench {
    fn settings(&self) -> Settings {
        let (endpoint, cache) = (self.server.url(), self.disk.path().join("hub"));
        Settings { endpoint, token: None, cache, use_proxy: false }
    }

    fn dir(&self) -> PathBuf {
        self.disk.path().join("dir")
    }

    fn pull(&self) -> Result<Pulled, HubError> {
        self.pull_as(REPO, &options())
    }

    fn pull_as(&self, repo: &str, options: &Options) -> Result<Pulled, HubError> {
        let repo = repo.parse().unwrap();
        pull(&self.settings(), &repo, Target::Folder(&self.dir()), options, &mut |_| ())
    }

    fn pull_to_cache(&self, repo: &str) -> Result<Pulled, HubError> {
        pull(&self.settings(), &repo.parse().unwrap(), Target::Cache, &options(), &mut |_| ())
    }
}

/// All files are there, with their bytes, and nothing that is unfinished.
#[track_caller]
fn check_files(dir: &Path, files: &[File]) {
    for file in files {
        let bytes = fs::read(dir.join(&file.name)).unwrap_or_else(|e| panic!("{}: {e}", file.name));
        assert!(bytes == file.content(0..file.bytes), "{} has wrong bytes", file.name);
    }
    let mut names: Vec<String> = names_in(dir);
    names.retain(|name| name != ".flash-moe-pulled");
    assert_eq!(names.len(), files.len(), "{names:?}");
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries: Vec<_> = fs::read_dir(dir).map(|entries| entries.flatten().collect()).unwrap_or_default();
    entries.into_iter().map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// The wrong files would be fetched, or all of them again, or in one piece.
#[test]
fn what_a_model_needs_is_fetched_once() {
    let bench = Bench::new(files(), vec![]);
    let mut events = Vec::new();
    let repo = REPO.parse().unwrap();
    let into = bench.dir();
    let target = Target::Folder(&into);
    let pulled = pull(&bench.settings(), &repo, target, &options(), &mut |event| events.push(event)).unwrap();
    check_files(&into, &needed());
    let total_bytes: u64 = needed().iter().map(|file| file.bytes).sum();
    assert_eq!((pulled.n_file, pulled.total_bytes, pulled.fetched_bytes), (5, total_bytes, total_bytes));
    assert_eq!((pulled.commit.as_str(), pulled.model.as_path()), (COMMIT, into.as_path()));
    assert_eq!(events[0], Event::Plan { n_file: 5, total_bytes, there_bytes: 0 });
    assert_eq!(events.last(), Some(&Event::Progress { done_bytes: total_bytes, total_bytes }));
    assert_eq!(bench.server.gets(FIRST).len(), 7, "a request for each span");
    assert_eq!(bench.server.twice_bytes(), 0);

    let n_seen = bench.server.seen().len();
    assert_eq!(bench.pull().unwrap().fetched_bytes, 0);
    assert_eq!(bench.server.seen().len(), n_seen + 1, "only the list is asked for again");

    // Somebody changed a file, and its size is the same.
    fs::write(into.join("config.json"), [b'x'; 700]).unwrap();
    assert_eq!(bench.pull().unwrap().fetched_bytes, 700);
    // Without the record all files are checked, not fetched.
    fs::remove_file(into.join(".flash-moe-pulled")).unwrap();
    assert_eq!(bench.pull().unwrap().fetched_bytes, 0);
    check_files(&into, &needed());

    let all = Options { all_files: true, ..options() };
    assert_eq!(bench.pull_as(REPO, &all).unwrap().fetched_bytes, 3000);
    assert!(into.join("onnx/model.onnx").is_file());
}

/// Other programs would not find the model in the cache, or it would be fetched once for each of them.
#[test]
fn the_cache_has_the_layout_of_other_programs() {
    // Two names for the same bytes, as a copied tokenizer has.
    let mut files = files();
    files.push(File { name: "copy.json".into(), ..files[2].clone() });
    let bench = Bench::new(files, vec![]);
    let pulled = bench.pull_to_cache(REPO).unwrap();
    assert_eq!(bench.server.gets("tokenizer.json").len() + bench.server.gets("copy.json").len(), 1);
    let repo = bench.disk.path().join("hub/models--owner--model");
    let snapshot = repo.join("snapshots").join(COMMIT);
    assert_eq!(pulled.folder, snapshot);
    assert_eq!(fs::read_to_string(repo.join("refs/main")).unwrap(), COMMIT);
    let mut expected = needed();
    expected.push(File { name: "copy.json".into(), ..expected[2].clone() });
    check_files(&snapshot, &expected);
    let mut blobs: Vec<String> =
        needed().iter().map(|f| if f.is_small { f.git_blob() } else { f.sha256() }).collect();
    let mut there = names_in(&repo.join("blobs"));
    there.sort();
    blobs.sort();
    assert_eq!(there, blobs);
    #[cfg(unix)]
    assert_eq!(
        fs::read_link(snapshot.join(FIRST)).unwrap(),
        Path::new("../../blobs").join(needed()[3].sha256()),
        "a relative link: the cache can be moved"
    );
    let found = resolve(Path::new(REPO), Some(&bench.settings())).unwrap();
    assert_eq!(found.path, snapshot);
    assert_eq!(bench.pull_to_cache(REPO).unwrap().fetched_bytes, 0);
    // Another branch of the same commit.
    assert_eq!(bench.pull_to_cache("owner/model@refs/pr/1").unwrap().fetched_bytes, 0);
    assert_eq!(fs::read_to_string(repo.join("refs/refs/pr/1")).unwrap(), COMMIT);
}

/// A download would fail, or be wrong, where trying again helps.
#[test]
fn what_a_server_does_wrong_now_and_then_is_survived() {
    let unavailable = |status| Act::Refuse(status, &[], "");
    let rows: Vec<(&str, Vec<Rule>)> = vec![
        ("drops", vec![Rule::new("safetensors", 0..12, Act::Drop(100_000))]),
        ("drops in the list", vec![Rule::new("/api/", 0..2, Act::Hang)]),
        ("drops before the head", vec![Rule::new("resolve", 0..3, Act::Hang)]),
        ("ranges ignored", vec![Rule::new("resolve", ALWAYS, Act::IgnoreRange)]),
        ("ranges ignored now and then", vec![Rule::new(FIRST, 3..5, Act::IgnoreRange)]),
        ("a length too long", vec![Rule::new("resolve", 2..4, Act::Length(10))]),
        ("a length too short", vec![Rule::new("resolve", 2..4, Act::Length(-10))]),
        ("no length", vec![Rule::new("resolve", ALWAYS, Act::NoLength)]),
        ("neither ranges nor lengths", vec![Rule::new("resolve", ALWAYS, Act::Unsized)]),
        ("another range", vec![Rule::new(FIRST, 1..3, Act::OtherRange)]),
        ("another total", vec![Rule::new(FIRST, 1..3, Act::OtherTotal)]),
        ("wrong bytes once", vec![Rule::new(FIRST, 2..3, Act::WrongBytes)]),
        ("wrong bytes in a small file", vec![Rule::new("config.json", 0..1, Act::WrongBytes)]),
        ("503", vec![Rule::new("resolve", 0..3, unavailable(503))]),
        (
            "500 and 502",
            vec![Rule::new("resolve", 0..2, unavailable(500)), Rule::new("/api/", 0..3, unavailable(502))],
        ),
        ("429", vec![Rule::new("resolve", 0..3, Act::Refuse(429, &[("Retry-After", "1")], ""))]),
        ("storage", vec![Rule::new("resolve", ALWAYS, Act::Redirect)]),
        (
            "an address in storage that is too old",
            vec![
                Rule::new("resolve", ALWAYS, Act::Redirect),
                Rule::new("/storage/model", 1..3, unavailable(403)),
            ],
        ),
        (
            "storage that ignores ranges and drops",
            vec![
                Rule::new("resolve", ALWAYS, Act::Redirect),
                Rule::new("/storage/model", 0..6, Act::IgnoreRange),
                Rule::new("/storage/model-00002", 6..8, Act::Drop(70_000)),
            ],
        ),
        (
            "another path",
            vec![Rule::new("revision/main", 0..1, Act::RedirectTo("/api/models/owner/model/revision/x"))],
        ),
    ];
    for (what, rules) in rows {
        println!("{what}");
        let bench = Bench::new(files(), rules);
        bench.pull().unwrap_or_else(|e| panic!("{what}: {e}"));
        check_files(&bench.dir(), &needed());
    }
}

/// What was fetched before a drop would be fetched again.
#[test]
fn a_drop_costs_nothing_that_was_received() {
    let bench = Bench::new(files(), vec![Rule::new("safetensors", 0..12, Act::Drop(100_000))]);
    bench.pull().unwrap();
    check_files(&bench.dir(), &needed());
    assert_eq!(bench.server.twice_bytes(), 0);
}

/// A server that goes away without a word would be waited for for ever.
#[test]
fn a_silent_server_is_left() {
    let rules =
        vec![Rule::new(FIRST, 1..4, Act::Stall(100_000)), Rule::new("config.json", 0..1, Act::Stall(0))];
    let bench = Bench::new(files(), rules);
    // Long enough for a busy machine: what is too short costs a try, and there are enough.
    let options = Options { silence_max: Duration::from_millis(500), n_try: 20, ..options() };
    bench.pull_as(REPO, &options).unwrap();
    check_files(&bench.dir(), &needed());
}

/// A failure would be taken for success, not say what to do, or leave a file that looks finished.
#[test]
fn what_cannot_be_helped_is_said() {
    let refuse = |status, headers, body| Act::Refuse(status, headers, body);
    let gated: &[_] = &[("X-Error-Code", "GatedRepo"), ("X-Error-Message", "Accept the licence first")];
    let rows: Vec<(Rule, &str)> = vec![
        (
            Rule::new("/api/", ALWAYS, refuse(401, &[], r#"{"error": "Who are you?"}"#)),
            "a token (Who are you?)",
        ),
        (Rule::new("/api/", ALWAYS, refuse(403, gated, "")), "refused (Accept the licence first)"),
        (Rule::new("resolve", ALWAYS, refuse(401, gated, "")), "access to owner/model is refused"),
        (Rule::new("/api/", ALWAYS, refuse(404, &[], "")), "the repository owner/model does not exist"),
        (Rule::new("tokenizer.json", ALWAYS, refuse(404, &[], "")), "tokenizer.json does not exist"),
        (Rule::new(FIRST, ALWAYS, refuse(416, &[], "")), "model-00001-of-00002.safetensors is shorter"),
        (Rule::new(FIRST, ALWAYS, refuse(500, &[], "oh")), "answers 500"),
        (Rule::new(FIRST, ALWAYS, refuse(418, &[], "")), "answers 418"),
        (Rule::new(FIRST, ALWAYS, refuse(429, &[("Retry-After", "100000")], "")), "answers 429"),
        (
            Rule::new(FIRST, ALWAYS, Act::WrongBytes),
            "model-00001-of-00002.safetensors: the server sends wrong bytes",
        ),
        (Rule::new(FIRST, ALWAYS, Act::OtherTotal), "the hub lists 3145851"),
        (Rule::new(FIRST, ALWAYS, Act::OtherRange), "were asked for"),
        (Rule::new("config.json", ALWAYS, Act::Length(5)), "sends 705 bytes, the hub lists 700"),
        (Rule::new(FIRST, ALWAYS, Act::Hang), "127.0.0.1"),
        (Rule::new("/api/", ALWAYS, Act::Json("<html>".into())), "no list of files"),
        (Rule::new("/api/", ALWAYS, Act::Json("{}".into())), "names no commit"),
        (Rule::new("/api/", ALWAYS, Act::RedirectTo("/api/again")), "redirects more than"),
        (Rule::new("/api/", ALWAYS, Act::RedirectTo("file:///etc/passwd")), "no address"),
        (Rule::new("/api/", ALWAYS, Act::RedirectTo("elsewhere")), "relative"),
    ];
    for (rule, says) in rows {
        println!("{rule:?}");
        let path = rule.path;
        let bench = Bench::new(files(), vec![rule]);
        let error = bench.pull().unwrap_err().to_string();
        assert!(error.contains(says), "{says:?} in {error}");
        assert!(!names_in(&bench.dir()).iter().any(|name| name == path), "{path} looks finished");
        assert!(!bench.dir().join(FIRST).exists() || path != FIRST);
    }
    let bench = Bench::new(files(), vec![]);
    let settings = Settings { endpoint: "http://127.0.0.1:1".into(), ..bench.settings() };
    let error = pull(&settings, &REPO.parse().unwrap(), Target::Cache, &options(), &mut |_| ()).unwrap_err();
    assert!(matches!(error, HubError::Network { .. }), "{error}");
}

/// The token would be given to whoever the hub redirects to, or a signature be printed.
#[test]
fn the_token_stays_at_the_hub() {
    let rules = vec![
        Rule::new("resolve", ALWAYS, Act::Redirect),
        Rule::new("/storage/model-00002", ALWAYS, Act::Refuse(500, &[], "")),
    ];
    let bench = Bench::new(files(), rules);
    let settings = Settings { token: Token::new("hf_secret"), ..bench.settings() };
    let mut troubles = String::new();
    let error = pull(&settings, &REPO.parse().unwrap(), Target::Cache, &options(), &mut |event| {
        troubles.push_str(&format!("{event:?}"));
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("/storage/model-00002"), "{error}");
    assert!(troubles.contains("Trouble"));
    for secret in ["Signature", "hf_secret"] {
        assert!(!error.contains(secret) && !troubles.contains(secret), "{error} {troubles}");
    }
    for seen in bench.server.seen() {
        let expected = (!seen.is_storage).then_some("Bearer hf_secret");
        assert_eq!(seen.authorization.as_deref(), expected, "{seen:?}");
    }
    assert!(bench.server.seen().iter().any(|seen| seen.is_storage));
}

/// A server that asks for time would be asked again at once, or waited for twice as long.
#[test]
fn a_server_is_waited_for_as_long_as_it_asks() {
    static WAITED_MS: AtomicU64 = AtomicU64::new(0);
    fn wait(time: Duration) {
        WAITED_MS.fetch_add(time.as_millis() as u64, Ordering::SeqCst);
    }
    let options = Options { wait, n_connection: 1, ..options() };
    let check = |act: Act, times, expected_ms| {
        WAITED_MS.store(0, Ordering::SeqCst);
        let bench = Bench::new(files(), vec![Rule::new("/api/", 0..times, act)]);
        bench.pull_as(REPO, &options).unwrap();
        assert_eq!(WAITED_MS.load(Ordering::SeqCst), expected_ms);
    };
    check(Act::Refuse(429, &[("Retry-After", "7")], ""), 2, 14_000);
    check(Act::Refuse(503, &[], ""), 3, 500 + 1000 + 2000);
}

/// Sizes that the list lacks would be guessed, or the download be given up.
#[test]
fn sizes_that_are_not_listed_are_asked_for() {
    let names = needed().into_iter().map(|file| format!(r#"{{"rfilename": "{}"}}"#, file.name));
    let list = format!(r#"{{"sha": "{COMMIT}", "siblings": [{}]}}"#, names.collect::<Vec<_>>().join(","));
    for rule in [
        Rule::new("resolve", ALWAYS, Act::Redirect),
        Rule::new("HEAD", ALWAYS, Act::BareHead),
        Rule::new("HEAD", ALWAYS, Act::Refuse(405, &[], "")),
        Rule::new("nothing", ALWAYS, Act::Hang),
    ] {
        println!("{rule:?}");
        let bench = Bench::new(files(), vec![Rule::new("/api/", ALWAYS, Act::Json(list.clone())), rule]);
        bench.pull().unwrap();
        check_files(&bench.dir(), &needed());
        let pulled = bench.pull_to_cache(REPO).unwrap();
        check_files(&pulled.folder, &needed());
        // The blob is named by its digest, whether the server tells it or not.
        let blob = bench.disk.path().join("hub/models--owner--model/blobs").join(needed()[3].sha256());
        assert!(blob.is_file());
    }
    let bench = Bench::new(
        files(),
        vec![Rule::new("/api/", ALWAYS, Act::Json(list)), Rule::new(FIRST, ALWAYS, Act::Unsized)],
    );
    let error = bench.pull().unwrap_err().to_string();
    assert!(error.contains("does not say how large"), "{error}");
}

/// A server could write outside of the folder, or fill the disk.
#[test]
fn hostile_lists_are_refused() {
    let big = format!(
        r#"{{"sha": "{COMMIT}", "siblings": [{{"rfilename": "m.safetensors", "size": 8796093022208}}]}}"#
    );
    let bench = Bench::new(files(), vec![Rule::new("/api/", ALWAYS, Act::Json(big))]);
    let error = bench.pull().unwrap_err();
    assert!(matches!(error, HubError::DiskFull { needed_bytes: 8_796_093_022_208, .. }), "{error}");
    for name in ["../evil.safetensors", "/etc/evil.safetensors", "..\\evil.json", "nul.json", "a.json\0"] {
        let mut files = files();
        files.push(File::new(name, 10));
        let bench = Bench::new(files, vec![]);
        // Names in folders are no part of a model: only `--all` sees some of them.
        let error = bench.pull_as(REPO, &Options { all_files: true, ..options() }).unwrap_err();
        assert!(matches!(error, HubError::FileName { .. }), "{error}");
        assert!(names_in(bench.disk.path()).is_empty(), "nothing was written");
    }
}

/// A link in the folder would lead a download to another place.
#[test]
#[cfg(unix)]
fn links_in_the_folder_are_not_followed() {
    use std::os::unix::fs::symlink;
    let all = Options { all_files: true, ..options() };
    for name in ["config.json.part", "config.json.part.journal", "onnx", "config.json"] {
        let bench = Bench::new(files(), vec![]);
        let elsewhere = bench.disk.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::create_dir(bench.dir()).unwrap();
        symlink(&elsewhere, bench.dir().join(name)).unwrap();
        let error = bench.pull_as(REPO, &all).unwrap_err().to_string();
        assert!(error.contains("link"), "{name}: {error}");
        assert!(names_in(&elsewhere).is_empty(), "{name}");
    }
}

/// Another model than the named one would be fetched, or all of them.
#[test]
fn gguf_models_are_chosen_by_name() {
    let files = vec![
        File::new("config.json", 100),
        File::new("m-Q8_0.gguf", 200_000),
        File::new("Q4/m-Q4_K_M-00001-of-00002.gguf", 100_000),
        File::new("Q4/m-Q4_K_M-00002-of-00002.gguf", 100_000),
    ];
    let bench = Bench::new(files.clone(), vec![]);
    let error = bench.pull().unwrap_err().to_string();
    assert!(error.contains("2 models: Q4_K_M (200.0 kB), Q8_0 (200.0 kB)"), "{error}");
    let pulled = bench.pull_to_cache("owner/model:q4_k_m").unwrap();
    assert_eq!((pulled.n_file, pulled.fetched_bytes), (2, 200_000));
    assert!(pulled.model.ends_with("Q4/m-Q4_K_M-00001-of-00002.gguf"));
    let found = resolve(Path::new("owner/model:Q4_K_M"), Some(&bench.settings())).unwrap();
    assert_eq!(found.path, pulled.model);
}

/// An unfinished download would start over, or go on with the bytes of another version.
#[test]
fn an_unfinished_download_is_continued() {
    // The second half of the first file fails.
    let bench = Bench::new(files(), vec![Rule::new(FIRST, 4..100, Act::Refuse(500, &[], ""))]);
    bench.pull().unwrap_err();
    assert!(bench.dir().join(format!("{FIRST}.part")).is_file());
    let again = Bench::new(files(), vec![]);
    let settings = again.settings();
    let dir = bench.dir();
    let mut there = None;
    let pulled = pull(&settings, &REPO.parse().unwrap(), Target::Folder(&dir), &options(), &mut |event| {
        if let Event::Plan { there_bytes, .. } = event {
            there = Some(there_bytes);
        }
    });
    let pulled = pulled.unwrap();
    check_files(&dir, &needed());
    // Spans that were under way when it failed lost no more than a block each.
    let total_bytes = pulled.total_bytes;
    assert_eq!(pulled.fetched_bytes, total_bytes - there.unwrap());
    let twice = bench.server.sent_bytes() + again.server.sent_bytes() - total_bytes;
    assert!(twice <= 4 * BLOCK_BYTES, "{twice} bytes came twice");
    assert!(there.unwrap() > 0);

    // The same name with other bytes: nothing of the old part is used.
    let bench = Bench::new(files(), vec![Rule::new(FIRST, 4..100, Act::Refuse(500, &[], ""))]);
    bench.pull().unwrap_err();
    let mut changed = files();
    changed[3].seed = 7;
    let other = Server::start(changed.clone(), vec![]);
    let settings = Settings { endpoint: other.url(), ..bench.settings() };
    pull(&settings, &REPO.parse().unwrap(), Target::Folder(&bench.dir()), &options(), &mut |_| ()).unwrap();
    check_files(&bench.dir(), &changed[..5]);
}
