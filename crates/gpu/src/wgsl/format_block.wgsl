// How matrices of a GGUF file's blocks lie in memory, and microscaling floats whose scales are a plane of their own:
// `w = scale·code + bias`, codes signed bytes. `format_affine.wgsl` says what a format has.
//
// Blocks of 17, 34 or 210 bytes start anywhere in a word; those of 136, 144 and 176 at pairs or fours of words, as rows
// of them do. What is read of a matrix are words that hold a byte of it. A chunk is 32 columns whose codes lie side by
// side: `vector_of` says which they are.

override KIND: u32;
override GROUP: u32; // Columns that share a scale.
override RUNS: u32; // Of a chunk: each has a scale.

const Q8_0 = 0u;
const Q4_K = 1u;
const Q5_K = 2u;
const Q6_K = 3u;
const IQ4_XS = 4u;
const MXFP4 = 5u;
const MXFP4_PLANES = 6u;

const CHUNK: u32 = 32u;
const SCALED: bool = true;
override BIASED: bool = KIND == Q4_K || KIND == Q5_K;

@group(0) @binding(0) var<storage, read> w: array<u32>;
@group(0) @binding(1) var<storage, read> w2: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> w4: array<vec4<u32>>;

struct Chunk {
    words: array<u32, 8>, // codes, and their top bits behind them
    head: vec4<u32>,
}

fn block_cols() -> u32 {
    return select(256u, 32u, KIND == Q8_0 || KIND == MXFP4 || KIND == MXFP4_PLANES);
}

fn block_bytes() -> u32 {
    switch KIND {
        case Q8_0: { return 34u; }
        case Q4_K: { return 144u; }
        case Q5_K: { return 176u; }
        case Q6_K: { return 210u; }
        case IQ4_XS: { return 136u; }
        case MXFP4: { return 17u; }
        default: { return 16u; }
    }
}

// The largest magnitude of a code, the largest code where there are biases.
fn code_max() -> f32 {
    switch KIND {
        case Q8_0: { return 128.0; }
        case Q4_K: { return 15.0; }
        case Q5_K: { return 31.0; }
        case Q6_K: { return 32.0; }
        case IQ4_XS: { return 127.0; }
        default: { return 12.0; }
    }
}

// Word of its first byte, that byte's place in it. With planes: word of its codes, word of the first row's scales,
// number of its first scale.
fn row_at(planes: vec3<u32>, row: u32, cols: u32) -> vec3<u32> {
    let byte = row * (cols / block_cols() * block_bytes());
    if KIND == MXFP4_PLANES {
        return vec3(planes.x + byte / 4u, planes.y, row * (cols / 32u));
    }
    return vec3(planes.x + byte / 4u, byte % 4u, 0u);
}

// Codes `col .. col + 8`, `col` a multiple of 8.
fn codes8(row: vec3<u32>, col: u32, n: u32) -> array<vec4<f32>, 2> {
    let start = col / block_cols() * block_bytes();
    let group = col % 256u / 32u;
    let at = col % 32u;
    var low: vec2<u32>;
    var top: vec2<u32>;
    switch KIND {
        case Q8_0: { low = two_words(row, start + 2u + at); }
        case Q4_K: { low = two_words(row, start + 16u + group / 2u * 32u + at) >> vec2(4u * (group % 2u)); }
        case Q5_K: {
            low = two_words(row, start + 48u + group / 2u * 32u + at) >> vec2(4u * (group % 2u));
            top = two_words(row, start + 16u + at) >> vec2(group);
        }
        case Q6_K: {
            let half = group / 4u;
            let quarter = group % 4u;
            low = two_words(row, start + 64u * half + 32u * (quarter % 2u) + at) >> vec2(quarter / 2u * 4u);
            top = two_words(row, start + 128u + 32u * half + at) >> vec2(2u * quarter);
        }
        case IQ4_XS: { low = two_words(row, start + 8u + 16u * group + at % 16u) >> vec2(at / 16u * 4u); }
        case MXFP4: { low = two_words(row, start + 1u + at % 16u) >> vec2(at / 16u * 4u); }
        default: {
            let word = w[row.x + col / 8u];
            low = vec2(spread(word), spread(word >> 16u));
        }
    }
    return array(floats(signed4(low.x, top.x)), floats(signed4(low.y, top.y)));
}

