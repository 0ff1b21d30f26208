// The gated norm, in place: out = out / sqrt(mean(out²) + eps) ⊙ norm ⊙ silu(z). Eight heads of tokens a workgroup, a
// subgroup one at a time. Heads of `out` lie in an order of their own.
// Needs `activations.wgsl` and `delta_out.wgsl` before it.

const N_THREAD: u32 = 256u;
const N_ROW: u32 = 8u;

struct Params {
    dv: u32,
    eps: f32,
    first: u32, // row
    n_row: u32,
    n_head_v: u32,
    n_tile: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> z: array<f32>; // [_, dv]
@group(0) @binding(1) var<storage, read> norm: array<f32>; // [dv]
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [_, dv]

@compute @workgroup_size(N_THREAD)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) n_group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) n_lane: u32,
) {
    let first = (group.y * n_group.x + group.x) * N_ROW;
    for (var i = thread / n_lane; i < N_ROW; i += N_THREAD / n_lane) {
        // As many for all threads.
        let row = p.first + min(first + i, p.n_row - 1u);
        let start = row * p.dv;
        let head = row % p.n_head_v;
        let out_at = (row - head + out_head(head, p.n_head_v, p.n_tile)) * p.dv;
        var square = 0.0;
        for (var c = lane; c < p.dv; c += n_lane) {
            let value = out[out_at + c];
            square = fma(value, value, square);
        }
        let scale = inverseSqrt(subgroupAdd(square) / f32(p.dv) + p.eps);
        for (var c = lane; c < p.dv && first + i < p.n_row; c += n_lane) {
            out[out_at + c] = out[out_at + c] * (scale * norm[c]) * silu(z[start + c]);
        }
    }
}
