// One step of the experts of many tokens: a workgroup a tile of rows and of an expert's tokens.
// Needs a format and `prompt_tile.wgsl` before it.

// 0: hidden = silu(gate · x) ⊙ (up · x). 1: hidden = gate · x. 2: hidden = silu(hidden) ⊙ (up · x).
// 3: out = down · hidden.
override STEP: u32;

struct Params {
    jobs_at: u32, // Where jobs start, four words each.
    rows: u32,
    cols: u32,
    codes: u32, // Where planes start in a record.
    scales: u32,
    biases: u32,
    up_codes: u32, // Those of `up` where both are needed.
    up_scales: u32,
    up_biases: u32,
}
var<immediate> p: Params;

@group(0) @binding(3) var<storage, read> jobs: array<u32>;
@group(0) @binding(4) var<storage, read> x: array<f32>; // [_, cols]
@group(0) @binding(5) var<storage, read> x4: array<vec4<f32>>; // The same.
@group(0) @binding(6) var<storage, read_write> out: array<f32>; // [_, rows]

// An expert, and where the workgroup's tile starts.
struct Tile {
    row: u32,
    token: u32,
    pairs_at: u32, // Where pairs of rows start: x's, out's.
    n_token: u32,
    first_pair: u32, // The row of `hidden` of its first token.
}

fn silu(x: f32) -> f32 {
    // Bounded, because some devices compute as if there were no infinity.
    return x / (1.0 + exp(min(-x, 80.0)));
}

fn put_one(tile: Tile, row: u32, token: u32, a: f32, b: f32) {
    if tile.n_token <= token {
        return;
    }
    var row_out = tile.first_pair + token;
    if STEP == 3u {
        row_out = jobs[tile.pairs_at + 2u * token + 1u];
    }
    let at = row_out * p.rows + row;
    if STEP == 0u {
        out[at] = silu(a) * b;
        return;
    }
    if STEP == 2u {
        out[at] = silu(out[at]) * a;
        return;
    }
    out[at] = a;
}

fn put(tile: Tile, row: u32, token: u32, a: vec4<f32>, b: vec4<f32>) {
    if row < p.rows {
        put_one(tile, row, token, a.x, b.x);
        put_one(tile, row, token + 1u, a.y, b.y);
        put_one(tile, row, token + 2u, a.z, b.z);
        put_one(tile, row, token + 3u, a.w, b.w);
    }
}

fn finish(tile: Tile, here: Place, i: u32, a: vec4<f32>, b: vec4<f32>) {
    let token = tile.token + here.quad * 4u;
    if STEP == 0u {
        put(tile, tile.row + i * N_ROW_THREAD + here.row, token, a, b);
        return;
    }
    let row = tile.row + 2u * i * N_ROW_THREAD + here.row;
    put(tile, row, token, a, a);
    put(tile, row + N_ROW_THREAD, token, b, b);
}

// The weights of a row of the tile. Rows of gate and up take turns, so that a thread has both.
fn weights(tile: Tile, tile_row: u32, record_at: u32) -> vec3<u32> {
    var planes = vec3(p.codes, p.scales, p.biases);
    var row = tile.row + tile_row;
    if STEP == 0u {
        let block = tile_row / N_ROW_THREAD;
        row = tile.row + block / 2u * N_ROW_THREAD + tile_row % N_ROW_THREAD;
        if block % 2u == 1u {
            planes = vec3(p.up_codes, p.up_scales, p.up_biases);
        }
    }
    return row_at(record_at + planes, min(row, p.rows - 1u), p.cols);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let job = p.jobs_at + group.z * 4u;
    let n_token = jobs[job + 2u];
    let first_token = group.y * TILE_TOKENS;
    if n_token <= first_token {
        return;
    }
    let n_row = select(TILE_ROWS, TILE_ROWS / 2u, STEP == 0u);
    let tile = Tile(group.x * n_row, first_token, jobs[job + 1u], n_token, jobs[job + 3u]);
    let token = tile.token + loaded_quad(thread) * 4u;
    // Rows and tokens beyond the last are the last once more.
    let tokens = min(vec4(token) + vec4(0u, 1u, 2u, 3u), vec4(n_token - 1u));
    var rows_in = tile.first_pair + tokens;
    if STEP != 3u {
        let at = tile.pairs_at + 2u * tokens;
        rows_in = vec4(jobs[at.x], jobs[at.y], jobs[at.z], jobs[at.w]);
    }
    let row = weights(tile, loaded_row(thread), jobs[job]);
    let sums = tile_sums(row, rows_in, p.cols, thread);
    finish_all(sums, tile, thread);
}
