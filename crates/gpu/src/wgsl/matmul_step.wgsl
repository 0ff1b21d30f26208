// Up to four matrices of one buffer, format and width times a few tokens, each with an output of its own.
// Needs a `format_*.wgsl`, a `rows_*.wgsl` and `rows.wgsl` beside it.

struct Params {
    cols: u32,
    x_at: u32, // of the first token
    n_token: u32,
    n_product: u32,
    matrices: array<vec4<u32>, 4>, // planes and rows
    outputs: array<vec4<u32>, 2>, // of two products each: the stride of a token, the place of the first number
}
var<immediate> p: Params;

@group(0) @binding(5) var<storage, read_write> out0: array<f32>;
@group(0) @binding(6) var<storage, read_write> out1: array<f32>;
@group(0) @binding(7) var<storage, read_write> out2: array<f32>;
@group(0) @binding(8) var<storage, read_write> out3: array<f32>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) n_group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_size) n_lane: u32,
) {
    let turn_rows = THREADS / LANES * ROWS;
    // Which product, and which of its groups.
    var number = group.y * n_group.x + group.x;
    var product = 0u;
    for (; product < p.n_product; product++) {
        let n = (p.matrices[product].w + TURNS * turn_rows - 1u) / (TURNS * turn_rows);
        if number < n {
            break;
        }
        number -= n;
    }
    if product == p.n_product {
        return;
    }
    let matrix = p.matrices[product];
    let token0 = group.z * TOKENS;
    let x_at = p.x_at + token0 * p.cols;
    let tokens = Tokens(x_at + vec4(0u, 1u, 2u, 3u) * p.cols, p.n_token - token0, p.cols);
    for (var turn = 0u; turn < TURNS; turn++) {
        let first = (number * TURNS + turn) * turn_rows;
        if matrix.w <= first {
            break;
        }
        let row0 = first + thread / LANES * ROWS;
        var rows: Rows;
        for (var r = 0u; r < ROWS; r++) {
            rows[r] = row_at(matrix.xyz, min(row0 + r, matrix.w - 1u), p.cols);
        }
        let sums = dots(&rows, tokens, turn == 0u, thread, n_lane);
        let n_row = min(ROWS, matrix.w - min(row0, matrix.w));
        finish(product, row0, n_row, token0, tokens.n, sums, thread);
    }
}

// Each thread of a team stores some of its sums.
fn finish(product: u32, row0: u32, n_row: u32, token0: u32, n_token: u32, sums: Sums, thread: u32) {
    let pair = p.outputs[product / 2u];
    let output = select(pair.xy, pair.zw, product % 2u == 1u);
    for (var r = 0u; r < ROWS; r++) {
        for (var t = 0u; t < TOKENS; t++) {
            let is_mine = thread % LANES == (r * TOKENS + t) % LANES;
            if is_mine && r < n_row && t < n_token {
                store(product, output.y + (token0 + t) * output.x + row0 + r, sums[r * TOKENS + t]);
            }
        }
    }
}

fn store(product: u32, at: u32, value: f32) {
    switch product {
        case 0u: { out0[at] = value; }
        case 1u: { out1[at] = value; }
        case 2u: { out2[at] = value; }
        default: { out3[at] = value; }
    }
}
