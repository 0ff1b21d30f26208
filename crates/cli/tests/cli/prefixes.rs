//! Prompts that were read before: by the same program, an earlier run, another server.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Done, command, finish};

const GREEDY: [&str; 6] = ["--temperature", "0", "--max-tokens", "24", "--think", "off"];

/// A cache folder, and a text that is long for the demo model.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        let lines = (0..64).map(|i| format!("Line {i} says that {} is not {}.\n", i * 7, i * 11 + 3));
        fs::write(place.text(), lines.collect::<String>()).unwrap();
        place
    }

    fn text(&self) -> String {
        self.at("text.txt").to_str().unwrap().to_owned()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn cache(&self) -> PathBuf {
        self.at("cache")
    }

    /// The program with this cache folder.
    fn flash_moe(&self, args: &[&str], input: &str) -> Done {
        use std::io::Write;
        let mut child =
            command(args).env("FLASH_MOE_CACHE", self.cache()).stdin(Stdio::piped()).spawn().unwrap();
        // The program may end before it has read all of it.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        finish(child)
    }

    /// `run` with the long text.
    fn run(&self, more: &[&str]) -> Run {
        let text = self.text();
        let args = [&["run", "What is line 7?", "--file", &text, "--json"], &GREEDY[..], more].concat();
        Run::of(self.flash_moe(&args, "").ok())
    }

    fn chat(&self, more: &[&str], input: &str) -> Done {
        self.flash_moe(&[&["chat", "-v"], &GREEDY[..], more].concat(), input).ok()
    }

    /// Files of checkpoints.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for folder in fs::read_dir(self.cache().join("prefixes")).unwrap() {
            let folder = folder.unwrap().path();
            if folder.is_dir() {
                files.extend(fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        files.retain(|path| path.extension().is_some_and(|end| end == "kv" || end == "state"));
        files
    }
}

/// What `run --json` said.
#[derive(Debug)]
struct Run {
    n_prompt: u64,
    n_cached: u64,
    text: String,
    stderr: String,
}

impl Run {
    fn of(done: Done) -> Self {
        let report: Value = serde_json::from_str(&done.stdout).unwrap();
        let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"));
        assert_eq!(
            report["phases"]["prefill"]["tokens"].as_u64().unwrap(),
            number("prompt_tokens") - number("cached_tokens")
        );
        Self {
            n_prompt: number("prompt_tokens"),
            n_cached: number("cached_tokens"),
            text: report["text"].as_str().unwrap().to_owned(),
            stderr: done.stderr,
        }
    }

    /// All but a little was there.
    #[track_caller]
    fn is_cached(&self) {
        assert!(self.n_prompt - 64 < self.n_cached && self.n_cached <= self.n_prompt, "{self:?}");
    }
}

/// The tokens of each prompt, and those of them that came from the cache, as `-v` says.
fn reused(done: &Done) -> Vec<(usize, usize)> {
    let lines = done.stderr.lines().filter_map(|line| line.strip_prefix("prompt of "));
    let numbers = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[0].parse().unwrap(), words[2].parse().unwrap())
    };
    lines.map(numbers).collect()
}

/// A long prompt would be read again by each run, its answer would change, or what is of other settings would be used.
#[test]
fn a_second_run_reads_nothing_again() {
    let place = Place::new();
    let first = place.run(&[]);
    assert!(first.n_prompt > 1000 && first.n_cached == 0, "{first:?}");
    let second = place.run(&["-v"]);
    second.is_cached();
    assert_eq!(second.text, first.text);
    assert!(second.stderr.contains(" from the cache (disk), "), "{second:?}");
    assert!(second.stderr.contains("\n  prefix cache "), "{second:?}");
    for more in [
        &["--no-prefix-cache", "-v"][..],
        &["--prefix-cache-size", "0"],
        &["--kv", "f32"],
        &["--experts", "1"],
        &["--activations", "int16"],
    ] {
        let other = place.run(more);
        assert_eq!(other.n_cached, 0, "{more:?}: {other:?}");
        assert_eq!(
            more[0] == "--no-prefix-cache",
            other.stderr.contains("the prefix cache is off"),
            "{other:?}"
        );
    }
    place.run(&["--kv", "f32"]).is_cached();
    place.run(&["--threads", "1", "--cache", "page"]).is_cached();
}

