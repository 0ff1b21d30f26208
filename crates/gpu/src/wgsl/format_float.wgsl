// How a matrix of plain floats lies in memory: f32, f16 or bf16 by KIND. `format_affine.wgsl` says what a format has.

// 0: f32, 1: f16, 2: bf16.
override KIND: u32;

// Columns of a chunk.
const CHUNK: u32 = 8u;
const RUNS: u32 = 1u;
const SCALED: bool = false;
const BIASED: bool = false;

@group(0) @binding(0) var<storage, read> w: array<u32>;
@group(0) @binding(1) var<storage, read> w2: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> w4: array<vec4<u32>>;

struct Chunk {
    words: array<u32, 8>, // half of them in use for 16 bits
}

// Number of its first float, counted from the start of the buffer; the rest is unused.
fn row_at(planes: vec3<u32>, row: u32, cols: u32) -> vec3<u32> {
    return vec3(planes.x * select(2u, 1u, KIND == 0u) + row * cols, 0u, 0u);
}

// Floats `col .. col + 8`, `col` a multiple of 8. There are `n` columns from `col` on; where those end, zeros follow.
fn codes8(row: vec3<u32>, col: u32, n: u32) -> array<vec4<f32>, 2> {
    let c = load_chunk(row, col / CHUNK, n);
    return array(chunk4(c, 0u), chunk4(c, 1u));
}

fn scale_bias(row: vec3<u32>, col: u32) -> vec2<f32> {
    return vec2(1.0, 0.0);
}

// Chunk number `chunk` of a row. There are `n` columns from its first on; where those end, zeros follow.
fn load_chunk(row: vec3<u32>, chunk: u32, n: u32) -> Chunk {
    var c: Chunk;
    let at = row.x + chunk * CHUNK;
    let n_word = select(4u, 8u, KIND == 0u);
    let per_word = 8u / n_word;
    if at % (4u * per_word) == 0u && CHUNK <= n {
        for (var i = 0u; i < n_word / 4u; i++) {
            let words = w4[at / (4u * per_word) + i];
            c.words[4u * i] = words.x;
            c.words[4u * i + 1u] = words.y;
            c.words[4u * i + 2u] = words.z;
            c.words[4u * i + 3u] = words.w;
        }
        return c;
    }
    for (var i = 0u; i < CHUNK; i++) {
        var bits = 0u;
        if i < n {
            bits = w[(at + i) / per_word];
            if per_word == 2u {
                bits = (bits >> (16u * ((at + i) % 2u))) & 0xffffu;
            }
        }
        c.words[i / per_word] |= bits << (16u * (i % per_word));
    }
    return c;
}

fn vector_of(chunk: u32, k: u32) -> u32 {
    return chunk * 2u + k;
}

// Floats `4·k .. 4·k + 4` of a chunk.
fn chunk4(c: Chunk, k: u32) -> vec4<f32> {
    if KIND == 0u {
        let at = 4u * k;
        return bitcast<vec4<f32>>(vec4(c.words[at], c.words[at + 1u], c.words[at + 2u], c.words[at + 3u]));
    }
    let low = c.words[2u * k];
    let high = c.words[2u * k + 1u];
    if KIND == 1u {
        return vec4(unpack2x16float(low), unpack2x16float(high));
    }
    return bitcast<vec4<f32>>(vec4(low << 16u, low & 0xffff0000u, high << 16u, high & 0xffff0000u));
}

fn chunk_scale_bias(c: Chunk, row: vec3<u32>, chunk: u32, run: u32) -> vec2<f32> {
    return vec2(1.0, 0.0);
}
