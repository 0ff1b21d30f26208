// Products of a tile of weights and a tile of tokens with cooperative matrices of f16, as precise as in f32: weights
// and activations are sums of two f16 numbers, of whose products the three that matter are summed in f32. A row of
// weights has a unit, as a token has one (`prompt_split.wgsl`). 32 columns at a time are decoded to workgroup memory;
// of 8 subgroups 4 lie beside each other in rows and 2 in tokens. SIDE columns are summed at once, and the sum added to
// what was before: the order does not depend on the tile.
// Needs `coop_*.wgsl` before it, `prompt_unit.wgsl`, a format of codes and a kernel; what that has says
// `prompt_tile.wgsl`.

override N_FRAGMENT: u32; // Matrices beside each other in a subgroup's tokens: 1, 2 or 4.

@group(0) @binding(3) var<storage, read> x_parts: array<vec4<f16>>; // [_, high and low, cols / 4]
@group(0) @binding(4) var<storage, read> x_units: array<f32>;

const THREADS = 8u * N_LANE;
const TILE_ROWS = 8u * SIDE;
override TILE_TOKENS = 2u * N_FRAGMENT * SIDE;
const BLOCK = SIDE;
const TILE_COLS = 32u;
// Fours of a row of a tile: 8, and 2 more that spread rows over the memory's banks.
const STRIDE = 10u;
// Where low parts start.
const W_LOW = TILE_ROWS * STRIDE;
override X_LOW = TILE_TOKENS * STRIDE;
override X_FOURS = 2u * X_LOW;

var<workgroup> w_tile: array<vec4<f16>, 2u * W_LOW>; // [high and low, row, column]
var<workgroup> x_tile: array<vec4<f16>, X_FOURS>; // [high and low, token, column]
// At first the largest numbers of rows, [row, 4], and rows of x, [token]; at last a matrix of each subgroup.
var<workgroup> results: array<f32, 8u * SIDE * SIDE>;
const INPUTS = 4u * TILE_ROWS;

// A row that a thread decodes a quarter of.
struct Weights {
    at: vec3<u32>,
    unit: f32,
}

// The unit of a row of the tile, once all threads have noted what they saw of it.
fn unit_of_row(row: u32) -> f32 {
    let at = 4u * row;
    return unit_of(max(max(results[at], results[at + 1u]), max(results[at + 2u], results[at + 3u])));
}

// Notes the largest number that a quarter of a row's groups can hold.
fn note_top(at: vec3<u32>, row: u32, quarter: u32, cols: u32) {
    var top = 0.0;
    for (var col = quarter * GROUP; col < cols; col += 4u * GROUP) {
        let ends = scale_bias(at, col);
        top = max(top, max(abs(ends.y), abs(fma(ends.x, code_max(), ends.y))));
    }
    results[4u * row + quarter] = top;
}

// Eight numbers as sums of two, times their unit.
struct Split {
    high: array<vec4<f16>, 2>,
    low: array<vec4<f16>, 2>,
}

fn decode(row: Weights, col: u32) -> Split {
    let codes = codes8(row.at, col, 8u);
    let ends = scale_bias(row.at, col) * row.unit;
    let a = fma(vec4(ends.x), codes[0], vec4(ends.y));
    let b = fma(vec4(ends.x), codes[1], vec4(ends.y));
    let a_high = rounded(a);
    let b_high = rounded(b);
    return Split(
        array(vec4<f16>(a_high), vec4<f16>(b_high)),
        array(vec4<f16>(a - a_high), vec4<f16>(b - b_high)),
    );
}

fn store(part: Split, row: u32, quarter: u32) {
    let at = row * STRIDE + 2u * quarter;
    w_tile[at] = part.high[0];
    w_tile[at + 1u] = part.high[1];
    w_tile[W_LOW + at] = part.low[0];
    w_tile[W_LOW + at + 1u] = part.low[1];
}

// Piece `i` of the tile of tokens: four columns of the high or low part of a token.
fn load_x(i: u32, col: u32, cols: u32) -> vec4<f16> {
    if TILE_TOKENS * 16u <= i {
        return vec4<f16>();
    }
    let row = u32(results[INPUTS + i / 16u]);
    return x_parts[(2u * row + i / 8u % 2u) * (cols / 4u) + col / 4u + i % 8u];
}

