// out[t] = w[ids[t] - row0], where that is a row of `w`: a thread eight columns.
// Needs a `format_*.wgsl` before it.

struct Params {
    planes: vec3<u32>,
    rows: u32,
    cols: u32,
    row0: u32,
    ids_at: u32,
    n_token: u32,
}
var<immediate> p: Params;

@group(0) @binding(3) var<storage, read> ids: array<u32>; // [n_token] from `ids_at` on
@group(0) @binding(4) var<storage, read_write> out: array<f32>; // [n_token, cols]

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) n_group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let item = (group.y * n_group.x + group.x) * 64u + thread;
    let per_row = (p.cols + 7u) / 8u;
    let t = item / per_row;
    if t >= p.n_token {
        return;
    }
    // Below row 0 it wraps around to a number beyond all rows.
    let row = ids[p.ids_at + t] - p.row0;
    if row >= p.rows {
        return;
    }
    let col = item % per_row * 8u;
    let n = p.cols - col;
    let at = row_at(p.planes, row, p.cols);
    let codes = codes8(at, col, n);
    let factors = scale_bias(at, col);
    let start = t * p.cols + col;
    for (var i = 0u; i < min(8u, n); i++) {
        out[start + i] = fma(factors.x, codes[i / 4u][i % 4u], factors.y);
    }
}
