//! Any bytes as a checkpoint's configuration: refused, or its weights are read without harm.
#![no_main]

mod folder;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| folder::open_with("config.json", data));
