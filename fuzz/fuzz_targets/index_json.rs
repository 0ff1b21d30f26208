//! Any bytes as the list of weight files.
#![no_main]

mod folder;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| folder::open_with("model.safetensors.index.json", data));
