// The norm of rows: see `norm_row.wgsl`, which it needs before it.

struct Params {
    d: u32,
    eps: f32,
    n_row: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>; // [n_row, d]
@group(0) @binding(1) var<storage, read> weight: array<f32>; // [d]
@group(0) @binding(2) var<storage, read_write> h: array<f32>; // [n_row, d]

fn is_row(row: u32) -> bool {
    return row < p.n_row;
}

fn is_live() -> bool {
    return true;
}

fn numbers(row: u32, first: u32) -> array<f32, 8> {
    var own: array<f32, 8>;
    for (var o = 0u; o < N_OWN; o++) {
        own[o] = x[row * p.d + min(first + o * N_THREAD, p.d - 1u)];
    }
    return own;
}

fn keep(row: u32, i: u32, value: f32) {}

fn kept(row: u32, i: u32) -> f32 {
    return x[row * p.d + i];
}