fn store_x(piece: vec4<f16>, i: u32) {
    if i < TILE_TOKENS * 16u {
        x_tile[i / 8u % 2u * X_LOW + i / 16u * STRIDE + i % 8u] = piece;
    }
}

// The low parts first: they are small.
fn multiply(a_high: MatA, a_low: MatA, b_high: MatB, b_low: MatB, sum: MatC) -> MatC {
    var part = coopMultiplyAdd(a_low, b_high, MatC());
    part = coopMultiplyAdd(a_high, b_low, part);
    part = coopMultiplyAdd(a_high, b_high, part);
    return sum + part;
}

// Hands a pair of matrices, of rows that are BLOCK apart, to the kernel. All threads call it.
fn put_pair(tile: Tile, a: MatC, b: MatC, units: vec2<f32>, subgroup: vec2<u32>, fragment: u32, lane: u32) {
    let first = (subgroup.x + 4u * subgroup.y) * SIDE * SIDE;
    let side = SIDE;
    let n = SIDE * SIDE / N_LANE;
    var kept: array<f32, 8>;
    workgroupBarrier();
    coopStore(a, &results[first], side);
    workgroupBarrier();
    for (var i = 0u; i < n; i++) {
        kept[i] = results[first + i * N_LANE + lane];
    }
    workgroupBarrier();
    coopStore(b, &results[first], side);
    workgroupBarrier();
    for (var i = 0u; i < n; i++) {
        let at = i * N_LANE + lane;
        let token = (subgroup.y * N_FRAGMENT + fragment) * SIDE + at / SIDE;
        let unit = x_units[input_row(tile, token)];
        let sums = vec2(kept[i], results[first + at]) / units / unit;
        put(tile, 2u * SIDE * subgroup.x + at % SIDE, token, sums.x, sums.y);
    }
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_id) subgroup_id: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let tile = open(group);
    // naga sees that all threads return together if the reason comes from here.
    if thread == 0u {
        results[0] = select(0.0, 1.0, tile.token < tile.n_token);
    }
    let is_empty = workgroupUniformLoad(&results[0]) == 0.0;
    if is_empty {
        return;
    }
    let cols = n_col();
    let quarter = thread % 4u;
    let row = thread / 4u;
    let step = THREADS / 4u;
    var rows: array<Weights, 4>;
    rows[0].at = weights(tile, row);
    rows[1].at = weights(tile, row + step);
    note_top(rows[0].at, row, quarter, cols);
    note_top(rows[1].at, row + step, quarter, cols);
    if SIDE == 8u {
        rows[2].at = weights(tile, row + 2u * step);
        rows[3].at = weights(tile, row + 3u * step);
        note_top(rows[2].at, row + 2u * step, quarter, cols);
        note_top(rows[3].at, row + 3u * step, quarter, cols);
    }
    if thread < TILE_TOKENS {
        results[INPUTS + thread] = f32(input_row(tile, thread));
    }
    workgroupBarrier();
    rows[0].unit = unit_of_row(row);
    rows[1].unit = unit_of_row(row + step);
    if SIDE == 8u {
        rows[2].unit = unit_of_row(row + 2u * step);
        rows[3].unit = unit_of_row(row + 3u * step);
    }
    let subgroup = vec2(subgroup_id % 4u, subgroup_id / 4u);
    let a_row = 2u * SIDE * subgroup.x;
    let units = vec2(unit_of_row(a_row + lane % SIDE), unit_of_row(a_row + SIDE + lane % SIDE));
    let stride = STRIDE;
    let fragment = SIDE * STRIDE;

    var a0 = MatC();
    var a1 = MatC();
    var a2 = MatC();
    var a3 = MatC();
    var b0 = MatC();
    var b1 = MatC();
    var b2 = MatC();
    var b3 = MatC();
    for (var col = 0u; col < cols; col += TILE_COLS) {
        let w0 = decode(rows[0], col + 8u * quarter);
        let w1 = decode(rows[1], col + 8u * quarter);
        let x0 = load_x(thread, col, cols);
        let x1 = load_x(thread + THREADS, col, cols);
        let x2 = load_x(thread + 2u * THREADS, col, cols);
        let x3 = load_x(thread + 3u * THREADS, col, cols);
        workgroupBarrier();
        store(w0, row, quarter);
        store(w1, row + step, quarter);
        if SIDE == 8u {
            store(decode(rows[2], col + 8u * quarter), row + 2u * step, quarter);
            store(decode(rows[3], col + 8u * quarter), row + 3u * step, quarter);
        }
        store_x(x0, thread);
        store_x(x1, thread + THREADS);
        store_x(x2, thread + 2u * THREADS);
        store_x(x3, thread + 3u * THREADS);
        for (var i = 4u * THREADS; i < TILE_TOKENS * 16u; i += 4u * THREADS) {
            let x4 = load_x(i + thread, col, cols);
            let x5 = load_x(i + thread + THREADS, col, cols);
            let x6 = load_x(i + thread + 2u * THREADS, col, cols);
            let x7 = load_x(i + thread + 3u * THREADS, col, cols);
            store_x(x4, i + thread);
            store_x(x5, i + thread + THREADS);
            store_x(x6, i + thread + 2u * THREADS);
            store_x(x7, i + thread + 3u * THREADS);
        }
        workgroupBarrier();
        for (var k = 0u; k < TILE_COLS / 4u; k += SIDE / 4u) {
            let a_at = a_row * STRIDE + k;
            let a_high = coopLoadT<MatA>(&w_tile[a_at], stride);
            let a_low_at = a_at + W_LOW;
            let a_low = coopLoadT<MatA>(&w_tile[a_low_at], stride);
            let b_at = a_at + fragment;
            let b_high = coopLoadT<MatA>(&w_tile[b_at], stride);
            let b_low_at = b_at + W_LOW;
            let b_low = coopLoadT<MatA>(&w_tile[b_low_at], stride);

            let x_at = subgroup.y * N_FRAGMENT * fragment + k;
            let high0 = coopLoad<MatB>(&x_tile[x_at], stride);
            let low0_at = x_at + X_LOW;
            let low0 = coopLoad<MatB>(&x_tile[low0_at], stride);
            a0 = multiply(a_high, a_low, high0, low0, a0);
            b0 = multiply(b_high, b_low, high0, low0, b0);
            if 2u <= N_FRAGMENT {
                let high1_at = x_at + fragment;
                let high1 = coopLoad<MatB>(&x_tile[high1_at], stride);
                let low1_at = high1_at + X_LOW;
                let low1 = coopLoad<MatB>(&x_tile[low1_at], stride);
                a1 = multiply(a_high, a_low, high1, low1, a1);
                b1 = multiply(b_high, b_low, high1, low1, b1);
            }
            if N_FRAGMENT == 4u {
                let high2_at = x_at + 2u * fragment;
                let high2 = coopLoad<MatB>(&x_tile[high2_at], stride);
                let low2_at = high2_at + X_LOW;
                let low2 = coopLoad<MatB>(&x_tile[low2_at], stride);
                a2 = multiply(a_high, a_low, high2, low2, a2);
                b2 = multiply(b_high, b_low, high2, low2, b2);
                let high3_at = x_at + 3u * fragment;
                let high3 = coopLoad<MatB>(&x_tile[high3_at], stride);
                let low3_at = high3_at + X_LOW;
                let low3 = coopLoad<MatB>(&x_tile[low3_at], stride);
                a3 = multiply(a_high, a_low, high3, low3, a3);
                b3 = multiply(b_high, b_low, high3, low3, b3);
            }
        }
    }
    put_pair(tile, a0, b0, units, subgroup, 0u, lane);
    if 2u <= N_FRAGMENT {
        put_pair(tile, a1, b1, units, subgroup, 1u, lane);
    }
    if N_FRAGMENT == 4u {
        put_pair(tile, a2, b2, units, subgroup, 2u, lane);
        put_pair(tile, a3, b3, units, subgroup, 3u, lane);
    }
}
