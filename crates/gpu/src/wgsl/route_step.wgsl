// The choice of one token, and where its experts lie, for the kernels that follow. Where an expert is missing or a
// logit is not finite, the control word becomes the layer's number plus 1, and nothing that follows counts.
// Needs `route.wgsl` before it.

const MISSING: u32 = 0xffffffffu;

struct Params {
    n_expert: u32,
    k: u32,
    renormalise: u32,
    // Word of `args` from which on the experts to take are, or 0xffffffff.
    forced_at: u32,
    layer: u32,
    // Word of `table` of the layer's expert 0.
    table_at: u32,
    // Words that the results start at.
    pairs_at: u32,
    chosen_at: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> logits: array<f32>; // [n_expert]
@group(0) @binding(1) var<storage, read> args: array<u32>;
@group(0) @binding(2) var<storage, read> table: array<u32>; // where the experts' records are, or `MISSING`
@group(0) @binding(3) var<storage, read_write> control: array<u32>;
// [k] of record, row of the input (0), row of the output (j), bits of the weight.
@group(0) @binding(4) var<storage, read_write> pairs: array<u32>;
@group(0) @binding(5) var<storage, read_write> chosen: array<u32>; // [k]

var<workgroup> records: array<u32, N_EXPERT_MAX>;

fn logit(expert: u32) -> f32 {
    return logits[expert];
}

fn take_note(expert: u32) {
    records[expert] = table[p.table_at + expert];
}

fn forced(j: u32) -> u32 {
    return args[p.forced_at + j];
}

@compute @workgroup_size(N_THREAD)
fn main(
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) n_lane: u32,
) {
    // On its way while the experts are chosen. Nobody writes it before all have read it.
    let is_stopped = control[0] != 0u;
    let is_forced = p.forced_at != 0xffffffffu;
    let choice = choose_row(p.n_expert, p.k, p.renormalise != 0u, is_forced, thread, lane, n_lane);
    if is_stopped {
        return;
    }
    for (var j = thread; j < p.k; j += N_THREAD) {
        let expert = chosen_experts[j];
        let record_at = records[expert];
        let pair = p.pairs_at + 4u * j;
        pairs[pair] = record_at;
        pairs[pair + 1u] = 0u;
        pairs[pair + 2u] = j;
        pairs[pair + 3u] = bitcast<u32>(weight_of(choice, j));
        chosen[p.chosen_at + j] = expert;
        // Whoever writes it writes the same.
        if record_at == MISSING || !choice.is_finite {
            control[0] = p.layer + 1u;
        }
    }
}
