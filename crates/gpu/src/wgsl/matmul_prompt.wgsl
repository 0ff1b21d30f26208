// out[t·stride + at + r] = w[r] · x[first + t]: a workgroup a tile of rows and tokens.
// Needs a format and `prompt_tile.wgsl` before it.

struct Params {
    rows: u32,
    cols: u32,
    first: u32,
    n_token: u32,
    stride: u32,
    at: u32,
    codes: u32, // Where planes start in w.
    scales: u32,
    biases: u32,
}
var<immediate> p: Params;

@group(0) @binding(3) var<storage, read> x: array<f32>; // [_, cols]
@group(0) @binding(4) var<storage, read> x4: array<vec4<f32>>; // The same.
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

// Where a workgroup's tile starts.
struct Tile {
    row: u32,
    token: u32,
}

fn put(row: u32, token: u32, sum: vec4<f32>) {
    if p.rows <= row {
        return;
    }
    let at = p.at + row;
    if token < p.n_token {
        out[token * p.stride + at] = sum.x;
    }
    if token + 1u < p.n_token {
        out[(token + 1u) * p.stride + at] = sum.y;
    }
    if token + 2u < p.n_token {
        out[(token + 2u) * p.stride + at] = sum.z;
    }
    if token + 3u < p.n_token {
        out[(token + 3u) * p.stride + at] = sum.w;
    }
}

fn finish(tile: Tile, here: Place, i: u32, a: vec4<f32>, b: vec4<f32>) {
    let row = tile.row + 2u * i * N_ROW_THREAD + here.row;
    let token = tile.token + here.quad * 4u;
    put(row, token, a);
    put(row + N_ROW_THREAD, token, b);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tile = Tile(group.x * TILE_ROWS, group.y * TILE_TOKENS);
    // Rows and tokens beyond the last are the last once more.
    let row = min(tile.row + loaded_row(thread), p.rows - 1u);
    let token = tile.token + loaded_quad(thread) * 4u;
    let tokens = min(vec4(token) + vec4(0u, 1u, 2u, 3u), vec4(p.n_token - 1u));
    let at = row_at(vec3(p.codes, p.scales, p.biases), row, p.cols);
    let sums = tile_sums(at, p.first + tokens, p.cols, thread);
    finish_all(sums, tile, thread);
}
