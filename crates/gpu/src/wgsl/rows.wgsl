// Rows of matrices times a few tokens: the loop that all kernels for few tokens share.
// Needs a `format_*.wgsl` and a `rows_*.wgsl` beside it.
//
// A team of LANES neighbouring threads computes ROWS rows for TOKENS tokens. Thread `i` of it takes chunks
// i, i + LANES, ... of every row, so that the loads of a team lie side by side; while it computes with one, the next
// DEPTH are on their way. The tokens lie in workgroup memory, TILE columns at a time.
// Whatever the constants other than LANES, a row and a token give the same bits.

override ROWS: u32; // at most 8
override TOKENS: u32; // at most 4; ROWS · TOKENS at most 16
override LANES: u32; // a power of two, at most 32
override THREADS: u32; // of a workgroup
override TILE: u32; // a multiple of CHUNK · LANES and of 8 chunks
override TILE_VECTORS: u32; // at least THREADS, and what TOKENS tokens of a tile take
override DEPTH: u32; // at most 4
override TURNS: u32; // times that a workgroup takes ROWS rows of each team

@group(0) @binding(3) var<storage, read> x: array<f32>; // [_, cols]
@group(0) @binding(4) var<storage, read> x4: array<vec4<f32>>; // the same

// A starting row for each row of a team.
alias Rows = array<vec3<u32>, 8>;
// [ROWS, TOKENS]
alias Sums = array<f32, 16>;
// A chunk of each row.
alias Chunks = array<Chunk, 8>;

struct Tokens {
    at: vec4<u32>, // where in `x` each starts
    n: u32, // how many there are
    cols: u32,
}

// `rows · tokens`, for every thread of a team. All threads of a workgroup call it, with the same tokens, and not
// `is_first` where they called it before with those.
fn dots(rows: ptr<function, Rows>, tokens: Tokens, is_first: bool, thread: u32, n_lane: u32) -> Sums {
    let n_chunk = (tokens.cols + CHUNK - 1u) / CHUNK;
    let lane = thread % LANES;
    var ahead: array<Chunks, 4>;
    for (var d = 0u; d < DEPTH; d++) {
        ahead[d] = load_rows(rows, d * LANES + lane, tokens.cols);
    }
    var sums: Sums;
    for (var first = 0u; first < n_chunk; first += TILE / CHUNK) {
        // Sums of large teams go through the memory of the tile.
        if is_first || TILE < tokens.cols || n_lane < LANES {
            if !is_first || 0u < first {
                workgroupBarrier();
            }
            load_tile(tokens, first * CHUNK, thread);
            workgroupBarrier();
        }
        let end = min(first + TILE / CHUNK, n_chunk);
        for (var chunk = first + lane; chunk < end; chunk += LANES) {
            var chunks = ahead[0];
            for (var d = 1u; d < DEPTH; d++) {
                ahead[d - 1u] = ahead[d];
            }
            ahead[DEPTH - 1u] = load_rows(rows, chunk + DEPTH * LANES, tokens.cols);
            add_chunk(&sums, &chunks, rows, chunk, chunk - first);
        }
    }
    for (var i = 0u; i < ROWS * TOKENS; i++) {
        sums[i] = team_sum(sums[i], thread, n_lane);
    }
    return sums;
}

// A chunk of every row, if the rows have it.
fn load_rows(rows: ptr<function, Rows>, chunk: u32, cols: u32) -> Chunks {
    var chunks: Chunks;
    let col = chunk * CHUNK;
    if col < cols {
        for (var r = 0u; r < ROWS; r++) {
            chunks[r] = load_chunk((*rows)[r], chunk, cols - col);
        }
    }
    return chunks;
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
        show(thread, sum);
        workgroupBarrier();
        sum += shown(thread ^ step);
    }
    return sum;
}