/// A prompt without messages would be read again, or the one whose logits are known crash the program.
#[test]
fn a_raw_prompt_is_there_to_its_end() {
    let place = Place::new();
    let prompt = fs::read_to_string(place.text()).unwrap();
    let args = ["run", "--raw", "--json", "-", "--temperature", "0", "--max-tokens", "8"];
    let run = || Run::of(place.flash_moe(&args, &prompt).ok());
    let (first, second) = (run(), run());
    assert_eq!((first.n_cached, second.n_cached), (0, second.n_prompt));
    assert_eq!(first.text, second.text);
    let longer = Run::of(place.flash_moe(&args, &format!("{prompt}And more.")).ok());
    longer.is_cached();
}

/// A conversation that is loaded would be read again from its start, or go on in another way.
#[test]
fn a_loaded_chat_goes_on_at_once() {
    let place = Place::new();
    let saved = place.at("chat.json").to_str().unwrap().to_owned();
    let text = place.text();
    let first = place.chat(&["--file", &text], &format!("Line 7?\n/save {saved}\nAnd 8?\n"));
    let of_first = reused(&first);
    assert_eq!((of_first.len(), of_first[0].1), (2, 0), "{first:?}");
    let second = place.chat(&[], &format!("/load {saved}\nAnd 8?\n"));
    let [(n_prompt, n_cached)] = reused(&second)[..] else { panic!("{second:?}") };
    assert_eq!(n_prompt, of_first[1].0);
    assert!(n_prompt - 100 < n_cached, "{second:?}");
    assert_eq!(first.stdout.lines().last(), second.stdout.lines().last());
    let off = place.chat(&["--no-prefix-cache"], &format!("/load {saved}\nAnd 8?\nAnd 9?\n"));
    assert_eq!(reused(&off).iter().map(|(_, n_cached)| *n_cached).collect::<Vec<_>>(), [0, 0]);
    assert!(off.stdout.starts_with(&second.stdout), "{off:?}\n{second:?}");
}

/// Inside a chat a later turn, another answer or an edited message would be read from the start.
#[test]
fn turns_go_on_from_each_other() {
    let place = Place::new();
    let text = place.text();
    let done = place.chat(
        &["--file", &text, "--prefix-cache-size", "0"],
        "Line 7?\nAnd 8?\n/retry\n/undo\nAnd 9?\n/clear\nHello\n",
    );
    let turns = reused(&done);
    assert_eq!((turns.len(), turns[0].1), (5, 0), "{done:?}");
    for (n_prompt, n_cached) in &turns[1..4] {
        assert!(n_prompt - 100 < *n_cached, "{turns:?}");
    }
}

/// The last conversation would be lost, readable by others, or mixed up with that of another model.
#[test]
fn the_last_chat_goes_on() {
    let place = Place::new();
    let text = place.text();
    let none = place.chat(&["--resume", "--no-prefix-cache"], "Hello\n");
    assert!(none.stderr.contains("there is no earlier conversation"), "{none:?}");
    assert!(!place.cache().join("chats").exists());
    let first = place.chat(&["--file", &text, "--system", "Be kind."], "Line 7?\n");
    let file = fs::read_dir(place.cache().join("chats")).unwrap().next().unwrap().unwrap().path();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    let kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(kept["messages"].as_array().unwrap().len(), 2);
    let second = place.chat(&["--resume"], "And 8?\n/stats\n");
    assert!(second.stderr.contains("(2 messages are here again)"), "{second:?}");
    let (n_first, (n_prompt, n_cached)) = (reused(&first)[0].0, reused(&second)[0]);
    assert!(n_first < n_prompt && n_prompt - 100 < n_cached, "{second:?}");
    let third = place.chat(&[], "Hello\n/resume\n/stats\n");
    assert!(third.stderr.contains("(4 messages are here again)"), "{third:?}");
    fs::write(&file, "garbage").unwrap();
    let fourth = place.chat(&["--resume"], "Hello\n");
    assert!(fourth.stderr.contains("is ignored: it is not a chat"), "{fourth:?}");
}

