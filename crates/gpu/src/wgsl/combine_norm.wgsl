// Then h[t] = x[t] / sqrt(mean(x[t]²) + eps) ⊙ weight: a workgroup a token. The sums are those of `combine.wgsl` and
// `rms_norm.wgsl`, so the bits are too.
// Needs `reduce.wgsl` and `combine_sum.wgsl` before it.

@group(0) @binding(5) var<storage, read> weight: array<f32>; // [d]
@group(0) @binding(6) var<storage, read_write> h: array<f32>; // [n_token, d]

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) n_group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) n_lane: u32,
) {
    let t = group.y * n_group.x + group.x;
    if control[0] != 0u || t >= p.n_token {
        return;
    }
    var sum = 0.0;
    for (var i = thread; i < p.d; i += 256u) {
        let value = combined(t, i);
        x[t * p.d + i] = value;
        sum = fma(value, value, sum);
    }
    let mean = workgroup_sum(sum, thread, lane, n_lane) / f32(p.d);
    let scale = inverseSqrt(mean + p.eps);
    for (var i = thread; i < p.d; i += 256u) {
        h[t * p.d + i] = x[t * p.d + i] * (scale * weight[i]);
    }
}
