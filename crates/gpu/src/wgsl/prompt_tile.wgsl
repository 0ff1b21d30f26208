// Products of 128 rows of weights with a tile of tokens, by a workgroup of 256 threads: 16 columns at a time are
// decoded to workgroup memory, and a thread sums a rectangle of rows and tokens in registers. A sum is one chain of
// fused multiply-adds over ascending columns, whatever the tile: its bits depend on the row, the token and nothing else.
// Needs a format before it, and a kernel, which has
//   `Tile`       what a workgroup computes: its first `row` and `token`, how many tokens there are in `n_token`,
//   `open`       the tile of a workgroup,
//   `n_col`      columns of the weights,
//   `weights`    where a row of the tile lies: for those beyond the last, any row,
//   `input_row`  the row of x of a token of the tile: for those beyond the last, any,
//   `put`        takes the sums of two rows of the tile, BLOCK rows apart, and a token.

@group(0) @binding(3) var<storage, read> x: array<f32>; // [_, cols]
@group(0) @binding(4) var<storage, read> x4: array<vec4<f32>>; // The same.

override N_ROW: u32; // Rows of a thread: 2, 4 or 8.
override N_QUAD: u32; // Fours of tokens of a thread: 1, or 2 if there are 8 rows.

const TILE_ROWS = 128u;
const TILE_COLS = 16u;
override TILE_TOKENS = 8u * N_ROW * N_QUAD;
// Threads beside each other: in rows, in tokens.
override BLOCK = TILE_ROWS / N_ROW;
override N_TOKEN_THREAD = 2u * N_ROW;
override TILE_QUADS = TILE_TOKENS / 4u;
// Named, because naga loses count of overrides behind the size of an array that is a formula.
override X_FOURS = TILE_COLS * TILE_QUADS;

// [row, 4 fours of columns], the fours of a row in an order that spreads neighbouring rows over the memory's banks.
var<workgroup> w_tile: array<vec4<f32>, 512>;
// [column, fours of tokens], likewise.
var<workgroup> x_tile: array<vec4<f32>, X_FOURS>;

// Where a thread works in the tile.
struct Place {
    row: u32, // Its rows are row + i · BLOCK.
    quad: u32, // Its fours of tokens are quad and quad + N_TOKEN_THREAD.
}

// Neighbouring threads share rows and tokens: 8 x 4 of them.
fn place(thread: u32) -> Place {
    let block = thread / 32u;
    let n_block = BLOCK / 8u;
    return Place(
        thread % 8u + 8u * (block % n_block),
        thread / 8u % 4u + 4u * (block / n_block),
    );
}

// The tile's row that this thread decodes.
fn loaded_row(thread: u32) -> u32 {
    return thread / 2u;
}

// The four of the tile's tokens that this thread loads; beyond the tile for threads that load none.
fn loaded_quad(thread: u32) -> u32 {
    return thread / 4u;
}

// What a thread carries from memory to the tiles: 8 columns of a row, 4 columns of 4 tokens.
struct Load {
    w: array<vec4<f32>, 2>,
    x: mat4x4<f32>,
}

// `tokens`: rows of x. Columns from `cols` on are zeros.
fn load(row: vec3<u32>, tokens: vec4<u32>, col: u32, cols: u32, thread: u32) -> Load {
    var part: Load;
    let w_col = col + thread % 2u * 8u;
    if w_col < cols {
        part.w = codes8(row, w_col, cols - w_col);
        if SCALED {
            let ends = scale_bias(row, w_col);
            part.w[0] = fma(vec4(ends.x), part.w[0], vec4(ends.y));
            part.w[1] = fma(vec4(ends.x), part.w[1], vec4(ends.y));
        }
    }
    let x_col = col + thread % 4u * 4u;
    if loaded_quad(thread) < TILE_QUADS && x_col < cols {
        let at = tokens * cols + x_col;
        if cols % 4u == 0u {
            part.x = transpose(mat4x4(x4[at.x / 4u], x4[at.y / 4u], x4[at.z / 4u], x4[at.w / 4u]));
        } else {
            let n = cols - x_col;
            part.x = transpose(mat4x4(x_ragged(at.x, n), x_ragged(at.y, n), x_ragged(at.z, n), x_ragged(at.w, n)));
        }
    }
    return part;
}

// Four activations of which `n` are there.
fn x_ragged(at: u32, n: u32) -> vec4<f32> {
    var four = vec4(x[at], 0.0, 0.0, 0.0);
    if 1u < n {
        four.y = x[at + 1u];
    }
    if 2u < n {
        four.z = x[at + 2u];
    }
    if 3u < n {
        four.w = x[at + 3u];
    }
    return four;
}

fn store(part: Load, thread: u32) {
    let row = loaded_row(thread);
    let first = thread % 2u * 2u;
    let turn = row / 2u % 4u;
    w_tile[row * 4u + (first ^ turn)] = part.w[0];
    w_tile[row * 4u + ((first + 1u) ^ turn)] = part.w[1];
    let quad = loaded_quad(thread);
    if quad < TILE_QUADS {
        let four = thread % 4u;
        let at = four * 4u * TILE_QUADS + (quad ^ token_turn(four));
        x_tile[at] = part.x[0];
        x_tile[at + TILE_QUADS] = part.x[1];
        x_tile[at + 2u * TILE_QUADS] = part.x[2];
        x_tile[at + 3u * TILE_QUADS] = part.x[3];
    }
}