/// Trouble with the folder would stop an answer, change it, or go unnoticed.
#[test]
fn trouble_with_the_folder_is_told() {
    let place = Place::new();
    let right = place.run(&["--prefix-cache-size", "0"]).text;
    // A file where the folder should be.
    fs::create_dir_all(place.cache()).unwrap();
    fs::write(place.cache().join("prefixes"), "").unwrap();
    let blocked = place.run(&[]);
    assert!(blocked.stderr.contains("warning: prompts are kept in memory only"), "{blocked:?}");
    assert_eq!(blocked.text, right);
    fs::remove_file(place.cache().join("prefixes")).unwrap();
    // No room, and no more writes today.
    for (limit, says) in [("--prefix-cache-size", "is full"), ("--prefix-cache-writes", "are used up")] {
        let done = place.run(&[limit, "10kB"]);
        assert!(done.stderr.contains("warning: ") && done.stderr.contains(says), "{done:?}");
        assert_eq!((done.text.as_str(), place.files().len()), (right.as_str(), 0));
    }
    // Damage: in all headers, then in all contents.
    for first in [0, 8192] {
        place.run(&[]);
        place.run(&[]).is_cached();
        for path in place.files() {
            let mut bytes = fs::read(&path).unwrap();
            assert!(first < bytes.len(), "{}", path.display());
            bytes[first..].iter_mut().step_by(61).for_each(|byte| *byte ^= 0x40);
            fs::write(&path, bytes).unwrap();
        }
        let damaged = place.run(&[]);
        assert!(damaged.stderr.contains("warning: ") && damaged.n_cached == 0, "{first}: {damaged:?}");
        assert_eq!(damaged.text, right);
    }
}

/// A user could not see what fills the disk, or not get rid of it, or lose files of somebody else.
#[test]
fn what_is_kept_is_listed_and_removed() {
    let place = Place::new();
    let cache = |args: &[&str]| place.flash_moe(&[&["cache"], args].concat(), "");
    let json = |args: &[&str]| -> Value { serde_json::from_str(&cache(args).ok().stdout).unwrap() };
    assert_eq!(cache(&["ls"]).ok().stdout, "nothing is kept\n");
    assert_eq!(json(&["ls", "--json"]), json!([]));
    let n_prompt = place.run(&[]).n_prompt;
    place.run(&["--kv", "f32"]);
    let listed = json(&["ls", "--json"]);
    let folders = listed.as_array().unwrap();
    assert_eq!(folders.len(), 2);
    for folder in folders {
        assert_eq!((&folder["model"], &folder["damaged"]), (&json!("demo model"), &json!(0)), "{folder}");
        let n_token = folder["tokens"].as_u64().unwrap();
        assert!(n_prompt - 64 < n_token && n_token <= n_prompt, "{folder}");
        assert!(folder["checkpoints"].as_u64() > Some(0) && folder["last_use"].is_string(), "{folder}");
    }
    assert!(folders[0]["settings"].as_str().unwrap().contains("f32 keys and values"), "{listed}");
    let bytes: u64 = folders.iter().map(|folder| folder["bytes"].as_u64().unwrap()).sum();
    let stats = json(&["stats", "--json"]);
    assert_eq!((&stats["bytes"], &stats["models"]), (&json!(bytes), &json!(2)), "{stats}");
    assert!(stats["written_today_bytes"].as_u64() > Some(bytes / 2), "{stats}");
    let text = cache(&["stats"]).ok().stdout;
    assert!(text.contains("2 models") && text.contains(" of 64.00 GiB (--prefix-cache-writes)"), "{text}");
    let text = cache(&["ls"]).ok().stdout;
    let key = folders[0]["key"].as_str().unwrap();
    assert!(
        text.contains(&key[..12]) && text.contains("  demo model\n  ") && text.contains("just now"),
        "{text}"
    );
    // One of the two by its key, then all of the model; files of others stay.
    cache(&["rm", "nothing"]).fails(1, "nothing is kept of nothing", "flash-moe cache ls");
    cache(&["rm", &key[..12]]).ok();
    assert_eq!(json(&["ls", "--json"]).as_array().unwrap().len(), 1);
    let foreign = place.files()[0].with_file_name("notes.txt");
    fs::write(&foreign, "mine").unwrap();
    assert!(cache(&["rm", "demo model"]).ok().stdout.starts_with("removed "));
    assert!(foreign.exists() && place.files().is_empty());
    cache(&["rm"]).fails(2, "required", "");
    assert_eq!(cache(&["rm", "--all"]).ok().stdout, "removed 0 checkpoints, 0 B are free\n");
}

