//! Any bytes as a heat file: refused, or the same bytes come of it again and its shares are shares.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stream::Heat;
use xxhash_rust::xxh3::xxh3_64;

fuzz_target!(|input: (u64, &[u8])| {
    let (fingerprint, data) = input;
    // As it comes, as a body whose checksum is right, and as values under the right header: else the fuzzer would
    // never get past them.
    let n_record = (data.len() / 4) as u64;
    let header = [*b"FMHEAT01", fingerprint.to_le_bytes(), n_record.to_le_bytes()].concat();
    let sealed = |body: &[u8]| [body, &xxh3_64(body).to_le_bytes()].concat();
    let whole = sealed(&[&header, &data[..4 * (data.len() / 4)]].concat());
    for bytes in [data, &sealed(data), &whole] {
        let Some(heat) = Heat::decode(bytes, fingerprint) else { continue };
        assert_eq!(heat.encode(fingerprint), bytes);
        assert!(Heat::decode(bytes, !fingerprint).is_none());
        for n in [0, 1, data.len()] {
            assert!(heat.hottest_share(n).is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
    }
});
