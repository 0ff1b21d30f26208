// Reads fours of words, four to a thread: the fastest way through memory.

struct Params {
    at: u32,
    n: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> w4: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> to: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) n_group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let first = (group.y * n_group.x + group.x) * 1024u + thread;
    var sum = vec4(0u);
    for (var i = first; i < min(first + 1024u, p.n); i += 256u) {
        sum ^= w4[p.at + i];
    }
    // Hardly ever, but no compiler knows.
    if all(sum == vec4(0x9e3779b9u)) {
        to[0] = sum;
    }
}