/// Sessions in files.
mod session_files {
    use super::*;
    use crate::support::store;

    /// Makes a session that has read the long text; its file, its tokens, and what was said.
    fn exported(place: &Place, more: &[&str]) -> (String, u64, Done) {
        let (file, text) = (place.at("big.session").to_str().unwrap().to_owned(), place.text());
        let args = [&["cache", "export", &file, "--file", &text, "--think", "off"], more].concat();
        let done = place.flash_moe(&args, "").ok();
        let n_token = done.stdout.split_once(" tokens, ").unwrap().0.parse().unwrap();
        assert!(done.stdout.ends_with(&format!(", in {file}\n")), "{done:?}");
        (file, n_token, done)
    }

    fn import(place: &Place, more: &[&str]) -> Done {
        place.flash_moe(&[&["cache", "import"], more].concat(), "")
    }

    /// A prepared session would be read again on the other machine, answer in another way, or be read by others.
    #[test]
    fn a_session_goes_on_elsewhere() {
        let (here, there) = (Place::new(), Place::new());
        let (file, n_token, _) = exported(&here, &[]);
        assert!(n_token > 1000, "{n_token}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let cold = there.run(&["--no-prefix-cache"]);
        let done = import(&there, &[&file]).ok();
        let folder = there.cache().join("prefixes");
        assert!(done.stdout.starts_with(&format!("{n_token} tokens, ")), "{done:?}");
        assert!(done.stdout.contains(&format!(", now in {}", folder.display())), "{done:?}");
        assert!(done.stdout.contains("\nused with "), "{done:?}");
        assert!(import(&there, &[&file]).ok().stdout.contains(", already in "));
        let warm = there.run(&["-v"]);
        assert!(n_token <= warm.n_cached && warm.stderr.contains(" from the cache (disk), "), "{warm:?}");
        warm.is_cached();
        assert_eq!(warm.text, cold.text);
        assert_eq!(there.run(&["--kv", "f32"]).n_cached, 0, "of other settings");
        // Where it was made it is kept too: the second time nothing is read.
        let first = fs::read(&file).unwrap();
        let (_, again, done) = exported(&here, &["-v"]);
        assert_eq!((reused(&done), again), (vec![(n_token as usize, n_token as usize)], n_token));
        assert!(first == fs::read(&file).unwrap(), "another file");
        here.run(&[]).is_cached();
    }

    /// Only files could be prepared, or settings would be mixed up.
    #[test]
    fn system_messages_and_tools_are_prepared() {
        let place = Place::new();
        let (file, tools) = (place.at("s").to_str().unwrap().to_owned(), place.at("t.json"));
        fs::write(&tools, json!([{ "name": "f", "description": "Adds 7 to 5." }]).to_string()).unwrap();
        let opening = ["--system", "Answer in verse.", "--tools", tools.to_str().unwrap(), "--kv", "f32"];
        let args = [&["cache", "export", &file, "--no-prefix-cache"], &opening[..]].concat();
        let done = place.flash_moe(&args, "").ok();
        assert!(!place.cache().join("prefixes").exists(), "nothing was to be kept");
        import(&place, &[&file]).ok();
        let n_token: u64 = done.stdout.split_once(' ').unwrap().0.parse().unwrap();
        for question in ["Who?", "\"So?\"", "  12"] {
            let args =
                [&["run", question, "--json", "--prefix-cache-writes", "0"], &GREEDY[..], &opening].concat();
            let run = Run::of(place.flash_moe(&args, "").ok());
            assert_eq!(run.n_cached, n_token, "{question}: {run:?}");
        }
    }

    /// What cannot be used would be used, or take room and say nothing.
    #[test]
    fn files_that_are_of_no_use_are_refused() {
        let (here, there) = (Place::new(), Place::new());
        let (file, ..) = exported(&here, &[]);
        let whole = fs::read(&file).unwrap();
        let store = store().to_str().unwrap();
        let none = |done: Done, error: &str, hint: &str| {
            done.fails(1, error, hint);
            let prefixes = there.cache().join("prefixes");
            assert!(!prefixes.exists() || fs::read_dir(prefixes).unwrap().next().is_none(), "{error}");
        };
        none(import(&there, &[&file, store]), "is of demo model (weights ", "make one here");
        none(
            import(&there, &[&file, "--prefix-cache-size", "10kB"]),
            "the cache may take",
            "--prefix-cache-size",
        );
        none(import(&there, &["nothing"]), "nothing: cannot read", "");
        let changed = |from: &str, to: &str| {
            let at = whole.windows(from.len()).position(|bytes| bytes == from.as_bytes()).unwrap();
            [&whole[..at], to.as_bytes(), &whole[at + from.len()..]].concat()
        };
        let version = env!("CARGO_PKG_VERSION");
        let older = changed(&format!("version {version}"), &format!("version {}", "9".repeat(version.len())));
        let mut flipped = whole.clone();
        flipped[whole.len() - 30_000] ^= 1;
        let cases: [(&[u8], &str, &str); 6] = [
            (&older, "was made by version 99", "make one here"),
            (
                &changed("f16 keys and", "f32 keys and"),
                "is of other shapes than demo model has",
                "make one here",
            ),
            (
                &changed(" exact activations", " other activations"),
                "of another model or other settings",
                "copy",
            ),
            (&flipped, "is not what was written", "copy the file again"),
            (&whole[..whole.len() / 2], "is damaged", "copy the file again"),
            (b"What is line 7?", "is not a session file", "flash-moe cache export"),
        ];
        for (bytes, error, hint) in cases {
            fs::write(&file, bytes).unwrap();
            none(import(&there, &[&file]), error, hint);
        }
    }

    /// A file of the user's would be lost, or hours of reading be for nothing.
    #[test]
    fn what_cannot_be_written_is_told_first() {
        let place = Place::new();
        let text = place.text();
        let export = |more: &[&str]| place.flash_moe(&[&["cache", "export"], more].concat(), "");
        export(&["s"]).fails(2, "there is nothing to read", "");
        export(&[&text, "--file", &text]).fails(1, "it is not replaced", "");
        assert!(fs::read_to_string(&text).unwrap().starts_with("Line 0"));
        let nowhere = place.at("none/s").to_str().unwrap().to_owned();
        export(&[&nowhere, "--file", &text]).fails(1, "cannot write", "");
        let out = place.at("s").to_str().unwrap().to_owned();
        export(&[&out, "--file", &text, "--ctx", "100"]).fails(1, "the context holds 100", "raise --ctx");
        let names: Vec<_> =
            fs::read_dir(place.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!names.iter().any(|name| name.to_str().unwrap().starts_with("s")), "{names:?}");
    }
}

/// Where files are.
#[cfg(unix)]
mod servers {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::process::Child;