fn scale_bias(row: vec3<u32>, col: u32) -> vec2<f32> {
    let group = select(col % 256u / GROUP, col % 128u / GROUP, KIND == Q6_K);
    return factors(head_at(row, col / block_cols(), col % 256u / 128u), group);
}

// Chunk number `chunk` of a row.
fn load_chunk(row: vec3<u32>, chunk: u32, n: u32) -> Chunk {
    var c: Chunk;
    let start = chunk * CHUNK / block_cols() * block_bytes();
    let part = chunk % 8u;
    c.head = head_at(row, chunk * CHUNK / block_cols(), part / 4u);
    switch KIND {
        case Q8_0: { load_words(&c, 0u, row, start + 2u, 8u); }
        case Q4_K: { load_four(&c, 0u, w4[row.x / 4u + start / 16u + 1u + part]); }
        case Q5_K: {
            load_four(&c, 0u, w4[row.x / 4u + start / 16u + 3u + part]);
            load_four(&c, 4u, w4[row.x / 4u + start / 16u + 1u + part % 2u] >> vec4(part / 2u * 2u));
        }
        case Q6_K: {
            let low = start + 64u * (part / 4u) + 8u * (part % 4u);
            load_words(&c, 0u, row, low, 2u);
            load_words(&c, 2u, row, low + 32u, 2u);
            load_words(&c, 4u, row, start + 128u + 32u * (part / 4u) + 8u * (part % 4u), 2u);
        }
        case IQ4_XS: {
            let at = row.x / 2u + start / 8u + 1u + 2u * part;
            load_four(&c, 0u, vec4(w2[at], w2[at + 1u]));
        }
        case MXFP4: { load_words(&c, 0u, row, start + 1u, 4u); }
        default: { load_four(&c, 0u, w4[row.x / 4u + chunk]); }
    }
    return c;
}

// Which four columns of the row number `k` of a chunk's eight are.
fn vector_of(chunk: u32, k: u32) -> u32 {
    switch KIND {
        case Q4_K, Q5_K: { return chunk / 2u * 16u + k / 4u * 8u + chunk % 2u * 4u + k % 4u; }
        case Q6_K: { return chunk / 4u * 32u + k / 2u * 8u + chunk % 4u * 2u + k % 2u; }
        default: { return chunk * 8u + k; }
    }
}

// Four codes of a chunk, number `k` of eight.
fn chunk4(c: Chunk, k: u32) -> vec4<f32> {
    return floats(chunk_bytes(c, k));
}

// The same as signed bytes.
fn chunk_bytes(c: Chunk, k: u32) -> u32 {
    if KIND == Q8_0 {
        return c.words[k];
    }
    if KIND == MXFP4_PLANES {
        return signed4(spread(c.words[k / 2u] >> (16u * (k % 2u))), 0u);
    }
    if KIND == Q6_K {
        let quarter = k / 2u;
        let low = c.words[2u * (quarter % 2u) + k % 2u] >> (quarter / 2u * 4u);
        return signed4(low, c.words[4u + k % 2u] >> (2u * quarter));
    }
    return signed4(c.words[k % 4u] >> (k / 4u * 4u), c.words[4u + k % 4u] >> (k / 4u));
}

// Scale and bias of a run of chunk number `chunk`, which is `c`.
fn chunk_scale_bias(c: Chunk, row: vec3<u32>, chunk: u32, run: u32) -> vec2<f32> {
    switch KIND {
        case Q4_K, Q5_K: { return factors(c.head, chunk % 8u / 2u * 2u + run); }
        case Q6_K: { return factors(c.head, 2u * run + chunk % 4u / 2u); }
        default: { return factors(c.head, chunk % 8u); }
    }
}

