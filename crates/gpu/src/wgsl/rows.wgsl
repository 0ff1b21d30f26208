// Rows of matrices times a few tokens: the loop that all kernels for few tokens share.
// Needs a `format_*.wgsl` before it.
//
// A team of LANES neighbouring threads computes ROWS rows for TOKENS tokens. Thread `i` of it takes chunks
// i, i + LANES, ... of every row, so that the loads of a team lie side by side; while it computes with one, the next
// one is on its way. The tokens lie in workgroup memory, TILE columns at a time.
// Whatever the constants other than LANES, a row and a token give the same bits.

override ROWS: u32; // at most 8
override TOKENS: u32; // at most 4; ROWS · TOKENS at most 16
override LANES: u32; // a power of two, at most 32
override THREADS: u32; // of a workgroup
override TILE: u32; // a multiple of CHUNK · LANES and of 8 chunks
override TILE_VECTORS: u32; // at least TOKENS · TILE / 4 and THREADS
override AHEAD: u32; // 1: a chunk is loaded before the one before it is used
override TILED: u32; // 0: the tokens are read where they are, `cols` a multiple of CHUNK

@group(0) @binding(3) var<storage, read> x: array<f32>; // [_, cols]
@group(0) @binding(4) var<storage, read> x4: array<vec4<f32>>; // the same

// A starting row for each row of a team.
alias Rows = array<vec3<u32>, 8>;
// [ROWS, TOKENS]
alias Sums = array<f32, 16>;

const VECTORS: u32 = CHUNK / 4u;

// [TOKENS, VECTORS, TILE / CHUNK]: neighbours read neighbours. The last index is scrambled, see `place`.
var<workgroup> x_tile: array<vec4<f32>, TILE_VECTORS>;

struct Tokens {
    at: u32, // where in `x` the first one starts
    n: u32, // how many there are
    cols: u32,
}

// `rows · tokens`, for every thread of a team. All threads of a workgroup call it, with the same tokens.
fn dots(rows: ptr<function, Rows>, tokens: Tokens, thread: u32, n_lane: u32) -> Sums {
    let n_chunk = (tokens.cols + CHUNK - 1u) / CHUNK;
    var sums: Sums;
    var chunk = thread % LANES;
    var ahead: array<Chunk, 8>;
    if AHEAD == 1u {
        ahead = load_rows(rows, chunk, tokens.cols);
    }
    for (var start = 0u; start < tokens.cols; start += TILE) {
        if TILED == 1u {
            load_tile(tokens, start, thread);
        }
        let first = start / CHUNK;
        let end = min(first + TILE / CHUNK, n_chunk);
        for (; chunk < end; chunk += LANES) {
            var chunks: array<Chunk, 8>;
            if AHEAD == 1u {
                chunks = ahead;
                ahead = load_rows(rows, chunk + LANES, tokens.cols);
            } else {
                chunks = load_rows(rows, chunk, tokens.cols);
            }
            add_chunk(&sums, &chunks, rows, tokens, chunk, chunk - first);
        }
    }
    for (var i = 0u; i < ROWS * TOKENS; i++) {
        sums[i] = team_sum(sums[i], thread, n_lane);
    }
    return sums;
}

// A chunk of every row, if the rows have it.
fn load_rows(rows: ptr<function, Rows>, chunk: u32, cols: u32) -> array<Chunk, 8> {
    var chunks: array<Chunk, 8>;
    let col = chunk * CHUNK;
    if col < cols {
        for (var r = 0u; r < ROWS; r++) {
            chunks[r] = load_chunk((*rows)[r], chunk, cols - col);
        }
    }
    return chunks;
}

// Columns `start .. start + TILE` of the tokens to workgroup memory, with zeros behind the last one.
fn load_tile(tokens: Tokens, start: u32, thread: u32) {
    workgroupBarrier();
    let n_col = min(TILE, tokens.cols - start);
    let n_vector = (n_col + CHUNK - 1u) / CHUNK * VECTORS;
    let is_aligned = (tokens.at | tokens.cols) % 4u == 0u;
    for (var t = 0u; t < TOKENS; t++) {
        let token = tokens.at + t * tokens.cols + start;
        for (var i = thread; i < n_vector; i += THREADS) {
            var value = vec4(0.0);
            if t < tokens.n && 4u * i < n_col {
                if is_aligned {
                    value = x4[token / 4u + i];
                } else {
                    for (var j = 0u; j < min(4u, n_col - 4u * i); j++) {
                        value[j] = x[token + 4u * i + j];
                    }
                }
            }
            x_tile[place(t, i % VECTORS, i / VECTORS)] = value;
        }
    }
    workgroupBarrier();
}

// Where vector `k` of a chunk of a token lies: chunks are exchanged among eight so that neither those who write
// neighbouring vectors nor those who read neighbouring chunks want the same bank of memory.
fn place(token: u32, k: u32, chunk: u32) -> u32 {
    return (token * VECTORS + k) * (TILE / CHUNK) + (chunk ^ k);
}

// The products of a chunk.
fn add_chunk(
    sums: ptr<function, Sums>,
    chunks: ptr<function, array<Chunk, 8>>,
    rows: ptr<function, Rows>,
    tokens: Tokens,
    chunk: u32,
    chunk_in_tile: u32,
) {
    var parts: Sums;
    var x_sums: array<f32, 4>;
    for (var k = 0u; k < VECTORS; k++) {
        var values: array<vec4<f32>, 4>;
        for (var t = 0u; t < TOKENS; t++) {
            var v: vec4<f32>;
            if TILED == 1u {
                v = x_tile[place(t, k, chunk_in_tile)];
            } else {
                v = x4[(tokens.at + min(t, tokens.n - 1u) * tokens.cols) / 4u + chunk * VECTORS + k];
            }
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
        let factors = chunk_scale_bias((*chunks)[r], (*rows)[r], chunk);
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

// The sum of a team's values, for each of its threads.
fn team_sum(value: f32, thread: u32, n_lane: u32) -> f32 {
    var sum = value;
    if LANES <= n_lane {
        for (var step = LANES / 2u; 0u < step; step /= 2u) {
            sum += subgroupShuffleXor(sum, step);
        }
        return sum;
    }
    for (var step = LANES / 2u; 0u < step; step /= 2u) {
        workgroupBarrier();
        x_tile[thread].x = sum;
        workgroupBarrier();
        sum += x_tile[thread ^ step].x;
    }
    return sum;
}
