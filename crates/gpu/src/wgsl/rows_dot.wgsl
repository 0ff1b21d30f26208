// How rows of affine codes and tokens are multiplied in whole numbers, for `rows.wgsl`: for devices that multiply four
// bytes with four bytes at once.
//
// The 32 columns of a chunk of a token are `x = unit · X`, with whole numbers `X` of 24 bits, unit a power of two.
// Their digits to base 256, signed bytes, are three planes. So
//   Σ w·x = scale·unit·Σ (code − m)·X + (bias + m·scale)·Σ x,   m the middle code,
// and the first sum is exact but for two roundings at its end: as precise as sums in f32.

// Vectors of a chunk of a token: planes 0 to 2 of its first and of its second half, four words of four columns each;
// then unit, Σ x, and what the sums of planes 0 and 2 start with.
const VECTORS: u32 = 7u;
const FACTS: u32 = 6u;
const ONES: u32 = 0x01010101u;

// [TOKENS, VECTORS, TILE / CHUNK]: neighbours read neighbours.
var<workgroup> x_tile: array<vec4<u32>, TILE_VECTORS>;

fn place(token: u32, k: u32, chunk: u32) -> u32 {
    return (token * VECTORS + k) * (TILE / CHUNK) + chunk;
}

// Columns `start .. start + TILE` of the tokens to workgroup memory: a thread half a chunk of one.
fn load_tile(tokens: Tokens, start: u32, thread: u32) {
    workgroupBarrier();
    let n_half = min(TILE, tokens.cols - start) / 16u;
    for (var first = 0u; first < TOKENS * n_half; first += THREADS) {
        let item = first + thread;
        let t = item / n_half;
        let half = item % n_half;
        var v: mat4x4<f32>;
        if t < tokens.n {
            let at = (tokens.at[t] + start) / 4u + 4u * half;
            v = mat4x4(x4[at], x4[at + 1u], x4[at + 2u], x4[at + 3u]);
        }
        let largest4 = max(max(abs(v[0]), abs(v[1])), max(abs(v[2]), abs(v[3])));
        var largest = max(max(largest4.x, largest4.y), max(largest4.z, largest4.w));
        let sum4 = (v[0] + v[1]) + (v[2] + v[3]);
        var sum = (sum4.x + sum4.y) + (sum4.z + sum4.w);
        largest = max(largest, subgroupShuffleXor(largest, 1u));
        sum += subgroupShuffleXor(sum, 1u);
        let unit = unit_exponent(largest);
        let inverse = bitcast<f32>((254u << 23u) - unit);
        let columns = in_order(v);
        var planes: array<vec4<u32>, 3>;
        for (var k = 0u; k < 4u; k++) {
            let digits = planes_of(columns[k] * inverse);
            planes[0][k] = digits.x;
            planes[1][k] = digits.y;
            planes[2][k] = digits.z;
        }
        var low = (sum_of(planes[1]) << 8u) + sum_of(planes[0]);
        var high = sum_of(planes[2]);
        low += subgroupShuffleXor(low, 1u);
        high += subgroupShuffleXor(high, 1u);
        if t < TOKENS {
            let chunk = half / 2u;
            let k = half % 2u * 3u;
            x_tile[place(t, k, chunk)] = planes[0];
            x_tile[place(t, k + 1u, chunk)] = planes[1];
            x_tile[place(t, k + 2u, chunk)] = planes[2];
            if k == 0u {
                let starts = bitcast<vec2<u32>>(vec2(low, high) * -start_code());
                x_tile[place(t, FACTS, chunk)] = vec4(unit, bitcast<u32>(sum), starts);
            }
        }
    }
    workgroupBarrier();
}

// The bits of the smallest power of two of which `largest` is at most 0x7f7f7f, what three signed digits can say.
fn unit_exponent(largest: f32) -> u32 {
    let power = (bitcast<u32>(largest) + 0x10101u) & 0x7f800000u;
    return max(power, 23u << 23u) - (22u << 23u);
}

// The digits of four whole numbers, plane by plane.
fn planes_of(x: vec4<f32>) -> vec3<u32> {
    // With 128 added to each digit but the first they are the bytes of a sum; the top bit takes the 128 off again.
    let b = bitcast<vec4<u32>>(vec4<i32>(round(x))) + 0x8080u;
    let even = (b.xz & vec2(0x00ff00ffu)) | ((b.yw & vec2(0x00ff00ffu)) << vec2(8u));
    let odd = ((b.xz >> vec2(8u)) & vec2(0x00ff00ffu)) | (b.yw & vec2(0xff00ff00u));
    return vec3(
        ((even.x & 0xffffu) | (even.y << 16u)) ^ 0x80808080u,
        ((odd.x & 0xffffu) | (odd.y << 16u)) ^ 0x80808080u,
        (even.x >> 16u) | (even.y & 0xffff0000u),
    );
}

