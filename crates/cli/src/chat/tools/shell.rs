//! A command of the shell, with bounds. Whether it may run at all is asked elsewhere, each time.

use std::io::Read;
use std::ops::ControlFlow;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// What is longer is killed.
const TIME_MAX: Duration = Duration::from_secs(60);
/// What is printed beyond is left out.
const OUTPUT_BYTES_MAX: usize = 16 << 10;
/// How often the command is looked at.
const POLL: Duration = Duration::from_millis(20);
/// For output that is still in the pipe when the command has ended. What it left running may keep the pipe open.
const DRAIN: Duration = Duration::from_millis(500);

pub(super) fn declaration() -> Value {
    let shell = if cfg!(windows) { "cmd.exe" } else { "sh" };
    json!({ "type": "function", "function": {
        "name": "shell",
        "description": format!("Runs a command with {shell} on the user's computer, if the user allows it, and tells \
                                what it prints. It gets no input and has {} seconds.", TIME_MAX.as_secs()),
        "parameters": {
            "type": "object",
            "properties": { "command": { "type": "string", "description": "The command" } },
            "required": ["command"]
        }
    } })
}

/// What the user is asked about must be what runs: nothing in it may hide from the eye.
pub(super) fn check(command: &str) -> Result<(), String> {
    let hides = |c: char| {
        let is_invisible = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
        is_invisible || (c.is_control() && c != '\n' && c != '\t')
    };
    if command.trim().is_empty() {
        return Err("the command is empty".into());
    }
    if command.contains(hides) {
        Err("the command contains characters that cannot be seen".into())
    } else {
        Ok(())
    }
}

/// Runs it; `Break` from `flow` kills it.
pub(super) fn run(command: &str, flow: &dyn Fn() -> ControlFlow<()>) -> String {
    run_within(command, TIME_MAX, flow)
}

fn run_within(command: &str, time_max: Duration, flow: &dyn Fn() -> ControlFlow<()>) -> String {
    let mut child = match start(command) {
        Ok(child) => child,
        Err(error) => return format!("error: the shell cannot be started: {error}"),
    };
    let output = Arc::new(Mutex::new(Output::default()));
    let (done, is_done) = mpsc::channel();
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as _),
        child.stderr.take().map(|pipe| Box::new(pipe) as _),
    ];
    for pipe in pipes.into_iter().flatten() {
        let (output, done) = (Arc::clone(&output), done.clone());
        std::thread::spawn(move || {
            collect(pipe, &output);
            // Nobody may wait any more.
            let _ = done.send(());
        });
    }
    drop(done);
    let end = wait(&mut child, time_max, flow);
    let deadline = Instant::now() + DRAIN;
    while is_done.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok() {}
    let output = output.lock().unwrap_or_else(PoisonError::into_inner);
    output.tell(&end)
}

fn start(command: &str) -> std::io::Result<Child> {
    let mut shell = if cfg!(windows) { Command::new("cmd.exe") } else { Command::new("/bin/sh") };
    shell.arg(if cfg!(windows) { "/C" } else { "-c" }).arg(command);
    // What it starts is killed with it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut shell, 0);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// The first bytes that came, and how many more.
#[derive(Default)]
struct Output {
    kept: Vec<u8>,
    n_left_out: usize,
}

impl Output {
    fn tell(&self, end: &str) -> String {
        let mut text = String::from_utf8_lossy(&self.kept).into_owned();
        if 0 < self.n_left_out {
            text.push_str(&format!("\n[{} more bytes left out]", self.n_left_out));
        }
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text + end
    }
}

fn collect(mut pipe: Box<dyn Read + Send>, output: &Mutex<Output>) {
    let mut bytes = [0; 4096];
    // A pipe that cannot be read has ended.
    while let Ok(n @ 1..) = pipe.read(&mut bytes) {
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        let n_kept = n.min(OUTPUT_BYTES_MAX - output.kept.len());
        output.kept.extend_from_slice(&bytes[..n_kept]);
        output.n_left_out += n - n_kept;
    }
}

/// How it ended.
fn wait(child: &mut Child, time_max: Duration, flow: &dyn Fn() -> ControlFlow<()>) -> String {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return ended(status),
            Ok(None) if flow().is_break() => {
                kill(child);
                return "[stopped by the user]".into();
            }
            Ok(None) if time_max < start.elapsed() => {
                kill(child);
                return format!("[killed after {} seconds]", time_max.as_secs_f32());
            }
            Ok(None) => std::thread::sleep(POLL),
            Err(error) => return format!("[error: {error}]"),
        }
    }
}

fn ended(status: ExitStatus) -> String {
    status.code().map_or_else(|| format!("[{status}]"), |code| format!("[exit code {code}]"))
}

/// The command and, where the system has groups of processes, what it started.
fn kill(child: &mut Child) {
    #[cfg(unix)]
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    const GO: &dyn Fn() -> ControlFlow<()> = &|| ControlFlow::Continue(());

    /// The model would not see what a command printed or how it ended, or a command could fill its context.
    #[test]
    fn output_and_end_are_told() {
        assert_eq!(run("printf hello", GO), "hello\n[exit code 0]");
        assert_eq!(run("echo oops >&2; exit 3", GO), "oops\n[exit code 3]");
        assert_eq!(run("cat", GO), "[exit code 0]");
        let long = run("head -c 100000 /dev/zero | tr '\\0' x", GO);
        let expected =
            format!("{}\n[{} more bytes left out]\n[exit code 0]", "x".repeat(16384), 100_000 - 16384);
        assert_eq!(long, expected);
    }

    /// A command that does not end would hold the chat up for ever.
    #[test]
    fn a_command_is_stopped() {
        let stopped = run_within("echo begun; sleep 600", Duration::from_millis(200), GO);
        assert_eq!(stopped, "begun\n[killed after 0.2 seconds]");
        assert_eq!(run("sleep 600", &|| ControlFlow::Break(())), "[stopped by the user]");
        // What it leaves running may keep the pipe open.
        let left = run("sleep 600 & echo $!", GO);
        let (pid, end) = left.split_once('\n').unwrap();
        assert_eq!(end, "[exit code 0]");
        assert_eq!(run(&format!("kill {pid}"), GO), "[exit code 0]");
    }

    /// What a killed command had started would go on running.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_command_is_stopped_with_all_it_started() {
        let told = run_within("sleep 600 & echo $!; wait", Duration::from_millis(200), GO);
        let (pid, end) = told.split_once('\n').unwrap();
        assert_eq!(end, "[killed after 0.2 seconds]");
        let is_running = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
        };
        let start = Instant::now();
        while is_running() {
            assert!(start.elapsed() < Duration::from_secs(30), "{pid} is still running");
            std::thread::yield_now();
        }
    }

    /// The user would say yes to something else than what is shown.
    #[test]
    fn a_command_cannot_hide() {
        let hidden =
            ["ls\x1b[2Krm x", "ls\rrm", "ls \u{202e}mr", "a\u{200b}b", "ls \u{9b}2K", " \n", "a\u{e0041}"];
        assert!(hidden.iter().all(|command| check(command).is_err()));
        assert!(
            ["ls -l", "for i in 1 2; do\n\techo $i é\ndone"].iter().all(|command| check(command).is_ok())
        );
    }
}
