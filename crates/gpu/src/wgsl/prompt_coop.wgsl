// Products of a tile of weights and a tile of tokens with cooperative matrices of f16, as precise as in f32. With MID,
// half of the number of codes, a weight is scale · (code - MID) + (bias + MID · scale):
//   The first part is exact in f16 if codes have at most 4 bits, and the sum of two f16 numbers else.
//   The second is the same for a group: it is multiplied with the sum of the group's activations, in tiles of columns
//   behind those of the weights, as the sum of two f16 numbers.
// Activations are sums of two f16 numbers (`prompt_split.wgsl`). A row of weights has a unit, as a token has one. The
// products that matter are summed in f32: SIDE columns at once, and the sum added to what was before, so that the order
// does not depend on the tile.
// TILE_COLS columns at a time are decoded to workgroup memory. Of the subgroups 4 lie beside each other in rows and
// N_COLUMN in tokens; matrices of tokens that a tile does not have are skipped.
// Needs `coop_*.wgsl` before it, `prompt_unit.wgsl`, the affine format and a kernel; what that has says
// `prompt_tile.wgsl`.

override N_COLUMN: u32; // 1 or 2.
override N_FRAGMENT: u32; // Matrices beside each other in a subgroup's tokens: 1, 2 or 4.
override TILE_COLS: u32; // 32 or 64.

@group(0) @binding(3) var<storage, read> x_parts: array<vec4<f16>>; // [_, high and low, fours_of_row]
@group(0) @binding(4) var<storage, read> x_units: array<f32>;

override THREADS = 4u * N_LANE * N_COLUMN;
const TILE_ROWS = 8u * SIDE;
override TILE_TOKENS = N_COLUMN * N_FRAGMENT * SIDE;
const BLOCK = SIDE;
// Fours of a row of a tile, and with 2 more that spread rows over the memory's banks.
override TILE_FOURS = TILE_COLS / 4u;
override STRIDE = TILE_FOURS + 2u;
// Chunks of a row of the tile.
override N_CHUNK = TILE_COLS / CHUNK;
// Whether weights have a low part: 0 or 1.
override HAS_LOW = BITS / 5u;
// Where low parts start.
override W_LOW = TILE_ROWS * STRIDE;
override X_LOW = TILE_TOKENS * STRIDE;
override W_FOURS = (1u + HAS_LOW) * W_LOW;
override X_FOURS = 2u * X_LOW;
// Rows of x are behind the largest numbers of rows.
const INPUTS = 4u * TILE_ROWS;
override N_RESULT = max(THREADS / N_LANE * SIDE * SIDE, INPUTS + TILE_TOKENS);

var<workgroup> w_tile: array<vec4<f16>, W_FOURS>; // [high and low, row, column]
var<workgroup> x_tile: array<vec4<f16>, X_FOURS>; // [high and low, token, column]
// At first the largest numbers of rows, [row, 4], and rows of x, [token]; at last a matrix of each subgroup.
var<workgroup> results: array<f32, N_RESULT>;

// The unit of a row of the tile, once all threads have noted what they saw of it.
fn unit_of_row(row: u32) -> f32 {
    let at = 4u * row;
    return unit_of(max(max(results[at], results[at + 1u]), max(results[at + 2u], results[at + 3u])), 14u);
}

fn mid() -> f32 {
    return f32(1u << (BITS - 1u));
}

// A chunk of weights of a row of the tile.
struct Place {
    row: u32,
    chunk: u32, // Of the tile's row.
    at: vec3<u32>,
    unit: f32,
}

fn place(tile: Tile, i: u32) -> Place {
    let row = min(i / N_CHUNK, TILE_ROWS - 1u);
    return Place(row, i % N_CHUNK, weights(tile, row), unit_of_row(row));
}

fn store_four(at: u32, numbers: vec4<f32>) {
    if HAS_LOW == 0u {
        w_tile[at] = vec4<f16>(numbers);
    } else {
        let high = rounded(numbers);
        w_tile[at] = vec4<f16>(high);
        w_tile[W_LOW + at] = vec4<f16>(numbers - high);
    }
}

