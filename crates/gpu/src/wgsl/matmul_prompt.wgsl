// out[t·stride + at + r] = w[r] · x[first + t].
// Needs a format before it, and `prompt_tile.wgsl` or `prompt_coop.wgsl`, which say what is here.

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

@group(0) @binding(5) var<storage, read_write> out: array<f32>;

struct Tile {
    row: u32,
    token: u32,
    n_token: u32,
}

fn open(group: vec3<u32>) -> Tile {
    return Tile(group.x * TILE_ROWS, group.y * TILE_TOKENS, p.n_token);
}

fn n_col() -> u32 {
    return p.cols;
}

fn weights(tile: Tile, row: u32) -> vec3<u32> {
    return row_at(vec3(p.codes, p.scales, p.biases), min(tile.row + row, p.rows - 1u), p.cols);
}

fn input_row(tile: Tile, token: u32) -> u32 {
    return p.first + min(tile.token + token, p.n_token - 1u);
}

fn put(tile: Tile, tile_row: u32, tile_token: u32, a: f32, b: f32) {
    let row = tile.row + tile_row;
    let token = tile.token + tile_token;
    if token < p.n_token {
        let at = token * p.stride + p.at + row;
        if row < p.rows {
            out[at] = a;
        }
        if row + BLOCK < p.rows {
            out[at + BLOCK] = b;
        }
    }
}
