// How a matrix of affine codes lies in memory: `w = scale·code + bias`, one scale and bias for GROUP columns, in bf16,
// or in f16 where HALF is 1.
//
// A text that reads matrices has one of the `format_*.wgsl` before it, and the matrix's buffer as bindings 0 to 2, as
// words, pairs of words and fours. It gets
//   `row_at`      where a row starts: what the other functions take, a secret of the format,
//   `codes8`      eight codes as floats,
//   `scale_bias`  what makes numbers of them: `number = scale·code + bias`; the scale is 1 unless SCALED, the bias 0
//                 unless BIASED,
//   `code_max`    the largest code, or the largest magnitude of one where codes have signs,
// and for those who read rows from one end to the other, in chunks of CHUNK columns, in RUNS runs of one group each:
//   `load_chunk`, then `chunk4`, four codes of it, and `chunk_scale_bias`,
//   `vector_of`   which fours of the row's columns these are: a chunk's need not be neighbours, but 128 columns from a
//                 multiple of 128 on are whole chunks.
//
// Codes become floats without conversions, which are slow on some devices: a code of B bits at bit p of a float's
// mantissa, exponent 2^(23-p), is the number 2^(23-p) + code.

override BITS: u32;
override GROUP: u32;
override HALF: u32;

// Columns of a chunk.
const CHUNK: u32 = 32u;
const RUNS: u32 = 1u;
const SCALED: bool = true;
const BIASED: bool = true;

@group(0) @binding(0) var<storage, read> w: array<u32>;
@group(0) @binding(1) var<storage, read> w2: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> w4: array<vec4<u32>>;

struct Chunk {
    words: array<u32, 8>, // BITS of them
    scale: u32,
    bias: u32,
}

// Word of its codes, numbers of its first scale and bias, counted in half words.
fn row_at(planes: vec3<u32>, row: u32, cols: u32) -> vec3<u32> {
    let groups = row * (cols / GROUP);
    return vec3(planes.x + row * (cols / 32u * BITS), 2u * planes.y + groups, 2u * planes.z + groups);
}

// Codes `col .. col + 8`, `col` a multiple of 8; `n`, the columns from `col` on, is at least 8.
fn codes8(row: vec3<u32>, col: u32, n: u32) -> array<vec4<f32>, 2> {
    let byte = col / 8u * BITS;
    let at = row.x + byte / 4u;
    let shift = 8u * (byte % 4u);
    var low = w[at] >> shift;
    var high = 0u;
    if 32u < shift + 8u * BITS {
        let next = w[at + 1u];
        high = next >> shift;
        if shift != 0u {
            low |= next << (32u - shift);
        }
    }
    if BITS == 8u {
        return array(four(low), four(high));
    }
    let half = min(4u * BITS, 31u); // Shifts by 32 bits are refused even where they are never reached.
    return array(four(low), four((low >> half) | (high << (32u - half))));
}

fn scale_bias(row: vec3<u32>, col: u32) -> vec2<f32> {
    let group = row.yz + col / GROUP;
    return vec2(number_of(w[group.x / 2u], group.x), number_of(w[group.y / 2u], group.y));
}

fn code_max() -> f32 {
    return f32((1u << BITS) - 1u);
}

// Chunk number `chunk` of a row; `n`, the columns from its first on, is at least CHUNK.
fn load_chunk(row: vec3<u32>, chunk: u32, n: u32) -> Chunk {
    var c: Chunk;
    let at = row.x + chunk * BITS;
    if BITS % 4u == 0u {
        for (var i = 0u; i < BITS / 4u; i++) {
            let words = w4[at / 4u + i];
            c.words[4u * i] = words.x;
            c.words[4u * i + 1u] = words.y;
            c.words[4u * i + 2u] = words.z;
            c.words[4u * i + 3u] = words.w;
        }
    } else if BITS % 2u == 0u {
        for (var i = 0u; i < BITS / 2u; i++) {
            let words = w2[at / 2u + i];
            c.words[2u * i] = words.x;
            c.words[2u * i + 1u] = words.y;
        }
    } else {
        for (var i = 0u; i < BITS; i++) {
            c.words[i] = w[at + i];
        }
    }
    let group = row.yz + chunk * CHUNK / GROUP;
    c.scale = w[group.x / 2u];
    c.bias = w[group.y / 2u];
    return c;
}

fn vector_of(chunk: u32, k: u32) -> u32 {
    return chunk * 8u + k;
}

// Codes `4·k .. 4·k + 4` of a chunk.
fn chunk4(c: Chunk, k: u32) -> vec4<f32> {
    let bit = 4u * BITS * k;
    let shift = bit % 32u;
    var word = c.words[bit / 32u] >> shift;
    if 32u < shift + 4u * BITS {
        word |= c.words[bit / 32u + 1u] << (32u - shift);
    }
    return four(word);
}

// Scale and bias of chunk number `chunk`, which is `c`.
fn chunk_scale_bias(c: Chunk, row: vec3<u32>, chunk: u32, run: u32) -> vec2<f32> {
    let group = row.yz + chunk * CHUNK / GROUP;
    return vec2(number_of(c.scale, group.x), number_of(c.bias, group.y));
}

// The four codes in the low bits of a word.
fn four(word: u32) -> vec4<f32> {
    let mask = (1u << BITS) - 1u;
    if 4u * BITS <= 23u {
        let place = vec4(0u, BITS, 2u * BITS, 3u * BITS);
        return in_place(vec4(word) & (vec4(mask) << place), place);
    }
    let high = word >> (2u * BITS);
    let place = vec4(0u, BITS, 0u, BITS);
    return in_place(vec4(word, word, high, high) & (vec4(mask) << place), place);
}

fn in_place(codes: vec4<u32>, place: vec4<u32>) -> vec4<f32> {
    let exponent = (150u - place) << vec4(23u);
    return bitcast<vec4<f32>>(codes | exponent) - bitcast<vec4<f32>>(exponent);
}

// The lower half of a word for an even `index`, the upper one for an odd one.
fn number_of(word: u32, index: u32) -> f32 {
    if HALF == 1u {
        return half_of(select(word & 0xffffu, word >> 16u, index % 2u == 1u));
    }
    return bitcast<f32>(select(word << 16u, word & 0xffff0000u, index % 2u == 1u));
}
