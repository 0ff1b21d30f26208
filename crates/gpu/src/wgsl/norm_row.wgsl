// A row v that `numbers` makes, which `keep` stores, then h = v / sqrt(mean(v²) + eps) ⊙ weight: a workgroup a row. All
// that a thread needs is on its way before it needs any of it.
// Needs `reduce.wgsl` before it, and `is_row(row)`, `is_live()`, `numbers(row, first)`, `keep(row, i, v)`,
// `kept(row, i)`, `weight`, `h` and the parameters `d` and `eps` behind it.

override N_THREAD: u32;
// Numbers of a thread at a time, N_THREAD apart.
override N_OWN: u32; // at most 8

@compute @workgroup_size(N_THREAD)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) n_group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) n_lane: u32,
) {
    let row = group.y * n_group.x + group.x;
    if !is_row(row) {
        return;
    }
    // Where it is not, nothing is written.
    let is_live = is_live();
    var weights: array<f32, 8>;
    for (var o = 0u; o < N_OWN; o++) {
        weights[o] = weight[min(thread + o * N_THREAD, p.d - 1u)];
    }
    var own: array<f32, 8>;
    var sum = 0.0;
    for (var first = thread; first < p.d; first += N_OWN * N_THREAD) {
        own = numbers(row, first);
        for (var o = 0u; o < N_OWN; o++) {
            let i = first + o * N_THREAD;
            if i < p.d {
                if is_live {
                    keep(row, i, own[o]);
                }
                sum = fma(own[o], own[o], sum);
            }
        }
    }
    let mean = workgroup_sum(sum, thread, lane, n_lane) / f32(p.d);
    let scale = inverseSqrt(mean + p.eps);
    if p.d <= N_OWN * N_THREAD {
        for (var o = 0u; o < N_OWN; o++) {
            let i = thread + o * N_THREAD;
            if i < p.d && is_live {
                h[row * p.d + i] = own[o] * (scale * weights[o]);
            }
        }
        return;
    }
    for (var i = thread; i < p.d && is_live; i += N_THREAD) {
        h[row * p.d + i] = kept(row, i) * (scale * weight[i]);
    }
}