fn store_weights(place: Place, c: Chunk, col: u32) {
    let scale = chunk_scale_bias(c, place.at, col / CHUNK + place.chunk).x * place.unit;
    let factor = vec4(scale);
    let shift = vec4(-mid() * scale);
    let at = place.row * STRIDE + 8u * place.chunk;
    store_four(at, fma(factor, chunk4(c, 0u), shift));
    store_four(at + 1u, fma(factor, chunk4(c, 1u), shift));
    store_four(at + 2u, fma(factor, chunk4(c, 2u), shift));
    store_four(at + 3u, fma(factor, chunk4(c, 3u), shift));
    store_four(at + 4u, fma(factor, chunk4(c, 4u), shift));
    store_four(at + 5u, fma(factor, chunk4(c, 5u), shift));
    store_four(at + 6u, fma(factor, chunk4(c, 6u), shift));
    store_four(at + 7u, fma(factor, chunk4(c, 7u), shift));
}

// What all weights of a group share; 0 for groups that are not there.
fn shared_part(at: vec3<u32>, group: u32, n_group: u32) -> f32 {
    if n_group <= group {
        return 0.0;
    }
    let ends = scale_bias(at, group * GROUP);
    return fma(ends.x, mid(), ends.y);
}

// 16 groups in place of a chunk: first their high parts, then their low ones.
fn store_groups(place: Place, first: u32, n_group: u32) {
    let at = place.row * STRIDE + 8u * place.chunk;
    for (var i = 0u; i < 4u; i++) {
        let group = first + 16u * place.chunk + 4u * i;
        var four = vec4(0.0);
        if group < n_group {
            four = vec4(
                shared_part(place.at, group, n_group),
                shared_part(place.at, group + 1u, n_group),
                shared_part(place.at, group + 2u, n_group),
                shared_part(place.at, group + 3u, n_group),
            );
        }
        let numbers = four * place.unit;
        let high = rounded(numbers);
        w_tile[at + i] = vec4<f16>(high);
        w_tile[at + 4u + i] = vec4<f16>(numbers - high);
        if HAS_LOW == 1u {
            w_tile[W_LOW + at + i] = vec4<f16>();
            w_tile[W_LOW + at + 4u + i] = vec4<f16>();
        }
    }
}

// The columns of the products: `cols` of weights, then those of groups, which start at `groups_at`: tiles of TILE_COLS.
struct Columns {
    cols: u32,
    n_group: u32,
    groups_at: u32,
    end: u32,
    fours_of_row: u32, // Of x_parts.
}

fn columns() -> Columns {
    let cols = n_col();
    let n_group = cols / GROUP;
    let groups_at = (cols + TILE_COLS - 1u) / TILE_COLS * TILE_COLS;
    let group_tiles = (2u * n_group + TILE_COLS - 1u) / TILE_COLS;
    return Columns(cols, n_group, groups_at, groups_at + group_tiles * TILE_COLS, fours_of_row(cols, GROUP));
}

// Piece `i` of the tile of tokens: four columns of the high or low part of a token.
fn load_x(i: u32, n: u32, col: u32, all: Columns) -> vec4<f16> {
    if n <= i {
        return vec4<f16>();
    }
    let four = i % TILE_FOURS;
    var at = col / 4u + four;
    if all.cols <= col {
        at = all.cols / 4u + (col - all.groups_at) / 8u + four / 8u * 4u + four % 4u;
    }
    let row = u32(results[INPUTS + i / (2u * TILE_FOURS)]);
    let part = i / TILE_FOURS % 2u;
    return x_parts[(2u * row + part) * all.fours_of_row + min(at, all.fours_of_row - 1u)];
}

fn store_x(piece: vec4<f16>, i: u32, n: u32) {
    if i < n {
        x_tile[i / TILE_FOURS % 2u * X_LOW + i / (2u * TILE_FOURS) * STRIDE + i % TILE_FOURS] = piece;
    }
}

// The pieces that a thread carries from memory to the tile; `n` are needed.
fn load_pieces(thread: u32, n: u32, col: u32, all: Columns) -> array<vec4<f16>, 8> {
    return array(
        load_x(thread, n, col, all),
        load_x(thread + THREADS, n, col, all),
        load_x(thread + 2u * THREADS, n, col, all),
        load_x(thread + 3u * THREADS, n, col, all),
        load_x(thread + 4u * THREADS, n, col, all),
        load_x(thread + 5u * THREADS, n, col, all),
        load_x(thread + 6u * THREADS, n, col, all),
        load_x(thread + 7u * THREADS, n, col, all),
    );
}