    use super::*;

    /// A server, and where it listens.
    struct Server {
        child: Child,
        address: String,
        stderr: BufReader<std::process::ChildStderr>,
    }

    impl Server {
        fn start(place: &Place, more: &[&str]) -> Self {
            let args = [&["serve", "--port", "0", "-v", "--temperature", "0"], more].concat();
            let mut child = command(&args).env("FLASH_MOE_CACHE", place.cache()).spawn().unwrap();
            let mut stderr = BufReader::new(child.stderr.take().unwrap());
            let mut line = String::new();
            let address = loop {
                line.clear();
                assert!(0 < stderr.read_line(&mut line).unwrap(), "the server ended");
                if let Some(rest) = line.strip_prefix("listening on http://") {
                    break rest.split_once(' ').unwrap().0.to_owned();
                }
            };
            Self { child, address, stderr }
        }

        /// The answer to a conversation: its text, tokens of the prompt, those that were cached.
        fn ask(&self, messages: &Value) -> (String, u64, u64) {
            let body = json!({ "messages": messages, "max_tokens": 24 }).to_string();
            let mut stream = TcpStream::connect(&self.address).unwrap();
            write!(
                stream,
                "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                self.address,
                body.len()
            )
            .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            let json = &answer[answer.find('{').unwrap()..=answer.rfind('}').unwrap()];
            let answer: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {answer}"));
            let usage = &answer["usage"];
            let n_cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
            (
                answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned(),
                usage["prompt_tokens"].as_u64().unwrap(),
                n_cached.unwrap_or_else(|| panic!("{answer}")),
            )
        }

