//! Any bytes as a manifest: refused, or accepted and then safe to compute sizes from.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use store::{ExpertLayer, Manifest};
use xxhash_rust::xxh3::xxh3_64;

fuzz_target!(|data: &[u8]| {
    let data = data.trim_ascii();
    let path = Path::new("manifest.json");
    // As it comes, and as a body whose checksum is right: else the fuzzer would never get past it.
    let envelope =
        format!(r#"{{"format":"flash-moe-store","version":1,"xxh3":"{:016x}","body":"#, xxh3_64(data));
    let wrapped = [envelope.as_bytes(), data, b"}"].concat();
    for bytes in [data, &wrapped] {
        let Ok((manifest, _)) = Manifest::parse(bytes, path) else { continue };
        for tensor in &manifest.dense {
            assert_eq!(tensor.offset % 64, 0);
            assert!(tensor.offset.checked_add(tensor.bytes()).is_some());
        }
        for layer in &manifest.experts {
            let stride = ExpertLayer::stride_bytes(&layer.formats, &manifest.config);
            let file_bytes = (stride as u64).checked_mul(manifest.config.n_expert as u64);
            assert!(file_bytes.is_some_and(|bytes| i64::try_from(bytes).is_ok()));
        }
    }
});
