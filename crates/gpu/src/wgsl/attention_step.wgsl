// Attention of few query rows over a block of 64 positions, a workgroup a block: largest scores, sums and weighted
// values, for `attention_merge.wgsl`. What a block needs is on its way before any of it is needed. A thread has two
// positions and 32 dims of their keys, then four dims and 16 positions of the values; what threads found is added in
// order, as in `attention_block.wgsl`.
// Needs `attention_fold.wgsl`, `attention_cache.wgsl` before it.

override N_QUAD: u32; // fours of rows of a workgroup: 1 or 2

const N_THREAD: u32 = 256u;
const PASS: u32 = 256u; // dims at a time
const N_CHAIN: u32 = 8u; // PASS / DOT_DIMS
const CHAIN_STRIDE: u32 = 9u; // odd, as below: neighbours lie in different banks
const QUARTER: u32 = 264u;
const QUARTER_DIM: u32 = 66u;

@group(0) @binding(2) var<storage, read> values: array<vec2<u32>>; // [n_pos, n_head_kv, 2 · n_word]
// [n_block, n_token · n_head, head_dim], then from `stats_at` on [n_block, n_token · n_head, 2]
@group(0) @binding(3) var<storage, read_write> partials: array<f32>;

var<workgroup> q_tile: array<vec4<f32>, 520>; // [dim, quad], a vector more every DOT_DIMS dims
// Dots, [position, chain, quad]; then weighted values, [16 positions, dim].
var<workgroup> sums: array<vec4<f32>, 1152>;
var<workgroup> scores: array<vec4<f32>, 128>; // [quad, position]
var<workgroup> weights: array<vec4<f32>, 128>; // [position, quad]
var<workgroup> parts: array<vec4<f32>, 32>; // [4 positions, quad]

struct Place {
    thread: u32,
    head_kv: u32,
    first_row: u32, // of the workgroup
    block: u32,
}

fn row_of(place: Place, r: u32) -> u32 {
    return min(place.first_row + r, p.n_row - 1u);
}

fn position_of(place: Place, i: u32) -> u32 {
    return min(place.block * BLOCK + i, p.n_pos - 1u);
}

// Where dim `dim` of a pass is in `q_tile`.
fn q_at(dim: u32) -> u32 {
    return dim * N_QUAD + dim / DOT_DIMS;
}

fn load_queries(place: Place, first_dim: u32) {
    for (var quad = 0u; quad < N_QUAD; quad++) {
        var four: vec4<f32>;
        for (var r = 0u; r < 4u; r++) {
            four[r] = query(place.head_kv, row_of(place, quad * 4u + r), first_dim + place.thread);
        }
        q_tile[q_at(place.thread) + quad] = four;
    }
}

// Dims of two keys, 32 apart: [position, unit].
fn load_keys(place: Place, first_dim: u32) -> array<Eight, 8> {
    let first_unit = (first_dim + place.thread % N_CHAIN * DOT_DIMS) / 8u;
    let last_unit = (p.head_dim - 1u) / 8u;
    var dims: array<Eight, 8>;
    for (var i = 0u; i < 8u; i++) {
        let position = position_of(place, place.thread / N_CHAIN + i / 4u * 32u);
        // What lies behind the last dim is multiplied with 0.
        dims[i] = key_dims(position, place.head_kv, min(first_unit + i % 4u, last_unit));
    }
    return dims;
}

// Four rows' sums, [position, quad], and a dim more of two positions.
fn multiplied(old: array<vec4<f32>, 4>, dim: u32, a: f32, b: f32) -> array<vec4<f32>, 4> {
    var chains = old;
    for (var quad = 0u; quad < N_QUAD; quad++) {
        let rows = q_tile[q_at(dim) + quad];
        chains[quad] = fma(vec4(a), rows, chains[quad]);
        chains[2u + quad] = fma(vec4(b), rows, chains[2u + quad]);
    }
    return chains;
}

// One chain of each of two positions, to `sums`.
fn multiply_keys(place: Place, keys: array<Eight, 8>) {
    var dims = keys;
    var chains: array<vec4<f32>, 4>;
    let chain = place.thread % N_CHAIN;
    for (var unit = 0u; unit < 4u; unit++) {
        let dim = chain * DOT_DIMS + unit * 8u;
        let a = dims[unit];
        let b = dims[unit + 4u];
        chains = multiplied(chains, dim, a.a.x, b.a.x);
        chains = multiplied(chains, dim + 1u, a.a.y, b.a.y);
        chains = multiplied(chains, dim + 2u, a.a.z, b.a.z);
        chains = multiplied(chains, dim + 3u, a.a.w, b.a.w);
        chains = multiplied(chains, dim + 4u, a.b.x, b.b.x);
        chains = multiplied(chains, dim + 5u, a.b.y, b.b.y);
        chains = multiplied(chains, dim + 6u, a.b.z, b.b.z);
        chains = multiplied(chains, dim + 7u, a.b.w, b.b.w);
    }
    for (var i = 0u; i < 2u; i++) {
        let at = (place.thread / N_CHAIN + i * 32u) * CHAIN_STRIDE + chain;
        for (var quad = 0u; quad < N_QUAD; quad++) {
            sums[at * N_QUAD + quad] = chains[i * 2u + quad];
        }
    }
}

// Four dims of a value as they are stored, one of four in a vector.
fn load_value(position: u32, head_kv: u32, four: u32) -> vec4<u32> {
    let at = (position * p.n_head_kv + head_kv) * p.n_word * 2u;
    if FORMAT == F32 {
        return vec4(values[at + 2u * four], values[at + 2u * four + 1u]);
    }
    if FORMAT == F16 || FORMAT == BF16 {
        return vec4(values[at + four], 0u, 0u);
    }
    // Codes, and two scales.
    return vec4(values[at + four / 2u][four & 1u], values[at + 2u * p.n_code + four / 32u][four / 16u & 1u], 0u, 0u);
}

