//! Any bytes as a GGUF file.
#![no_main]

mod folder;

use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    let path = FILE.get_or_init(|| folder::make("config.json").join("model.gguf"));
    std::fs::write(path, data).expect("memory is there");
    folder::read_all(path);
});
