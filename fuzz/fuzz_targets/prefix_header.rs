//! Any bytes as the beginning of a file of the prefix cache: refused, or a header that is the same bytes again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prefix::Key;
use prefix::disk::Header;
use xxhash_rust::xxh3::xxh3_64;

/// The shortest header, without its checksum.
const BODY_BYTES: usize = 16384 - 8;

fuzz_target!(|input: (u64, &[u8])| {
    let (file_bytes, data) = input;
    check(data, file_bytes);
    // With the right version, key and checksum, and in a file as long as it says: else the fuzzer would never get past
    // them.
    let mut body = data.to_vec();
    body.resize(BODY_BYTES, 0);
    body[..12].copy_from_slice(b"FMPREFIX\x01\0\0\0");
    let n_ids = 1 + u32_at(&body, 72) % 100;
    let n_blocks = u32_at(&body, 76) % 100;
    body[72..76].copy_from_slice(&n_ids.to_le_bytes());
    body[76..80].copy_from_slice(&n_blocks.to_le_bytes());
    let table = 80 + 4 * n_ids as usize;
    let ids: Vec<u32> = (80..table).step_by(4).map(|at| u32_at(&body, at)).collect();
    let parent = Key::from_bytes(body[48..64].try_into().expect("16 bytes"));
    body[32..48].copy_from_slice(&parent.child(&ids).to_bytes());
    let blocks = (0..n_blocks as usize).map(|i| u64::from(u32_at(&body, table + 16 * i)));
    let file_bytes = BODY_BYTES as u64 + 8 + blocks.map(|bytes| bytes.next_multiple_of(16384)).sum::<u64>();
    let checksum = xxh3_64(&body).to_le_bytes();
    body.extend(checksum);
    check(&body, file_bytes);
});

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn check(bytes: &[u8], file_bytes: u64) {
    let Ok(header) = Header::decode(bytes, file_bytes) else { return };
    let again = header.encode();
    assert_eq!(again, bytes[..again.len()]);
    assert_eq!(header.file_bytes(), file_bytes);
    assert!(header.payload_bytes() <= file_bytes);
}
