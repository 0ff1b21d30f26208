//! What other cache sizes and policies would have made of the routing of a run.

use stream::RoutingTrace;

use super::plot::HitCurve;

/// Cache sizes that are tried: enough for a smooth line.
const N_SIZE: usize = 24;

/// Counts the misses of a trace with so many slots, those of the first tokens not counted.
type Misses<'a> = &'a dyn Fn(&RoutingTrace, usize, usize) -> u64;

/// Tokens of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) n_repeat: usize,
    /// Of a repetition.
    pub(super) n_prompt: usize,
    /// Decoded, warmup included.
    pub(super) n_decode: usize,
}

/// Hit rates of decode with the program's own policy, the plainest one, and the best that anyone could have. The first
/// prompt fills the cache; the tokens decoded after each prompt count.
///
/// `n_expert` are those of a layer, `slot_bytes` what each takes, `run` the slots and the hit rate of the run.
pub(super) fn curve(
    trace: &RoutingTrace,
    shape: Shape,
    n_expert: usize,
    slot_bytes: f64,
    run: (usize, Option<f64>),
) -> HitCurve {
    let own = |trace: &RoutingTrace, n_slot, n_skip| stream::policy_misses(trace, n_expert, n_slot, n_skip);
    let policies: [(&str, Misses<'_>); 3] = [
        ("this program's policy", &own),
        ("least recently used", &stream::lru_misses),
        ("best possible (Belady)", &stream::belady_misses),
    ];
    let decoded = decoded(trace, shape);
    let n_slot = sizes(trace.n_expert_used.max(2), trace.n_layer * n_expert);
    let rates = |misses| rates(&decoded, shape.n_prompt, &n_slot, misses);
    let policies = policies.map(|(name, misses)| (name, rates(misses))).into();
    HitCurve { n_slot, policies, slot_bytes, run }
}

/// A rate for each size.
fn rates(decoded: &RoutingTrace, n_prompt: usize, n_slot: &[usize], misses: Misses<'_>) -> Vec<f64> {
    let n_request = (decoded.n_token() - n_prompt) * decoded.n_layer * decoded.n_expert_used;
    let rate = |n_miss: u64| 1.0 - n_miss as f64 / n_request.max(1) as f64;
    n_slot.iter().map(|&n_slot| rate(misses(decoded, n_slot, n_prompt))).collect()
}

/// The first prompt, then what was decoded in all repetitions.
fn decoded(trace: &RoutingTrace, shape: Shape) -> RoutingTrace {
    let row = trace.n_layer * trace.n_expert_used;
    let (prompt, all) = (shape.n_prompt * row, (shape.n_prompt + shape.n_decode) * row);
    let mut experts = trace.experts[..prompt].to_vec();
    let repetitions = trace.experts.chunks_exact(all).take(shape.n_repeat);
    repetitions.for_each(|repetition| experts.extend_from_slice(&repetition[prompt..]));
    RoutingTrace { experts, ..*trace }
}

/// From `min` to `max`, closer together where there are few: the curve is steep there.
fn sizes(min: usize, max: usize) -> Vec<usize> {
    let span = max.saturating_sub(min);
    let mut sizes: Vec<usize> = (0..N_SIZE).map(|i| min + span * i * i / (N_SIZE - 1).pow(2)).collect();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prompts would count as decoded tokens, or a rate would be of another number of requests.
    #[test]
    fn only_decoded_tokens_count() {
        // One layer, one expert a token: the expert is the number of the token. Two repetitions of 3 + 2 tokens,
        // and a rest that was recorded but not used.
        let trace = RoutingTrace { n_layer: 1, n_expert_used: 1, experts: (0..16).collect() };
        let shape = Shape { n_repeat: 2, n_prompt: 3, n_decode: 2 };
        assert_eq!(decoded(&trace, shape).experts, [0, 1, 2, 3, 4, 8, 9]);
        let one_hit = |trace: &RoutingTrace, _, n_skip| (trace.n_token() - n_skip - 1) as u64;
        assert_eq!(rates(&decoded(&trace, shape), shape.n_prompt, &[5, 6], &one_hit), [0.25; 2]);
    }

    /// The curve would not reach the end, or go back.
    #[test]
    fn sizes_rise_from_end_to_end() {
        for (min, max) in [(8, 30_720), (2, 3), (2, 2), (8, 5)] {
            let sizes = sizes(min, max);
            assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
            assert_eq!((sizes[0], *sizes.last().unwrap()), (min, max.max(min)));
        }
    }
}
