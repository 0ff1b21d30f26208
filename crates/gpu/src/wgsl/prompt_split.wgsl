// Rows of x as sums of two f16 numbers, `x ≈ (high + low) / unit`: what cooperative matrices multiply. A unit is the
// power of two that makes the row's largest number about 2^14: the two numbers then have 22 bits of it together.

enable f16;

struct Params {
    first: u32,
    n_row: u32,
    cols: u32, // A multiple of 4.
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>; // [_, cols / 4]
@group(0) @binding(1) var<storage, read_write> parts: array<vec4<f16>>; // [n_row, high and low, cols / 4]
@group(0) @binding(2) var<storage, read_write> units: array<f32>; // [n_row]

var<workgroup> tops: array<f32, 64>;

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
    let n = p.cols / 4u;
    let start = (p.first + row) * n;
    var top4 = vec4(0.0);
    for (var i = thread; i < n; i += 256u) {
        top4 = max(top4, abs(x[start + i]));
    }
    let top = subgroupMax(max(max(top4.x, top4.y), max(top4.z, top4.w)));
    if lane == 0u {
        tops[thread / n_lane] = top;
    }
    workgroupBarrier();
    var highest = 0.0;
    for (var i = 0u; i < 256u / n_lane; i++) {
        highest = max(highest, tops[i]);
    }
    let unit = unit_of(highest);
    for (var i = thread; i < n; i += 256u) {
        let value = x[start + i] * unit;
        let high = rounded(value);
        parts[2u * row * n + i] = vec4<f16>(high);
        parts[(2u * row + 1u) * n + i] = vec4<f16>(value - high);
    }
    if thread == 0u {
        units[row] = unit;
    }
}