// What makes scales and biases of a block, of one half of it for Q6_K.
fn head_at(row: vec3<u32>, block: u32, half: u32) -> vec4<u32> {
    let start = block * block_bytes();
    switch KIND {
        case Q8_0: { return vec4(pair_of_bytes(row, start), 0u, 0u, 0u); }
        case Q4_K, Q5_K: { return w4[row.x / 4u + start / 16u]; }
        case Q6_K: {
            let scales = two_words(row, start + 192u + 8u * half);
            return vec4(scales, pair_of_bytes(row, start + 208u), 0u);
        }
        case IQ4_XS: { return vec4(w2[row.x / 2u + start / 8u], 0u, 0u); }
        case MXFP4: {
            let at = row.y + start;
            return vec4((w[row.x + at / 4u] >> (8u * (at % 4u))) & 0xffu, 0u, 0u, 0u);
        }
        default: {
            let at = row.z + block;
            return vec4((w[row.y + at / 4u] >> (8u * (at % 4u))) & 0xffu, 0u, 0u, 0u);
        }
    }
}

// Scale and bias of a group out of the eight that a head is for, or of the only one.
fn factors(head: vec4<u32>, group: u32) -> vec2<f32> {
    switch KIND {
        case Q8_0: { return vec2(half_of(head.x), 0.0); }
        case Q4_K, Q5_K: {
            // Six bits each; the last four of each have their top bits above the first four's.
            let shift = 8u * (group % 4u);
            let early = (head.yz >> vec2(shift)) & vec2(63u);
            let low = (head.ww >> vec2(shift, shift + 4u)) & vec2(15u);
            let late = low | (((head.yz >> vec2(shift + 6u)) & vec2(3u)) << vec2(4u));
            let numbers = vec2<f32>(select(late, early, group < 4u));
            return numbers * vec2(half_of(head.x & 0xffffu), -half_of(head.x >> 16u));
        }
        case Q6_K: {
            let scales = select(head.x, head.y, 4u <= group);
            let scale = bitcast<i32>(scales << (24u - 8u * (group % 4u))) >> 24u;
            return vec2(half_of(head.z) * f32(scale), 0.0);
        }
        case IQ4_XS: {
            let low = (head.y >> (4u * group)) & 15u;
            let scale = low | (((head.x >> (16u + 2u * group)) & 3u) << 4u);
            return vec2(half_of(head.x & 0xffffu) * f32(i32(scale) - 32), 0.0);
        }
        // The least two are denormal: devices may take them for zero.
        default: {
            return vec2(bitcast<f32>(select((head.x - 1u) << 23u, 0x00200000u << head.x, head.x < 2u)), 0.0);
        }
    }
}

// Two neighbouring bytes of a row, of which the first has an even place.
fn pair_of_bytes(row: vec3<u32>, byte: u32) -> u32 {
    let at = row.y + byte;
    return (w[row.x + at / 4u] >> (8u * (at % 4u))) & 0xffffu;
}

// Eight neighbouring bytes of a row.
fn two_words(row: vec3<u32>, byte: u32) -> vec2<u32> {
    var c: Chunk;
    load_words(&c, 0u, row, byte, 2u);
    return vec2(c.words[0], c.words[1]);
}

// Neighbouring bytes of a row, 4·n of them, to words `to ..` of a chunk.
fn load_words(c: ptr<function, Chunk>, to: u32, row: vec3<u32>, byte: u32, n: u32) {
    let at = row.y + byte;
    let first = row.x + at / 4u;
    let shift = 8u * (at % 4u);
    var word = w[first];
    for (var i = 0u; i < n; i++) {
        var next = 0u;
        if i + 1u < n || shift != 0u {
            next = w[first + i + 1u];
        }
        // In two steps, as shifts by 32 bits are none.
        (*c).words[to + i] = (word >> shift) | ((next << 1u) << (31u - shift));
        word = next;
    }
}

