//! What went wrong with a device: told once, kept for good.
//!
//! A device that has failed gets no more work, and whoever reads from it gets zeros. Nobody waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use wgpu::{Device, Error, PollError, PollStatus};

/// The first thing that went wrong, if anything did.
#[derive(Clone, Default)]
pub(crate) struct Failure(Arc<OnceLock<String>>);

impl Failure {
    /// Hears from now on what the driver says of `device`.
    pub(crate) fn watch(device: &Device) -> Self {
        let failure = Self::default();
        let (errors, lost) = (failure.clone(), failure.clone());
        device.on_uncaptured_error(Arc::new(move |error| errors.note(in_words(&error))));
        device.set_device_lost_callback(move |reason, message| {
            lost.note(format!("the device was lost ({reason:?}) {message}").trim_end().to_owned());
        });
        failure
    }

    pub(crate) fn note(&self, what: String) {
        // Later ones follow from the first.
        let _ = self.0.set(what);
    }

    pub(crate) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

fn in_words(error: &Error) -> String {
    match error {
        Error::OutOfMemory { .. } => "its memory is exhausted".to_owned(),
        Error::Validation { description, .. } | Error::Internal { description, .. } => description.clone(),
    }
}

/// What went wrong with waiting for the device. wgpu panics where a driver reports that.
pub(crate) fn wait(poll: impl FnOnce() -> Result<PollStatus, PollError>) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(poll)) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(PollError::Timeout)) => Err("it does not answer any more".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Err(text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("its driver failed").to_owned())
        }
    }
}
