// x[i] += y[i]: a thread a number.

struct Params {
    n: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> control: array<u32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>; // [n]
@group(0) @binding(2) var<storage, read> y: array<f32>; // [n]

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) n_group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = (group.y * n_group.x + group.x) * 256u + thread;
    if control[0] != 0u || i >= p.n {
        return;
    }
    x[i] = x[i] + y[i];
}
