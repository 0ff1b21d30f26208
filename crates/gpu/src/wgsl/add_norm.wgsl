// x[t] += y[t], then h[t] = x[t] / sqrt(mean(x[t]²) + eps) ⊙ weight: a workgroup a row. The sums are those of
// `add.wgsl` and `rms_norm.wgsl`, so the bits are too.
// Needs `reduce.wgsl` before it.

struct Params {
    d: u32,
    eps: f32,
    n_row: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> control: array<u32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>; // [n_row, d]
@group(0) @binding(2) var<storage, read> y: array<f32>; // [n_row, d]
@group(0) @binding(3) var<storage, read> weight: array<f32>; // [d]
@group(0) @binding(4) var<storage, read_write> h: array<f32>; // [n_row, d]

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) n_group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) n_lane: u32,
) {
    let row = group.y * n_group.x + group.x;
    if control[0] != 0u || row >= p.n_row {
        return;
    }
    let start = row * p.d;
    var sum = 0.0;
    for (var i = thread; i < p.d; i += 256u) {
        let value = x[start + i] + y[start + i];
        x[start + i] = value;
        sum = fma(value, value, sum);
    }
    let mean = workgroup_sum(sum, thread, lane, n_lane) / f32(p.d);
    let scale = inverseSqrt(mean + p.eps);
    for (var i = thread; i < p.d; i += 256u) {
        h[start + i] = x[start + i] * (scale * weight[i]);
    }
}
