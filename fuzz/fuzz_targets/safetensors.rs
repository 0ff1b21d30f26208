//! Any bytes as a weight file, and as the header of one that is long enough.
#![no_main]

mod folder;

use libfuzzer_sys::fuzz_target;

/// What the weights of the checkpoint take.
const DATA_BYTES: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    folder::open_with("model.safetensors", data);
    let mut framed = (data.len() as u64).to_le_bytes().to_vec();
    framed.extend_from_slice(data);
    framed.resize(framed.len() + DATA_BYTES, 0);
    folder::open_with("model.safetensors", &framed);
});
