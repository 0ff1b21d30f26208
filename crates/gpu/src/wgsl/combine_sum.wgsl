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
@group(0) @binding(4) var<storage, read> shared_gate: array<f32>; // [n_token]

// What number i of token t becomes.
fn combined(t: u32, i: u32) -> f32 {
    var sum = 0.0;
    for (var j = 0u; j < p.k; j++) {
        let pair = t * p.k + j;
        let weight = bitcast<f32>(weights[p.weight_at + pair * p.weight_stride]);
        sum = fma(weight, routed[pair * p.d + i], sum);
    }
    if p.has_shared != 0u {
        sum = fma(sigmoid(shared_gate[t]), routed[(p.n_token * p.k + t) * p.d + i], sum);
    }
    return x[t * p.d + i] + sum;
}
