// How rows and tokens are multiplied in floats, for `rows.wgsl`.

const VECTORS: u32 = CHUNK / 4u;

// [TOKENS, VECTORS, TILE / CHUNK]: neighbours read neighbours. The last index is scrambled, see `place`.
var<workgroup> x_tile: array<vec4<f32>, TILE_VECTORS>;

// Columns `start .. start + TILE` of the tokens to workgroup memory, with zeros behind the last one.
fn load_tile(tokens: Tokens, start: u32, thread: u32) {
    let n_col = min(TILE, tokens.cols - start);
    let n_vector = (n_col + CHUNK - 1u) / CHUNK * VECTORS;
    for (var t = 0u; t < TOKENS; t++) {
        let token = tokens.at[t] + start;
        let is_aligned = (token | tokens.cols) % 4u == 0u;
        for (var i = thread; i < n_vector; i += THREADS) {
            let quad = vector_of(i / VECTORS, i % VECTORS);
            var value = vec4(0.0);
            if t < tokens.n && 4u * quad < n_col {
                if is_aligned {
                    value = x4[token / 4u + quad];
                } else {
                    for (var j = 0u; j < min(4u, n_col - 4u * quad); j++) {
                        value[j] = x[token + 4u * quad + j];
                    }
                }
            }
            x_tile[place(t, i % VECTORS, i / VECTORS)] = value;
        }
    }
}

// Where vector `k` of a chunk of a token lies: chunks are exchanged among eight so that neither those who write
// neighbouring vectors nor those who read neighbouring chunks want the same bank of memory.
fn place(token: u32, k: u32, chunk: u32) -> u32 {
    return (token * VECTORS + k) * (TILE / CHUNK) + (chunk ^ k);
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
        var parts: Sums;
        var x_sums: array<f32, 4>;
        for (var k = run * VECTORS / RUNS; k < (run + 1u) * VECTORS / RUNS; k++) {
            var values: array<vec4<f32>, 4>;
            for (var t = 0u; t < TOKENS; t++) {
                let v = x_tile[place(t, k, at)];
                values[t] = v;
                x_sums[t] += (v.x + v.y) + (v.z + v.w);
            }
            for (var r = 0u; r < ROWS; r++) {
                let codes = chunk4((*chunks)[r], k);
                for (var t = 0u; t < TOKENS; t++) {
                    let v = values[t];
                    let part = fma(codes.y, v.y, fma(codes.x, v.x, parts[r * TOKENS + t]));
                    parts[r * TOKENS + t] = fma(codes.w, v.w, fma(codes.z, v.z, part));
                }
            }
        }
        for (var r = 0u; r < ROWS; r++) {
            let factors = chunk_scale_bias((*chunks)[r], (*rows)[r], chunk, run);
            for (var t = 0u; t < TOKENS; t++) {
                let i = r * TOKENS + t;
                var sum = fma(factors.x, parts[i], (*sums)[i]);
                if BIASED {
                    sum = fma(factors.y, x_sums[t], sum);
                }
                (*sums)[i] = sum;
            }
        }
    }
}

// What other threads of a workgroup see of a thread, where a team is larger than what runs in step.
fn show(thread: u32, value: f32) {
    x_tile[thread].x = value;
}

fn shown(thread: u32) -> f32 {
    return x_tile[thread].x;
}
