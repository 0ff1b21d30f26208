//! Which experts earlier runs used most: read at the start to warm the slots, written rarely.

use std::time::{Duration, Instant};

use crate::device::Device;
use model::Engine;
use stream::Heat;

use crate::cachedir::CacheDir;
use crate::hint;

/// Between two writes while the program runs.
const INTERVAL: Duration = Duration::from_secs(600);

/// The file of one model.
pub(crate) struct HeatFile {
    cache: CacheDir,
    name: String,
    saved: Instant,
}

/// The heats that earlier runs of a model left.
pub(crate) fn read(cache: &CacheDir, fingerprint: u64) -> Option<Heat> {
    let name = file_name(fingerprint);
    let heat = Heat::decode(&cache.read(&name)?, fingerprint);
    if heat.is_none() {
        cache.ignore(&name, "it is damaged, or of another version");
    }
    heat
}

impl HeatFile {
    /// Starts reading what was hot, in the background.
    pub(crate) fn warm(cache: CacheDir, engine: &mut Engine<Device>) -> Self {
        if let Some(heat) = read(&cache, engine.fingerprint())
            && let Err(error) = engine.warm(&heat)
        {
            // Warming is no promise: whoever needs an expert will see the error again.
            hint::print(&error.into());
        }
        Self { name: file_name(engine.fingerprint()), cache, saved: Instant::now() }
    }

    /// Writes the heats, unless that was done lately.
    pub(crate) fn save_rarely(&mut self, engine: &Engine<Device>) {
        if INTERVAL <= self.saved.elapsed() {
            self.save(engine);
        }
    }

    /// Writes the heats.
    pub(crate) fn save(&mut self, engine: &Engine<Device>) {
        self.cache.write(&self.name, &engine.heat().encode(engine.fingerprint()));
        self.saved = Instant::now();
    }
}

fn file_name(fingerprint: u64) -> String {
    format!("heat/{fingerprint:016x}.heat")
}