fn load_four(c: ptr<function, Chunk>, to: u32, words: vec4<u32>) {
    (*c).words[to] = words.x;
    (*c).words[to + 1u] = words.y;
    (*c).words[to + 2u] = words.z;
    (*c).words[to + 3u] = words.w;
}

// The four codes of the lower half of a word, each to the low half of a byte.
fn spread(word: u32) -> u32 {
    let halves = (word & 0xffu) | ((word << 8u) & 0xff0000u);
    return (halves & 0x000f000fu) | ((halves << 4u) & 0x0f000f00u);
}

// Four codes as signed bytes: their low bits are in the low halves of `low`'s bytes, the others are lowest in `top`'s.
fn signed4(low: u32, top: u32) -> u32 {
    let code = low & 0x0f0f0f0fu;
    switch KIND {
        case Q8_0: { return low; }
        case Q4_K: { return code; }
        case Q5_K: { return code | ((top & 0x01010101u) << 4u); }
        // 32 is taken off: no byte borrows while its top bit is set.
        case Q6_K: { return ((code | ((top & 0x03030303u) << 4u)) + 0x60606060u) ^ 0x80808080u; }
        case IQ4_XS: { return iq4(code); }
        default: { return e2m1(code); }
    }
}

// What the codes of IQ4_XS stand for: 16 entries become one, halved by each bit of the code.
fn iq4(code: u32) -> u32 {
    let bit0 = bytes_of(code);
    let bit1 = bytes_of(code >> 1u);
    let bit2 = bytes_of(code >> 2u);
    let a = choose(choose(0x81818181u, 0x98989898u, bit0), choose(0xadadadadu, 0xbfbfbfbfu, bit0), bit1);
    let b = choose(choose(0xcfcfcfcfu, 0xddddddddu, bit0), choose(0xeaeaeaeau, 0xf6f6f6f6u, bit0), bit1);
    let c = choose(choose(0x01010101u, 0x0d0d0d0du, bit0), choose(0x19191919u, 0x26262626u, bit0), bit1);
    let d = choose(choose(0x35353535u, 0x45454545u, bit0), choose(0x59595959u, 0x71717171u, bit0), bit1);
    return choose(choose(a, b, bit2), choose(c, d, bit2), bytes_of(code >> 3u));
}

// All bits of those bytes whose lowest bit is set.
fn bytes_of(bits: u32) -> u32 {
    return (bits & 0x01010101u) * 0xffu;
}

fn choose(no: u32, yes: u32, mask: u32) -> u32 {
    return no ^ (mask & (no ^ yes));
}

// Twice what E2M1 codes stand for: up to 4 themselves, then 6, 8 and 12; the top bit is the sign.
fn e2m1(code: u32) -> u32 {
    let is_large = ((code >> 2u) & 0x01010101u) * 7u;
    let last = code & (code >> 1u) & 0x01010101u;
    let size = (code & 0x07070707u) + (((code & 0x03030303u) + 2u * last) & is_large);
    // No byte borrows while its top bit is set.
    return (0x80808080u + size - 2u * (size & bytes_of(code >> 3u))) ^ 0x80808080u;
}

// Signed bytes as floats, without conversions: see `format_affine.wgsl`.
fn floats(bytes: u32) -> vec4<f32> {
    let codes = bytes ^ 0x80808080u; // code + 128
    let high = codes >> 16u;
    let place = vec4(0u, 8u, 0u, 8u);
    let exponent = (150u - place) << vec4(23u);
    let placed = vec4(codes, codes, high, high) & (vec4(0xffu) << place);
    return bitcast<vec4<f32>>(placed | exponent) - (bitcast<vec4<f32>>(exponent) + 128.0);
}
