// Attention of some query rows over a block of 64 positions. Rows are (token, head of the key/value head), ROWS of
// them a workgroup, four a thread in a vector; a thread has COLUMNS of the 64 columns, which are positions, then dims.
// Every sum is one chain in ascending order, whatever ROWS, COLUMNS and SLAB are.
// Needs `attention_fold.wgsl`, `activations.wgsl` before it.

override ROWS: u32; // a multiple of 4
override COLUMNS: u32; // 1 or 4
override SLAB: u32; // dims of keys, positions of values in workgroup memory at a time: 16 or 64
override N_THREAD: u32; // ROWS / 4 · 64 / COLUMNS
override FORMAT: u32;

const F16: u32 = 0u;
const BF16: u32 = 1u;
const F32: u32 = 2u;

struct Params {
    n_row: u32, // of a key/value head: n_token · n_rep
    n_rep: u32, // query heads of a key/value head
    n_head: u32,
    n_head_kv: u32,
    head_dim: u32,
    // From one query head to the next.
    q_stride: u32,
    pos: u32,
    n_pos: u32, // positions that may be read
    // Vectors of four words of a stored head: its codes; all of it.
    n_code: u32,
    n_word: u32,
    scale: f32,
    is_gated: u32,
    // Of a dispatch over blocks: its first block; where largest scores and sums are.
    first_block: u32,
    stats_at: u32,
    // Heads of tokens of `q` before ours.
    first_head: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> q: array<f32>; // [n_token, n_head, q_stride]
@group(0) @binding(1) var<storage, read> keys: array<vec4<u32>>; // [n_pos, n_head_kv, n_word]
@group(0) @binding(2) var<storage, read> values: array<vec4<u32>>; // [n_pos, n_head_kv, n_word]

override Q_STRIDE = ROWS / 4u + 1u; // odd: neighbours lie in different banks
override THREAD_COLUMNS = 64u / COLUMNS;
var<workgroup> kv_tile: array<f32, SLAB * 64u>; // [dim, position], then [position, dim]
var<workgroup> q_tile: array<vec4<f32>, SLAB * Q_STRIDE>; // [dim, row]
var<workgroup> weights_tile: array<vec4<f32>, 64u * Q_STRIDE>; // [position, row]: scores, then exponentials
var<workgroup> parts: array<vec4<f32>, 4u * ROWS>; // [16, row]

// What a thread works on.
struct Place {
    thread: u32,
    head_kv: u32,
    first_row: u32, // of the workgroup
    quad: u32, // of its rows
    column: u32, // its first column
    last: vec4<u32>, // position that each of its rows sees last
}

struct Stats {
    largest: vec4<f32>,
    sum: vec4<f32>,
}

fn row_of(place: Place, r: u32) -> u32 {
    return min(place.first_row + r, p.n_row - 1u);
}

// Head, counted over all tokens, of a row.
fn token_head(head_kv: u32, row: u32) -> u32 {
    return row / p.n_rep * p.n_head + head_kv * p.n_rep + row % p.n_rep;
}

fn place_of(thread: u32, head_kv: u32, tile: u32) -> Place {
    var place: Place;
    place.thread = thread;
    place.head_kv = head_kv;
    place.first_row = tile * ROWS;
    place.quad = thread / THREAD_COLUMNS;
    place.column = thread % THREAD_COLUMNS;
    let r = place.quad * 4u;
    let rows = vec4(row_of(place, r), row_of(place, r + 1u), row_of(place, r + 2u), row_of(place, r + 3u));
    place.last = vec4(p.pos) + rows / vec4(p.n_rep);
    return place;
}

struct Eight {
    a: vec4<f32>,
    b: vec4<f32>,
}

fn halves(word: u32) -> vec2<f32> {
    if FORMAT == F16 {
        return unpack2x16float(word);
    }
    return bitcast<vec2<f32>>(vec2(word << 16u, word & 0xffff0000u));
}

fn bytes(word: u32) -> vec4<f32> {
    let codes = bitcast<vec4<i32>>(vec4(word << 24u, word << 16u, word << 8u, word));
    return vec4<f32>(codes >> vec4(24u));
}

fn eight_halves(words: vec4<u32>) -> Eight {
    return Eight(vec4(halves(words.x), halves(words.y)), vec4(halves(words.z), halves(words.w)));
}

// Eight codes of 16, times their scale, one of eight in a vector.
fn eight_bytes(words: vec4<u32>, unit: u32, scales: vec4<u32>) -> Eight {
    let pair = select(words.xy, words.zw, (unit & 1u) == 1u);
    let group = unit / 4u;
    let word = scales[(group / 2u) % 4u];
    let scale = bitcast<f32>(select(word << 16u, word & 0xffff0000u, (group & 1u) == 1u));
    return Eight(bytes(pair.x) * scale, bytes(pair.y) * scale);
}

// Dims 8·unit .. of a key.
fn key_dims(position: u32, head_kv: u32, unit: u32) -> Eight {
    let at = (position * p.n_head_kv + head_kv) * p.n_word;
    if FORMAT == F32 {
        let b = min(2u * unit + 1u, p.n_word - 1u);
        return Eight(bitcast<vec4<f32>>(keys[at + 2u * unit]), bitcast<vec4<f32>>(keys[at + b]));
    }
    if FORMAT == F16 || FORMAT == BF16 {
        return eight_halves(keys[at + unit]);
    }
    return eight_bytes(keys[at + unit / 2u], unit, keys[at + p.n_code + unit / 32u]);
}

// Dims 8·unit .. of a value.
fn value_dims(position: u32, head_kv: u32, unit: u32) -> Eight {
    let at = (position * p.n_head_kv + head_kv) * p.n_word;
    if FORMAT == F32 {
        let b = min(2u * unit + 1u, p.n_word - 1u);
        return Eight(bitcast<vec4<f32>>(values[at + 2u * unit]), bitcast<vec4<f32>>(values[at + b]));
    }
    if FORMAT == F16 || FORMAT == BF16 {
        return eight_halves(values[at + unit]);
    }
    return eight_bytes(values[at + unit / 2u], unit, values[at + p.n_code + unit / 32u]);
}

fn load_keys(place: Place, block: u32, first_dim: u32) {
    for (var i = place.thread; i < SLAB * 8u; i += N_THREAD) {
        let column = i % 64u;
        let position = block * BLOCK + column;
        let unit = first_dim / 8u + i / 64u;
        var dims = Eight(vec4(0.0), vec4(0.0));
        if position < p.n_pos && unit * 8u < p.head_dim {
            dims = key_dims(position, place.head_kv, unit);
        }
        let at = i / 64u * 512u + column;
        kv_tile[at] = dims.a.x;
        kv_tile[at + 64u] = dims.a.y;
        kv_tile[at + 128u] = dims.a.z;
        kv_tile[at + 192u] = dims.a.w;
        kv_tile[at + 256u] = dims.b.x;
        kv_tile[at + 320u] = dims.b.y;
        kv_tile[at + 384u] = dims.b.z;
        kv_tile[at + 448u] = dims.b.w;
    }
}

fn load_values(place: Place, first_position: u32, first_dim: u32) {
    for (var i = place.thread; i < SLAB * 8u; i += N_THREAD) {
        let position = first_position + i / 8u;
        let unit = first_dim / 8u + i % 8u;
        var dims = Eight(vec4(0.0), vec4(0.0));
        if position < p.n_pos && unit * 8u < p.head_dim {
            dims = value_dims(position, place.head_kv, unit);
        }
        let at = i * 8u;
        kv_tile[at] = dims.a.x;
        kv_tile[at + 1u] = dims.a.y;
        kv_tile[at + 2u] = dims.a.z;
        kv_tile[at + 3u] = dims.a.w;
        kv_tile[at + 4u] = dims.b.x;
        kv_tile[at + 5u] = dims.b.y;
        kv_tile[at + 6u] = dims.b.z;
        kv_tile[at + 7u] = dims.b.w;
    }
}

fn query(place: Place, r: u32, dim: u32) -> f32 {
    if dim >= p.head_dim {
        return 0.0;
    }
    return q[(p.first_head + token_head(place.head_kv, row_of(place, r))) * p.q_stride + dim];
}

fn load_queries(place: Place, first_dim: u32) {
    for (var i = place.thread; i < SLAB * ROWS / 4u; i += N_THREAD) {
        let dim = first_dim + i % SLAB;
        let r = i / SLAB * 4u;
        q_tile[i % SLAB * Q_STRIDE + i / SLAB] =
            vec4(query(place, r, dim), query(place, r + 1u, dim), query(place, r + 2u, dim), query(place, r + 3u, dim));
    }
}

fn store_scores(place: Place, block: u32, column: u32, dots: vec4<f32>) {
    let is_seen = vec4(block * BLOCK + column) <= place.last;
    weights_tile[column * Q_STRIDE + place.quad] = select(vec4(UNSEEN), dots * p.scale, is_seen);
}

// Fills `weights_tile` with scores.
fn score(place: Place, block: u32) {
    var s0 = vec4(0.0);
    var s1 = vec4(0.0);
    var s2 = vec4(0.0);
    var s3 = vec4(0.0);
    for (var dim = 0u; dim < p.head_dim; dim += SLAB) {
        workgroupBarrier();
        load_keys(place, block, dim);
        load_queries(place, dim);
        workgroupBarrier();
        for (var d = 0u; d < SLAB; d++) {
            let rows = q_tile[d * Q_STRIDE + place.quad];
            let at = d * 64u + place.column;
            s0 = fma(vec4(kv_tile[at]), rows, s0);
            if COLUMNS == 4u {
                s1 = fma(vec4(kv_tile[at + 16u]), rows, s1);
                s2 = fma(vec4(kv_tile[at + 32u]), rows, s2);
                s3 = fma(vec4(kv_tile[at + 48u]), rows, s3);
            }
        }
    }
    store_scores(place, block, place.column, s0);
    if COLUMNS == 4u {
        store_scores(place, block, place.column + 16u, s1);
        store_scores(place, block, place.column + 32u, s2);
        store_scores(place, block, place.column + 48u, s3);
    }
}

// Makes exponentials of the scores; largest scores and sums of a thread's rows.
fn softmax(place: Place) -> Stats {
    let n_quad = ROWS / 4u;
    workgroupBarrier();
    for (var i = place.thread; i < 16u * n_quad; i += N_THREAD) {
        let at = i / n_quad * 4u * Q_STRIDE + i % n_quad;
        let a = max(weights_tile[at], weights_tile[at + Q_STRIDE]);
        let b = max(weights_tile[at + 2u * Q_STRIDE], weights_tile[at + 3u * Q_STRIDE]);
        parts[i] = max(a, b);
    }
    workgroupBarrier();
    var stats = Stats(largest_of(place.quad), vec4(0.0));
    for (var i = place.thread; i < 16u * n_quad; i += N_THREAD) {
        let largest = largest_of(i % n_quad);
        for (var j = 0u; j < 4u; j++) {
            let at = (i / n_quad * 4u + j) * Q_STRIDE + i % n_quad;
            let score = weights_tile[at];
            weights_tile[at] = select(exp(score - largest), vec4(0.0), score < vec4(UNSEEN_BELOW));
        }
    }
    workgroupBarrier();
    for (var i = place.thread; i < 16u * n_quad; i += N_THREAD) {
        let at = i / n_quad * 4u * Q_STRIDE + i % n_quad;
        var sum = weights_tile[at];
        for (var j = 1u; j < 4u; j++) {
            sum += weights_tile[at + j * Q_STRIDE];
        }
        parts[i] = sum;
    }
    workgroupBarrier();
    for (var part = 0u; part < 16u; part++) {
        stats.sum += parts[part * n_quad + place.quad];
    }
    return stats;
}

fn largest_of(quad: u32) -> vec4<f32> {
    var largest = parts[quad];
    for (var part = 1u; part < 16u; part++) {
        largest = max(largest, parts[part * (ROWS / 4u) + quad]);
    }
    return largest;
}

// Sums of the values of 64 dims, the thread's rows in a vector: its columns.
fn weigh(place: Place, block: u32, first_dim: u32) -> array<vec4<f32>, 4> {
    var o0 = vec4(0.0);
    var o1 = vec4(0.0);
    var o2 = vec4(0.0);
    var o3 = vec4(0.0);
    for (var position = 0u; position < BLOCK; position += SLAB) {
        workgroupBarrier();
        load_values(place, block * BLOCK + position, first_dim);
        workgroupBarrier();
        for (var i = 0u; i < SLAB; i++) {
            let rows = weights_tile[(position + i) * Q_STRIDE + place.quad];
            let at = i * 64u + place.column;
            o0 = fma(vec4(kv_tile[at]), rows, o0);
            if COLUMNS == 4u {
                o1 = fma(vec4(kv_tile[at + 16u]), rows, o1);
                o2 = fma(vec4(kv_tile[at + 32u]), rows, o2);
                o3 = fma(vec4(kv_tile[at + 48u]), rows, o3);
            }
        }
    }
    return array(o0, o1, o2, o3);
}
