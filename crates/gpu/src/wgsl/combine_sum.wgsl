// What the experts add to the residual stream: x[t] += Σ_j weights[t·k + j] · routed[t·k + j]
// (+ sigmoid(shared_gate[t]) · routed[n_token·k + t]), j ascending, then the shared expert, in one sum.
// Needs `activations.wgsl` before it.

struct Params {
    n_token: u32,
    k: u32,
    d: u32,
    // Weight (t, j) is word `weight_at + (t·k + j) · weight_stride`.
    weight_at: u32,
    weight_stride: u32,
    has_shared: u32,
    eps: f32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> control: array<u32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>; // [n_token, d]
@group(0) @binding(2) var<storage, read> routed: array<f32>; // [n_token · (k or k + 1), d]
@group(0) @binding(3) var<storage, read> weights: array<u32>; // bits of f32
@group(0) @binding(4) var<storage, read> shared_gate: array<f32>; // [n_token], or anything of that size

// Where an expert's numbers start, and their weight.
struct Part {
    at: u32,
    weight: f32,
}

// How many experts are summed up.
fn n_part() -> u32 {
    return p.k + p.has_shared;
}

// Number j of token t; the shared one is number k.
fn part(t: u32, j: u32) -> Part {
    let pair = t * p.k + j;
    let own = bitcast<f32>(weights[p.weight_at + (t * p.k + min(j, max(p.k, 1u) - 1u)) * p.weight_stride]);
    let gate = sigmoid(shared_gate[t]);
    return Part(select(p.n_token * p.k + t, pair, j < p.k) * p.d, select(gate, own, j < p.k));
}