// What is still to be subtracted from codes that come as `chunk_bytes`.
fn start_code() -> i32 {
    return select(i32(1u << (BITS - 1u)), 0, BITS == 8u);
}

// Four codes of a chunk as signed bytes: number `k` of eight such words, with the columns that `in_order` gives it.
fn chunk_bytes(c: Chunk, k: u32) -> u32 {
    let mask = ((1u << BITS) - 1u) * ONES;
    if BITS == 8u {
        return c.words[k] ^ 0x80808080u; // code - 128
    }
    if 8u % BITS == 0u {
        // Such bits of each byte of a word as lie at the same place.
        let n = 8u / BITS;
        return (c.words[k / n] >> (BITS * (k % n))) & mask;
    }
    let bit = 4u * BITS * k;
    let shift = bit % 32u;
    var word = c.words[bit / 32u] >> shift;
    if 32u < shift + 4u * BITS {
        word |= c.words[bit / 32u + 1u] << (32u - shift);
    }
    // Two codes to each half of the word, then one to each byte. (A shift is refused also where it is never reached.)
    let halves = (word & 0xffffu) | ((word << ((16u - 2u * BITS) % 32u)) & 0xffff0000u);
    return ((halves & 0x00ff00ffu) | ((halves << ((8u - BITS) % 32u)) & 0xff00ff00u)) & mask;
}

// Columns `4·i .. 4·i + 4` of half a chunk are `v[i]`: those of its four words of codes.
fn in_order(v: mat4x4<f32>) -> mat4x4<f32> {
    if BITS == 2u {
        return transpose(v);
    }
    if BITS == 4u {
        return mat4x4(
            vec4(v[0].xz, v[1].xz),
            vec4(v[0].yw, v[1].yw),
            vec4(v[2].xz, v[3].xz),
            vec4(v[2].yw, v[3].yw),
        );
    }
    return v;
}

fn sum_of(plane: vec4<u32>) -> i32 {
    return (dot4I8Packed(plane.x, ONES) + dot4I8Packed(plane.y, ONES))
        + (dot4I8Packed(plane.z, ONES) + dot4I8Packed(plane.w, ONES));
}

// Adds the products of a chunk, which is number `at` of the tile.
fn add_chunk(
    sums: ptr<function, Sums>,
    chunks: ptr<function, Chunks>,
    rows: ptr<function, Rows>,
    chunk: u32,
    at: u32,
) {
    var low: array<i32, 16>;
    var middle: array<i32, 16>;
    var high: array<i32, 16>;
    var facts: array<vec4<u32>, 4>;
    for (var t = 0u; t < TOKENS; t++) {
        facts[t] = x_tile[place(t, FACTS, at)];
        for (var r = 0u; r < ROWS; r++) {
            low[r * TOKENS + t] = bitcast<i32>(facts[t].z);
            high[r * TOKENS + t] = bitcast<i32>(facts[t].w);
        }
    }
    for (var half = 0u; half < 2u; half++) {
        var codes: array<vec4<u32>, 8>;
        for (var r = 0u; r < ROWS; r++) {
            for (var k = 0u; k < 4u; k++) {
                codes[r][k] = chunk_bytes((*chunks)[r], 4u * half + k);
            }
        }
        for (var t = 0u; t < TOKENS; t++) {
            let p0 = x_tile[place(t, 3u * half, at)];
            let p1 = x_tile[place(t, 3u * half + 1u, at)];
            let p2 = x_tile[place(t, 3u * half + 2u, at)];
            for (var r = 0u; r < ROWS; r++) {
                let i = r * TOKENS + t;
                for (var k = 0u; k < 4u; k++) {
                    low[i] += dot4I8Packed(codes[r][k], p0[k]);
                    middle[i] += dot4I8Packed(codes[r][k], p1[k]);
                    high[i] += dot4I8Packed(codes[r][k], p2[k]);
                }
            }
        }
    }
    for (var r = 0u; r < ROWS; r++) {
        let factors = chunk_scale_bias((*chunks)[r], (*rows)[r], chunk);
        let bias = fma(f32(1u << (BITS - 1u)), factors.x, factors.y);
        for (var t = 0u; t < TOKENS; t++) {
            let i = r * TOKENS + t;
            // Two digits fit: |Σ| is below 2²¹ for 32 products.
            let whole = fma(f32(high[i]), 65536.0, f32((middle[i] << 8u) + low[i]));
            let sum = fma(whole * bitcast<f32>(facts[t].x), factors.x, (*sums)[i]);
            (*sums)[i] = fma(bias, bitcast<f32>(facts[t].y), sum);
        }
    }
}

// What other threads of a workgroup see of a thread, where a team is larger than what runs in step.
fn show(thread: u32, value: f32) {
    x_tile[thread].x = bitcast<u32>(value);
}

fn shown(thread: u32) -> f32 {
    return bitcast<f32>(x_tile[thread].x);
}
