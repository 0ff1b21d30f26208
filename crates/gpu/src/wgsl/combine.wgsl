// A thread a number. Needs `combine_sum.wgsl` before it.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) n_group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = (group.y * n_group.x + group.x) * 256u + thread;
    if control[0] != 0u || i >= p.n_token * p.d {
        return;
    }
    let t = i / p.d;
    var sum = 0.0;
    for (var j = 0u; j < n_part(); j++) {
        let more = part(t, j);
        sum = fma(more.weight, routed[more.at + i % p.d], sum);
    }
    x[i] = x[i] + sum;
}
