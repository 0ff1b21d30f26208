// How rows of codes and tokens are multiplied in whole numbers, for `rows.wgsl`: for devices that multiply four bytes
// with four bytes at once. Needs a `rows_dot_*.wgsl`, which has
//   `columns`      the columns of a token that belong to two words of codes,
//   `chunk_bytes`  words of codes as signed bytes,
//   `bias_of`      the bias of these.
//
// The 32 columns of a chunk of a token are `x = unit · X`, with whole numbers `X` of 24 bits, unit a power of two.
// Their digits to base 256, signed bytes, are three planes. So
//   Σ w·x = scale·unit·Σ code·X + bias·Σ x,
// and the first sum is exact but for two roundings at its end: as precise as sums in f32. Each run of a chunk has such
// sums. Codes of eight bits are no signed bytes; 128 is taken from them, and 128·scale added to their biases.

// Vectors of a chunk of a token. A quarter of it has two: four columns' words of plane 0, twice, the same of plane 1;
// the same of plane 2, unit, Σ x of the run. One is unused: with an odd number, threads that read neighbouring chunks
// or write neighbouring quarters want different banks of memory.
const VECTORS: u32 = 9u;

// [TOKENS, TILE / CHUNK, VECTORS]
var<workgroup> x_tile: array<vec4<u32>, TILE_VECTORS>;

fn place(token: u32, chunk: u32) -> u32 {
    return (token * (TILE / CHUNK) + chunk) * VECTORS;
}

// Columns `start .. start + TILE` of the tokens to workgroup memory: a thread a quarter of a chunk of each.
fn load_tile(tokens: Tokens, start: u32, thread: u32) {
    let n_quarter = min(TILE, tokens.cols - start) / 8u;
    for (var t = 0u; t < TOKENS; t++) {
        for (var first = 0u; first < n_quarter; first += THREADS) {
            let quarter = first + thread;
            let is_there = quarter < n_quarter;
            var v: mat2x4<f32>;
            if is_there && t < tokens.n {
                v = columns(tokens.at[t] + start, quarter);
            }
            let largest4 = max(abs(v[0]), abs(v[1]));
            var largest = max(max(largest4.x, largest4.y), max(largest4.z, largest4.w));
            let sum4 = v[0] + v[1];
            var sum = (sum4.x + sum4.y) + (sum4.z + sum4.w);
            for (var step = 1u; step < 4u; step *= 2u) {
                largest = max(largest, subgroupShuffleXor(largest, step));
                if step * RUNS < 4u {
                    sum += subgroupShuffleXor(sum, step);
                }
            }
            let unit = unit_exponent(largest);
            let inverse = bitcast<f32>((254u << 23u) - unit);
            let a = planes_of(v[0] * inverse);
            let b = planes_of(v[1] * inverse);
            if is_there {
                let at = place(t, quarter / 4u) + quarter % 4u * 2u;
                x_tile[at] = vec4(a.x, b.x, a.y, b.y);
                x_tile[at + 1u] = vec4(a.z, b.z, unit, bitcast<u32>(sum));
            }
        }
    }
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

// Adds the products of a chunk, which is number `at` of the tile.
fn add_chunk(
    sums: ptr<function, Sums>,
    chunks: ptr<function, Chunks>,
    rows: ptr<function, Rows>,
    chunk: u32,
    at: u32,
) {
    for (var run = 0u; run < RUNS; run++) {
        var low: array<i32, 16>;
        var middle: array<i32, 16>;
        var high: array<i32, 16>;
        var facts: array<vec2<u32>, 4>;
        for (var q = run * 4u / RUNS; q < (run + 1u) * 4u / RUNS; q++) {
            var codes: array<vec2<u32>, 8>;
            for (var r = 0u; r < ROWS; r++) {
                codes[r] = vec2(chunk_bytes((*chunks)[r], 2u * q), chunk_bytes((*chunks)[r], 2u * q + 1u));
            }
            for (var t = 0u; t < TOKENS; t++) {
                let place = place(t, at) + 2u * q;
                let v = x_tile[place];
                let rest = x_tile[place + 1u];
                facts[t] = rest.zw;
                for (var r = 0u; r < ROWS; r++) {
                    let i = r * TOKENS + t;
                    low[i] += dot4I8Packed(codes[r].x, v.x);
                    low[i] += dot4I8Packed(codes[r].y, v.y);
                    middle[i] += dot4I8Packed(codes[r].x, v.z);
                    middle[i] += dot4I8Packed(codes[r].y, v.w);
                    high[i] += dot4I8Packed(codes[r].x, rest.x);
                    high[i] += dot4I8Packed(codes[r].y, rest.y);
                }
            }
        }
        for (var r = 0u; r < ROWS; r++) {
            let factors = chunk_scale_bias((*chunks)[r], (*rows)[r], chunk, run);
            for (var t = 0u; t < TOKENS; t++) {
                let i = r * TOKENS + t;
                // Two digits fit: |Σ| is below 2²¹ for 32 products.
                let whole = fma(f32(high[i]), 65536.0, f32((middle[i] << 8u) + low[i]));
                var sum = fma(whole * bitcast<f32>(facts[t].x), factors.x, (*sums)[i]);
                if BIASED {
                    sum = fma(bias_of(factors), bitcast<f32>(facts[t].y), sum);
                }
                (*sums)[i] = sum;
            }
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
