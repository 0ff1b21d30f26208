// One step of the experts of many tokens.
// Needs a format before it, and `prompt_tile.wgsl` or `prompt_coop.wgsl`, which say what is here.

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

@group(0) @binding(5) var<storage, read> jobs: array<u32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>; // [_, rows]

struct Tile {
    row: u32, // Of `hidden`, where rows of gate and up take turns.
    token: u32,
    n_token: u32,
    record_at: u32,
    pairs_at: u32, // Where pairs of rows start: x's, out's.
    first_pair: u32, // The row of `hidden` of the expert's first token.
}

fn open(group: vec3<u32>) -> Tile {
    let job = p.jobs_at + group.z * 4u;
    let n_row = select(TILE_ROWS, TILE_ROWS / 2u, STEP == 0u);
    let token = group.y * TILE_TOKENS;
    return Tile(group.x * n_row, token, jobs[job + 2u], jobs[job], jobs[job + 1u], jobs[job + 3u]);
}

fn n_col() -> u32 {
    return p.cols;
}

fn weights(tile: Tile, tile_row: u32) -> vec3<u32> {
    var planes = vec3(p.codes, p.scales, p.biases);
    var row = tile.row + tile_row;
    if STEP == 0u {
        row = tile.row + hidden_row(tile_row);
        if tile_row / BLOCK % 2u == 1u {
            planes = vec3(p.up_codes, p.up_scales, p.up_biases);
        }
    }
    return row_at(tile.record_at + planes, min(row, p.rows - 1u), p.cols);
}

// The row of gate or up that is a row of a tile: blocks take turns, so that a thread gets both.
fn hidden_row(tile_row: u32) -> u32 {
    return tile_row / (2u * BLOCK) * BLOCK + tile_row % BLOCK;
}

fn input_row(tile: Tile, tile_token: u32) -> u32 {
    let token = min(tile.token + tile_token, tile.n_token - 1u);
    if STEP == 3u {
        return tile.first_pair + token;
    }
    return jobs[tile.pairs_at + 2u * token];
}

fn silu(x: f32) -> f32 {
    // Bounded, because some devices compute as if there were no infinity.
    return x / (1.0 + exp(min(-x, 80.0)));
}

fn put(tile: Tile, tile_row: u32, tile_token: u32, a: f32, b: f32) {
    let token = tile.token + tile_token;
    if tile.n_token <= token {
        return;
    }
    if STEP == 0u {
        let row = tile.row + hidden_row(tile_row);
        if row < p.rows {
            out[(tile.first_pair + token) * p.rows + row] = silu(a) * b;
        }
        return;
    }
    var row_out = tile.first_pair + token;
    if STEP == 3u {
        row_out = jobs[tile.pairs_at + 2u * token + 1u];
    }
    let row = tile.row + tile_row;
    let at = row_out * p.rows + row;
    if row < p.rows {
        put_one(at, a);
    }
    if row + BLOCK < p.rows {
        put_one(at + BLOCK, b);
    }
}

fn put_one(at: u32, sum: f32) {
    if STEP == 2u {
        out[at] = silu(out[at]) * sum;
        return;
    }
    out[at] = sum;
}
