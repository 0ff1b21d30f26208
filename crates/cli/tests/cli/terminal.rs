//! The program on a pseudo terminal, as a user sees and types.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Something is wrong if nothing comes for so long.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// A program and what it has written.
pub(crate) struct Terminal {
    child: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    /// Not looked at yet.
    text: String,
    /// All.
    pub(crate) all: String,
}

impl Terminal {
    /// Starts `command` on a screen of 24 rows.
    pub(crate) fn start(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let stdio = || Stdio::from(slave.try_clone().unwrap());
        command.stdin(stdio()).stdout(stdio()).stderr(stdio()).env("TERM", "xterm-256color");
        let child = command.spawn().unwrap();
        let keys = File::from(master);
        let mut screen = keys.try_clone().unwrap();
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = screen.read(&mut bytes) {
                if sender.send(bytes[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keys, output, text: String::new(), all: String::new() }
    }

    /// Types.
    pub(crate) fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until one of `texts` comes, and returns what came up to there and which it was.
    #[track_caller]
    pub(crate) fn wait_for_any(&mut self, texts: &[&str]) -> (String, usize) {
        loop {
            let found = texts.iter().enumerate().filter_map(|(idx, text)| Some((self.text.find(text)?, idx)));
            if let Some((at, idx)) = found.min() {
                let rest = self.text.split_off(at + texts[idx].len());
                return (std::mem::replace(&mut self.text, rest), idx);
            }
            match self.output.recv_timeout(SILENCE_MAX) {
                Ok(bytes) => {
                    let more = String::from_utf8_lossy(&bytes);
                    self.text.push_str(&more);
                    self.all.push_str(&more);
                }
                Err(why) => panic!("{texts:?} does not come ({why}): {:?}", self.all),
            }
        }
    }

    /// Waits until `text` comes.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        self.wait_for_any(&[text]).0
    }

    /// As the key Ctrl-C does while no line is edited.
    pub(crate) fn interrupt(&self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // After a failure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
