//! Ctrl-C ends the answer, not the program; a second one, or one while nothing is being generated, ends it.
//!
//! At the prompt of a chat keys are read one by one, and Ctrl-C is a key like others: see `chat/lines.rs`.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::output;

/// What a signal would mean now.
static STATE: AtomicU8 = AtomicU8::new(IDLE);
const IDLE: u8 = 0;
const ANSWERING: u8 = 1;
const INTERRUPTED: u8 = 2;

/// What shells report for a program that SIGINT ended.
pub(crate) const EXIT_CODE: u8 = 130;

/// When an answer was last interrupted.
static LAST: Mutex<Option<Instant>> = Mutex::new(None);

/// Two signals in this time mean: leave.
const TWICE: Duration = Duration::from_secs(1);

static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// From now on signals are ours.
pub(crate) fn install() -> anyhow::Result<()> {
    if IS_INSTALLED.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    ctrlc::set_handler(|| {
        let first = STATE.compare_exchange(ANSWERING, INTERRUPTED, Ordering::SeqCst, Ordering::SeqCst);
        if first.is_ok() {
            *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        } else {
            output::leave();
            for path in temporaries().drain(..) {
                let _ = fs::remove_file(path);
            }
            std::process::exit(EXIT_CODE.into());
        }
    })?;
    Ok(())
}

/// Was an answer interrupted just now? It may be over when the second Ctrl-C comes.
pub(crate) fn was_just_now() -> bool {
    let last = *LAST.lock().unwrap_or_else(PoisonError::into_inner);
    last.is_some_and(|last| last.elapsed() < TWICE)
}

/// Files to remove when a signal ends the program.
static TEMPORARIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn temporaries() -> MutexGuard<'static, Vec<PathBuf>> {
    TEMPORARIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that does not outlive this, nor a program that a signal ends.
#[derive(Debug)]
pub(crate) struct Temporary(PathBuf);

impl Temporary {
    /// Takes over a file that exists.
    pub(crate) fn new(path: PathBuf) -> Self {
        temporaries().push(path.clone());
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        temporaries().retain(|path| *path != self.0);
        // If it cannot be removed there is nothing else to try.
        let _ = fs::remove_file(&self.0);
    }
}

/// While this lives, a signal asks for the end of the answer.
pub(crate) struct Answering(());

impl Answering {
    pub(crate) fn begin() -> Self {
        STATE.store(ANSWERING, Ordering::SeqCst);
        Self(())
    }

    /// `Break` when the end was asked for.
    pub(crate) fn flow(&self) -> ControlFlow<()> {
        if STATE.load(Ordering::SeqCst) == INTERRUPTED {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        STATE.store(IDLE, Ordering::SeqCst);
    }
}
