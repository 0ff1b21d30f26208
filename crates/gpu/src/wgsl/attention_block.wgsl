// Attention of 64 query rows over a block of 64 positions. A thread has four rows, in a vector, and four columns, which
// are positions, then dims. A dot is summed up 32 dims at a time, weighted values 16 positions at a time; these sums
// are added in order, as in `attention_step.wgsl`.
// Needs `attention_fold.wgsl`, `activations.wgsl`, `attention_cache.wgsl` before it.

const ROWS: u32 = 64u;
const N_THREAD: u32 = 256u;
const SLAB: u32 = 16u; // dims of keys, positions of values in workgroup memory at a time
const Q_STRIDE: u32 = 17u; // odd: neighbours lie in different banks
const N_QUAD: u32 = 16u;

@group(0) @binding(2) var<storage, read> values: array<vec4<u32>>; // [n_pos, n_head_kv, n_word]

var<workgroup> kv_tile: array<f32, 1024>; // [dim, position], then [position, dim]
var<workgroup> q_tile: array<vec4<f32>, 272>; // [dim, row]
var<workgroup> weights_tile: array<vec4<f32>, 1088>; // [position, row]: scores, then exponentials
var<workgroup> parts: array<vec4<f32>, 256>; // [16, row]

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

fn place_of(thread: u32, head_kv: u32, tile: u32) -> Place {
    var place: Place;
    place.thread = thread;
    place.head_kv = head_kv;
    place.first_row = tile * ROWS;
    place.quad = thread / N_QUAD;
    place.column = thread % N_QUAD;
    let r = place.quad * 4u;
    let rows = vec4(row_of(place, r), row_of(place, r + 1u), row_of(place, r + 2u), row_of(place, r + 3u));
    place.last = vec4(p.pos) + rows / vec4(p.n_rep);
    return place;
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

fn load_queries(place: Place, first_dim: u32) {
    let dim = first_dim + place.thread % SLAB;
    let r = place.thread / SLAB * 4u;
    q_tile[place.thread % SLAB * Q_STRIDE + place.thread / SLAB] = vec4(
        query(place.head_kv, row_of(place, r), dim),
        query(place.head_kv, row_of(place, r + 1u), dim),
        query(place.head_kv, row_of(place, r + 2u), dim),
        query(place.head_kv, row_of(place, r + 3u), dim),
    );
}

fn store_scores(place: Place, block: u32, column: u32, dots: vec4<f32>) {
    weights_tile[column * Q_STRIDE + place.quad] = score_of(dots, block * BLOCK + column, place.last);
}

// Fills `weights_tile` with scores.
fn score(place: Place, block: u32) {
    var sums = array(vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    var chains = array(vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    for (var dim = 0u; dim < p.head_dim; dim += SLAB) {
        workgroupBarrier();
        load_keys(place, block, dim);
        load_queries(place, dim);
        workgroupBarrier();
        for (var d = 0u; d < SLAB; d++) {
            let rows = q_tile[d * Q_STRIDE + place.quad];
            let at = d * 64u + place.column;
            for (var j = 0u; j < 4u; j++) {
                chains[j] = fma(vec4(kv_tile[at + 16u * j]), rows, chains[j]);
            }
        }
        if dim % DOT_DIMS + SLAB == DOT_DIMS || dim + SLAB >= p.head_dim {
            for (var j = 0u; j < 4u; j++) {
                sums[j] += chains[j];
                chains[j] = vec4(0.0);
            }
        }
    }
    for (var j = 0u; j < 4u; j++) {
        store_scores(place, block, place.column + 16u * j, sums[j]);
    }
}

// Makes exponentials of the scores; largest scores and sums of a thread's rows.
fn softmax(place: Place) -> Stats {
    // Four positions and four rows.
    let quad = place.thread % N_QUAD;
    let at = place.thread / N_QUAD * 4u * Q_STRIDE + quad;
    workgroupBarrier();
    let a = max(weights_tile[at], weights_tile[at + Q_STRIDE]);
    let b = max(weights_tile[at + 2u * Q_STRIDE], weights_tile[at + 3u * Q_STRIDE]);
    parts[place.thread] = max(a, b);
    workgroupBarrier();
    var stats = Stats(largest_of(place.quad), vec4(0.0));
    let largest = largest_of(quad);
    for (var j = 0u; j < 4u; j++) {
        let score = weights_tile[at + j * Q_STRIDE];
        weights_tile[at + j * Q_STRIDE] = exponential(score, largest);
    }
    workgroupBarrier();
    var sum = weights_tile[at];
    for (var j = 1u; j < 4u; j++) {
        sum += weights_tile[at + j * Q_STRIDE];
    }
    parts[place.thread] = sum;
    workgroupBarrier();
    for (var part = 0u; part < 16u; part++) {
        stats.sum += parts[part * N_QUAD + place.quad];
    }
    return stats;
}

fn largest_of(quad: u32) -> vec4<f32> {
    var largest = parts[quad];
    for (var part = 1u; part < 16u; part++) {
        largest = max(largest, parts[part * N_QUAD + quad]);
    }
    return largest;
}

// Sums of the values of 64 dims, the thread's rows in a vector: its columns.
fn weigh(place: Place, block: u32, first_dim: u32) -> array<vec4<f32>, 4> {
    var sums = array(vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    for (var position = 0u; position < BLOCK; position += SLAB) {
        workgroupBarrier();
        load_values(place, block * BLOCK + position, first_dim);
        workgroupBarrier();
        var chains = array(vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
        for (var i = 0u; i < SLAB; i++) {
            let rows = weights_tile[(position + i) * Q_STRIDE + place.quad];
            let at = i * 64u + place.column;
            for (var j = 0u; j < 4u; j++) {
                chains[j] = fma(vec4(kv_tile[at + 16u * j]), rows, chains[j]);
            }
        }
        for (var j = 0u; j < 4u; j++) {
            sums[j] += chains[j];
        }
    }
    return sums;
}