fn decode_value(words: vec4<u32>, four: u32) -> vec4<f32> {
    if FORMAT == F32 {
        return bitcast<vec4<f32>>(words);
    }
    if FORMAT == F16 || FORMAT == BF16 {
        return vec4(halves(words.x), halves(words.y));
    }
    let scale = select(words.y << 16u, words.y & 0xffff0000u, (four / 8u & 1u) == 1u);
    return bytes(words.x) * bitcast<f32>(scale);
}

// The thread's four dims, behind `first_dim`.
fn four_of(place: Place, first_dim: u32) -> u32 {
    return min(first_dim / 4u + place.thread % 64u, (p.head_dim - 1u) / 4u);
}

fn load_values(place: Place, first_dim: u32) -> array<vec4<u32>, 16> {
    var words: array<vec4<u32>, 16>;
    for (var i = 0u; i < 16u; i++) {
        let position = position_of(place, place.thread / 64u * 16u + i);
        words[i] = load_value(position, place.head_kv, four_of(place, first_dim));
    }
    return words;
}

// Adds up 16 positions in a thread, then these sums, and writes them.
fn weigh(place: Place, first_dim: u32, stored: array<vec4<u32>, 16>) {
    var words = stored;
    let part = place.thread / 64u;
    var chains: array<vec4<f32>, 8>; // [quad, dim]
    for (var i = 0u; i < 16u; i++) {
        let dims = decode_value(words[i], four_of(place, first_dim));
        for (var quad = 0u; quad < N_QUAD; quad++) {
            let rows = weights[(part * 16u + i) * N_QUAD + quad];
            for (var d = 0u; d < 4u; d++) {
                chains[quad * 4u + d] = fma(vec4(dims[d]), rows, chains[quad * 4u + d]);
            }
        }
    }
    let dim = first_dim + place.thread;
    for (var quad = 0u; quad < N_QUAD; quad++) {
        if quad > 0u || first_dim > 0u {
            workgroupBarrier();
        }
        for (var d = 0u; d < 4u; d++) {
            sums[part * QUARTER + d * QUARTER_DIM + place.thread % 64u] = chains[quad * 4u + d];
        }
        workgroupBarrier();
        var total = vec4(0.0);
        for (var i = 0u; i < 4u; i++) {
            total += sums[i * QUARTER + place.thread % 4u * QUARTER_DIM + place.thread / 4u];
        }
        for (var r = 0u; r < 4u; r++) {
            let row = place.first_row + quad * 4u + r;
            if row < p.n_row && dim < p.head_dim {
                partials[row_at(place, row) * p.head_dim + dim] = total[r];
            }
        }
    }
}

// A row's number among those of all blocks of the dispatch.
fn row_at(place: Place, row: u32) -> u32 {
    return (place.block - p.first_block) * p.n_head_kv * p.n_row + token_head(place.head_kv, row);
}

@compute @workgroup_size(N_THREAD)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let n_tile = (p.n_row + 4u * N_QUAD - 1u) / (4u * N_QUAD);
    let place = Place(thread, group.y / n_tile, group.y % n_tile * 4u * N_QUAD, p.first_block + group.x);
    var stored = load_values(place, 0u);

    // Threads of which each has a position and four rows.
    let position = thread % BLOCK;
    let quad = thread / BLOCK;
    var dots = vec4(0.0);
    for (var dim = 0u; dim < p.head_dim; dim += PASS) {
        load_queries(place, dim);
        let keys = load_keys(place, dim);
        workgroupBarrier();
        multiply_keys(place, keys);
        workgroupBarrier();
        if quad < N_QUAD {
            for (var chain = 0u; chain < N_CHAIN; chain++) {
                dots += sums[(position * CHAIN_STRIDE + chain) * N_QUAD + quad];
            }
        }
    }
    let r = quad * 4u;
    let rows = vec4(row_of(place, r), row_of(place, r + 1u), row_of(place, r + 2u), row_of(place, r + 3u));
    let score = score_of(dots, place.block * BLOCK + position, vec4(p.pos) + rows / vec4(p.n_rep));
    if quad < N_QUAD {
        scores[quad * BLOCK + position] = score;
    }
    workgroupBarrier();
    var largest = vec4(UNSEEN);
    if quad < N_QUAD {
        for (var i = 0u; i < BLOCK; i++) {
            largest = max(largest, scores[quad * BLOCK + i]);
        }
        weights[position * N_QUAD + quad] = exponential(score, largest);
    }
    workgroupBarrier();
    if thread < 16u * N_QUAD {
        let at = thread / N_QUAD * 4u * N_QUAD + thread % N_QUAD;
        var sum = weights[at];
        for (var j = 1u; j < 4u; j++) {
            sum += weights[at + j * N_QUAD];
        }
        parts[thread] = sum;
    }
    for (var dim = 0u; dim < p.head_dim; dim += PASS) {
        if dim > 0u {
            stored = load_values(place, dim);
        }
        weigh(place, dim, stored);
    }
    // Behind the barriers above.
    if quad < N_QUAD && position == 0u {
        var sum = vec4(0.0);
        for (var part = 0u; part < 16u; part++) {
            sum += parts[part * N_QUAD + quad];
        }
        for (var i = 0u; i < 4u; i++) {
            let row = place.first_row + r + i;
            if row < p.n_row {
                let at = p.stats_at + 2u * row_at(place, row);
                partials[at] = largest[i];
                partials[at + 1u] = sum[i];
            }
        }
    }
}
