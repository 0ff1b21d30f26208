//! Any bytes as a routing trace: refused, or all of its experts can be looked up and fit a model of its shape.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use stream::RoutingTrace;

/// Bytes of the header, and of a number.
const HEADER: usize = 12;
const NUMBER: usize = 4;

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (n_layer, n_expert_used, data) = input;
    // As it comes, and under a header that fits: else the fuzzer would hardly find one.
    let token_bytes = NUMBER * usize::from(n_layer) * usize::from(n_expert_used);
    let n_token = data.len().checked_div(token_bytes).unwrap_or(0);
    let shape = [n_token as i32, i32::from(n_layer), i32::from(n_expert_used)];
    let header = shape.map(i32::to_le_bytes).concat();
    let framed = [&header, &data[..n_token * token_bytes]].concat();
    for bytes in [data, &framed] {
        let Ok(trace) = RoutingTrace::parse(bytes, Path::new("trace")) else { continue };
        let mut at = bytes[HEADER..].chunks_exact(NUMBER);
        for token in 0..trace.n_token() {
            for layer in 0..trace.n_layer {
                for expert in trace.at(token, layer) {
                    assert_eq!(at.next(), Some(&expert.to_le_bytes()[..]));
                }
            }
        }
        assert_eq!(at.next(), None);
        let n_expert = trace.experts.iter().max().map_or(0, |&expert| expert as usize + 1);
        assert!(trace.check(trace.n_layer, n_expert, trace.n_expert_used).is_ok());
        assert!(trace.check(trace.n_layer, n_expert - 1, trace.n_expert_used).is_err());
    }
});
