//! Ctrl-C ends the answer, not the program; a second one, or one while nothing is being generated, ends it.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU8, Ordering};

/// What a signal would mean now.
static STATE: AtomicU8 = AtomicU8::new(IDLE);
const IDLE: u8 = 0;
const ANSWERING: u8 = 1;
const INTERRUPTED: u8 = 2;

/// What shells report for a program that SIGINT ended.
pub(crate) const EXIT_CODE: u8 = 130;

/// From now on signals are ours.
pub(crate) fn install() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        let first = STATE.compare_exchange(ANSWERING, INTERRUPTED, Ordering::SeqCst, Ordering::SeqCst);
        if first.is_err() {
            std::process::exit(EXIT_CODE.into());
        }
    })?;
    Ok(())
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