        /// Ends it as a service manager does; what it said meanwhile.
        fn stop(mut self) -> String {
            let pid = rustix::process::Pid::from_child(&self.child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            let mut said = String::new();
            self.stderr.read_to_string(&mut said).unwrap();
            assert!(self.child.wait().unwrap().success(), "{said}");
            said
        }
    }

    /// A conversation that grows by an answer and a question.
    fn grown(messages: &Value, answer: &str, question: &str) -> Value {
        let mut messages = messages.clone();
        let list = messages.as_array_mut().unwrap();
        list.push(json!({ "role": "assistant", "content": answer }));
        list.push(json!({ "role": "user", "content": question }));
        messages
    }

    fn conversation(place: &Place) -> Value {
        let text = fs::read_to_string(place.text()).unwrap();
        json!([{ "role": "system", "content": text }, { "role": "user", "content": "Line 7?" }])
    }

    #[track_caller]
    fn is_cached((_, n_prompt, n_cached): &(String, u64, u64)) {
        assert!(n_prompt - 100 < *n_cached && n_cached < n_prompt, "{n_cached} of {n_prompt}");
    }

    /// A restart would lose the cache, or change answers.
    #[test]
    fn a_server_goes_on_after_a_restart() {
        let place = Place::new();
        let first = conversation(&place);
        let server = Server::start(&place, &[]);
        let answer = server.ask(&first);
        assert_eq!(answer.2, 0);
        let second = grown(&first, &answer.0, "And 8?");
        let without = server.ask(&second);
        is_cached(&without);
        server.stop();
        let server = Server::start(&place, &[]);
        let with = server.ask(&second);
        is_cached(&with);
        assert_eq!(with.0, without.0);
        let said = server.stop();
        assert!(said.contains(" from the cache (disk), "), "{said}");
        let server = Server::start(&place, &["--no-prefix-cache"]);
        let cold = server.ask(&second);
        assert_eq!((cold.0.as_str(), cold.2), (with.0.as_str(), 0));
        assert!(server.stop().contains("the prefix cache is off"));
    }

    /// Two servers on one folder would lose each other's checkpoints, or stop each other.
    #[test]
    fn two_servers_share_a_folder() {
        let place = Place::new();
        let (one, other) = (Server::start(&place, &[]), Server::start(&place, &[]));
        let messages = conversation(&place);
        let (answer, ..) = one.ask(&messages);
        assert_eq!(other.ask(&messages).0, answer);
        let grown_by_one = one.ask(&grown(&messages, &answer, "And 8?"));
        let grown_by_other = other.ask(&grown(&messages, &answer, "And 9?"));
        is_cached(&grown_by_one);
        is_cached(&grown_by_other);
        one.stop();
        other.stop();
        let third = Server::start(&place, &[]);
        is_cached(&third.ask(&grown(&messages, &answer, "And 9?")));
        third.stop();
    }
}