// What moves fours of tokens in columns 4·four .. of the tile.
fn token_turn(four: u32) -> u32 {
    return (2u * four) % min(TILE_QUADS, 8u);
}

fn add4(sum: vec4<f32>, w: vec4<f32>, x: mat4x4<f32>) -> vec4<f32> {
    let a = fma(vec4(w.x), x[0], sum);
    let b = fma(vec4(w.y), x[1], a);
    let c = fma(vec4(w.z), x[2], b);
    return fma(vec4(w.w), x[3], c);
}

fn x_columns(at: u32) -> mat4x4<f32> {
    return mat4x4(x_tile[at], x_tile[at + TILE_QUADS], x_tile[at + 2u * TILE_QUADS], x_tile[at + 3u * TILE_QUADS]);
}

// Sums of this thread's rows i and fours of tokens j, at 2·i + j. Every index is constant: the sums stay in registers.
fn tile_sums(row: vec3<u32>, tokens: vec4<u32>, cols: u32, thread: u32) -> array<vec4<f32>, 16> {
    var sums: array<vec4<f32>, 16>;
    let here = place(thread);
    let turn = here.row / 2u % 4u;
    let step = 4u * BLOCK;
    var part = load(row, tokens, 0u, cols, thread);
    for (var col = 0u; col < cols; col += TILE_COLS) {
        workgroupBarrier();
        store(part, thread);
        workgroupBarrier();
        if col + TILE_COLS < cols {
            part = load(row, tokens, col + TILE_COLS, cols, thread);
        }
        for (var four = 0u; four < 4u; four++) {
            let w_at = here.row * 4u + (four ^ turn);
            let x_at = four * 4u * TILE_QUADS + (here.quad ^ token_turn(four));
            let x = x_columns(x_at);
            var y = x;
            if N_QUAD == 2u {
                y = x_columns(x_at + N_TOKEN_THREAD);
            }
            let w0 = w_tile[w_at];
            let w1 = w_tile[w_at + step];
            sums[0] = add4(sums[0], w0, x);
            sums[2] = add4(sums[2], w1, x);
            if N_QUAD == 2u {
                sums[1] = add4(sums[1], w0, y);
                sums[3] = add4(sums[3], w1, y);
            }
            if 4u <= N_ROW {
                let w2 = w_tile[w_at + 2u * step];
                let w3 = w_tile[w_at + 3u * step];
                sums[4] = add4(sums[4], w2, x);
                sums[6] = add4(sums[6], w3, x);
                if N_QUAD == 2u {
                    sums[5] = add4(sums[5], w2, y);
                    sums[7] = add4(sums[7], w3, y);
                }
            }
            if 8u <= N_ROW {
                let w4 = w_tile[w_at + 4u * step];
                let w5 = w_tile[w_at + 5u * step];
                let w6 = w_tile[w_at + 6u * step];
                let w7 = w_tile[w_at + 7u * step];
                sums[8] = add4(sums[8], w4, x);
                sums[10] = add4(sums[10], w5, x);
                sums[12] = add4(sums[12], w6, x);
                sums[14] = add4(sums[14], w7, x);
                if N_QUAD == 2u {
                    sums[9] = add4(sums[9], w4, y);
                    sums[11] = add4(sums[11], w5, y);
                    sums[13] = add4(sums[13], w6, y);
                    sums[15] = add4(sums[15], w7, y);
                }
            }
        }
    }
    return sums;
}

fn put4(tile: Tile, here: Place, i: u32, a: vec4<f32>, b: vec4<f32>) {
    let row = 2u * i * BLOCK + here.row;
    let token = 4u * here.quad;
    put(tile, row, token, a.x, b.x);
    put(tile, row, token + 1u, a.y, b.y);
    put(tile, row, token + 2u, a.z, b.z);
    put(tile, row, token + 3u, a.w, b.w);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tile = open(group);
    if tile.n_token <= tile.token {
        return;
    }
    let row = weights(tile, loaded_row(thread));
    let token = 4u * min(loaded_quad(thread), TILE_QUADS - 1u);
    let tokens = vec4(
        input_row(tile, token),
        input_row(tile, token + 1u),
        input_row(tile, token + 2u),
        input_row(tile, token + 3u),
    );
    let sums = tile_sums(row, tokens, n_col(), thread);
    let here = place(thread);
    let next = Place(here.row, here.quad + N_TOKEN_THREAD);
    put4(tile, here, 0u, sums[0], sums[2]);
    if N_QUAD == 2u {
        put4(tile, next, 0u, sums[1], sums[3]);
    }
    if 4u <= N_ROW {
        put4(tile, here, 1u, sums[4], sums[6]);
        if N_QUAD == 2u {
            put4(tile, next, 1u, sums[5], sums[7]);
        }
    }
    if 8u <= N_ROW {
        put4(tile, here, 2u, sums[8], sums[10]);
        put4(tile, here, 3u, sums[12], sums[14]);
        if N_QUAD == 2u {
            put4(tile, next, 2u, sums[9], sums[11]);
            put4(tile, next, 3u, sums[13], sums[15]);
        }
    }
}
