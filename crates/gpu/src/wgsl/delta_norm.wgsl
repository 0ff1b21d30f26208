// The gated norm, in place: out = out / sqrt(mean(out²) + eps) ⊙ norm ⊙ silu(z). A workgroup a head of a token.
// Needs `reduce.wgsl` and `activations.wgsl` before it.

struct Params {
    dv: u32,
    eps: f32,
    first: u32, // row
    n_row: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> z: array<f32>; // [_, dv]
@group(0) @binding(1) var<storage, read> norm: array<f32>; // [dv]
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [_, dv]

const N_THREAD: u32 = 256u;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) n_group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) n_lane: u32,
) {
    let row = group.y * n_group.x + group.x;
    if row >= p.n_row {
        return;
    }
    let start = (p.first + row) * p.dv;
    var sum = 0.0;
    for (var i = thread; i < p.dv; i += 256u) {
        let value = out[start + i];
        sum = fma(value, value, sum);
    }
    let mean = workgroup_sum(sum, thread, lane, n_lane) / f32(p.dv);
    let scale = inverseSqrt(mean + p.eps);
    for (var i = thread; i < p.dv; i += 256u) {
        out[start + i] = out[start + i] * (scale * norm[i]) * silu(z[start + i]);
    }
}
