// Queries and stored keys and values. Rows are (token, head of the key/value head).
// Needs `attention_fold.wgsl` before it.

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
    // Heads of tokens of `q` and of the output before ours.
    first_head: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> q: array<f32>; // [n_token, n_head, q_stride]
@group(0) @binding(1) var<storage, read> keys: array<vec4<u32>>; // [n_pos, n_head_kv, n_word]

// Head, counted over all tokens, of a row.
fn token_head(head_kv: u32, row: u32) -> u32 {
    return row / p.n_rep * p.n_head + head_kv * p.n_rep + row % p.n_rep;
}

// Of four dots with the key of a position, whose rows see so far.
fn score_of(dots: vec4<f32>, position: u32, last: vec4<u32>) -> vec4<f32> {
    return select(vec4(UNSEEN), dots * p.scale, vec4(position) <= last);
}

fn exponential(score: vec4<f32>, largest: vec4<f32>) -> vec4<f32> {
    return select(exp(score - largest), vec4(0.0), score < vec4(UNSEEN_BELOW));
}

// Number `dim` of a row's query.
fn query(head_kv: u32, row: u32, dim: u32) -> f32 {
    let value = q[(p.first_head + token_head(head_kv, row)) * p.q_stride + min(dim, p.head_dim - 1u)];
    return select(0.0, value, dim < p.head_dim);
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
