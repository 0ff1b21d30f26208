// Multiply-adds that depend on nothing but each other: 64 a round and thread.

struct Params {
    n_round: u32,
    factor: f32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read_write> out: array<f32>; // [1]

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let factor = vec4(p.factor);
    var a = vec4(f32(id.x), 1.0, 2.0, 3.0);
    var b = a + 1.0;
    var c = a + 2.0;
    var d = a + 3.0;
    for (var i = 0u; i < p.n_round; i++) {
        a = fma(a, factor, factor);
        b = fma(b, factor, factor);
        c = fma(c, factor, factor);
        d = fma(d, factor, factor);
        a = fma(a, factor, factor);
        b = fma(b, factor, factor);
        c = fma(c, factor, factor);
        d = fma(d, factor, factor);
        a = fma(a, factor, factor);
        b = fma(b, factor, factor);
        c = fma(c, factor, factor);
        d = fma(d, factor, factor);
        a = fma(a, factor, factor);
        b = fma(b, factor, factor);
        c = fma(c, factor, factor);
        d = fma(d, factor, factor);
    }
    let sum = a + b + c + d;
    // Never, but no compiler knows.
    if sum.x + sum.y + sum.z + sum.w == -1.0 {
        out[0] = sum.x;
    }
}
