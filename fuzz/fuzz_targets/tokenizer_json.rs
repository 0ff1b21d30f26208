//! Any bytes as a tokenizer: refused, or it encodes and decodes any text.
#![no_main]

use generate::Tokenizer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(tokenizer) = Tokenizer::from_bytes(data, None) else { return };
    if let Ok(ids) = tokenizer.encode("Wie heißt du? 12 <|im_start|>\u{301}\n") {
        tokenizer.decode(&ids, false);
    }
    tokenizer.decode(&[0, 1, u32::MAX], true);
});