fn store_pieces(pieces: array<vec4<f16>, 8>, thread: u32, n: u32, col: u32, all: Columns) {
    store_x(pieces[0], thread, n);
    store_x(pieces[1], thread + THREADS, n);
    store_x(pieces[2], thread + 2u * THREADS, n);
    store_x(pieces[3], thread + 3u * THREADS, n);
    store_x(pieces[4], thread + 4u * THREADS, n);
    store_x(pieces[5], thread + 5u * THREADS, n);
    store_x(pieces[6], thread + 6u * THREADS, n);
    store_x(pieces[7], thread + 7u * THREADS, n);
    for (var i = 8u * THREADS + thread; i < n; i += THREADS) {
        store_x(load_x(i, n, col, all), i, n);
    }
}

// The low parts first: they are small.
fn multiply(a: MatA, a_low: MatA, b_high: MatB, b_low: MatB, sum: MatC) -> MatC {
    var part = coopMultiplyAdd(a, b_low, MatC());
    if HAS_LOW == 1u {
        part = coopMultiplyAdd(a_low, b_high, part);
    }
    part = coopMultiplyAdd(a, b_high, part);
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
        let token = (fragment * N_COLUMN + subgroup.y) * SIDE + at / SIDE;
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
    let all = columns();
    // naga sees that all threads skip the same matrices if the reason comes from here.
    if thread == 0u {
        results[0] = f32(tile.n_token);
    }
    let n_token = u32(workgroupUniformLoad(&results[0]));
    let n_fragment = min((n_token + N_COLUMN * SIDE - 1u) / (N_COLUMN * SIDE), N_FRAGMENT);
    let n_piece = n_fragment * N_COLUMN * SIDE * 2u * TILE_FOURS;
    for (var i = thread; i < 4u * TILE_ROWS; i += THREADS) {
        let tops = tops_of(weights(tile, i / 4u), all.cols, i % 4u);
        results[i] = fma(tops.x, mid(), tops.y);
    }
    for (var i = thread; i < TILE_TOKENS; i += THREADS) {
        results[INPUTS + i] = f32(input_row(tile, i));
    }
    workgroupBarrier();
    let n_place = TILE_ROWS * N_CHUNK;
    let place0 = place(tile, thread);
    let place1 = place(tile, thread + THREADS);
    let subgroup = vec2(subgroup_id % 4u, subgroup_id / 4u);
    let a_row = 2u * SIDE * subgroup.x;
    let units = vec2(unit_of_row(a_row + lane % SIDE), unit_of_row(a_row + SIDE + lane % SIDE));
    let stride = STRIDE;
    let block = SIDE * STRIDE;

    var a0 = MatC();
    var a1 = MatC();
    var a2 = MatC();
    var a3 = MatC();
    var b0 = MatC();
    var b1 = MatC();
    var b2 = MatC();
    var b3 = MatC();
    var chunk0: Chunk;
    var chunk1: Chunk;
    if thread < n_place && CHUNK * place0.chunk < all.cols {
        chunk0 = load_chunk(place0.at, place0.chunk, all.cols - CHUNK * place0.chunk);
        if THREADS < n_place {
            chunk1 = load_chunk(place1.at, place1.chunk, all.cols - CHUNK * place1.chunk);
        }
    }
    // Larger tiles have no room for pieces while they multiply.
    let ahead = TILE_TOKENS <= 64u;
    var pieces: array<vec4<f16>, 8>;
    if ahead {
        pieces = load_pieces(thread, n_piece, 0u, all);
    }
    for (var col = 0u; col < all.end; col += TILE_COLS) {
        if !ahead {
            pieces = load_pieces(thread, n_piece, col, all);
        }
        workgroupBarrier();
        if all.cols <= col {
            for (var i = thread; i < n_place; i += THREADS) {
                store_groups(place(tile, i), (col - all.groups_at) / 2u, all.n_group);
            }
        } else if thread < n_place && col + CHUNK * place0.chunk < all.cols {
            store_weights(place0, chunk0, col);
            if THREADS < n_place {
                store_weights(place1, chunk1, col);
            }
            for (var i = thread + 2u * THREADS; i < n_place; i += THREADS) {
                let more = place(tile, i);
                let first = col + CHUNK * more.chunk;
                store_weights(more, load_chunk(more.at, first / CHUNK, all.cols - first), col);
            }
        }
        store_pieces(pieces, thread, n_piece, col, all);
        workgroupBarrier();
        let next = col + TILE_COLS;
        let first = next + CHUNK * place0.chunk;
        if thread < n_place && first < all.cols {
            chunk0 = load_chunk(place0.at, first / CHUNK, all.cols - first);
            if THREADS < n_place {
                chunk1 = load_chunk(place1.at, first / CHUNK, all.cols - first);
            }
        }
        if ahead && next < all.end {
            pieces = load_pieces(thread, n_piece, next, all);
        }
        var n_four = TILE_FOURS;
        if all.cols <= col {
            n_four = min(TILE_FOURS, (all.n_group - (col - all.groups_at) / 2u + 15u) / 16u * 8u);
        } else {
            n_four = min(TILE_FOURS, (all.cols - col) / 4u);
        }
        for (var k = 0u; k < n_four; k += SIDE / 4u) {
            let a_at = a_row * STRIDE + k;
            let a = coopLoadT<MatA>(&w_tile[a_at], stride);
            let b_at = a_at + block;
            let b = coopLoadT<MatA>(&w_tile[b_at], stride);
            var a_low = a;
            var b_low = b;
            if HAS_LOW == 1u {
                let a_low_at = a_at + W_LOW;
                a_low = coopLoadT<MatA>(&w_tile[a_low_at], stride);
                let b_low_at = b_at + W_LOW;
                b_low = coopLoadT<MatA>(&w_tile[b_low_at], stride);
            }

            let x_at = subgroup.y * block + k;
            let high0 = coopLoad<MatB>(&x_tile[x_at], stride);
            let low0_at = x_at + X_LOW;
            let low0 = coopLoad<MatB>(&x_tile[low0_at], stride);
            a0 = multiply(a, a_low, high0, low0, a0);
            b0 = multiply(b, b_low, high0, low0, b0);
            if 2u <= N_FRAGMENT {
                if 2u <= n_fragment {
                    let high1_at = x_at + N_COLUMN * block;
                    let high1 = coopLoad<MatB>(&x_tile[high1_at], stride);
                    let low1_at = high1_at + X_LOW;
                    let low1 = coopLoad<MatB>(&x_tile[low1_at], stride);
                    a1 = multiply(a, a_low, high1, low1, a1);
                    b1 = multiply(b, b_low, high1, low1, b1);
                }
            }
            if N_FRAGMENT == 4u {
                if 3u <= n_fragment {
                    let high2_at = x_at + 2u * N_COLUMN * block;
                    let high2 = coopLoad<MatB>(&x_tile[high2_at], stride);
                    let low2_at = high2_at + X_LOW;
                    let low2 = coopLoad<MatB>(&x_tile[low2_at], stride);
                    a2 = multiply(a, a_low, high2, low2, a2);
                    b2 = multiply(b, b_low, high2, low2, b2);
                }
                if n_fragment == 4u {
                    let high3_at = x_at + 3u * N_COLUMN * block;
                    let high3 = coopLoad<MatB>(&x_tile[high3_at], stride);
                    let low3_at = high3_at + X_LOW;
                    let low3 = coopLoad<MatB>(&x_tile[low3_at], stride);
                    a3 = multiply(a, a_low, high3, low3, a3);
                    b3 = multiply(b, b_low, high3, low3, b3);
                }
            }
        }
    }
    put_pair(tile, a0, b0, units, subgroup, 0u, lane);
    if 2u <= N_FRAGMENT {
        if 2u <= n_fragment {
            put_pair(tile, a1, b1, units, subgroup, 1u, lane);
        }
    }
    if N_FRAGMENT == 4u {
        if 3u <= n_fragment {
            put_pair(tile, a2, b2, units, subgroup, 2u, lane);
        }
        if n_fragment == 4u {
            put_pair(tile, a3, b3, units, subgroup, 3u, lane);
        }
    }
}
