// What the tokens of a piece do to each other, for all pieces and value heads at once. In matrix form, with S the state
// before the piece and G the sums of the log-decays from its start,
//
//     R_i = β_i (v_i − e^(G_i) Sᵀ k_i) − Σ_{j<i} A_ij R_j        A_ij = β_i (k_i·k_j) e^(G_i−G_j)
//     o_i = e^(G_i) Sᵀ q_i + Σ_{j≤i} P_ij R_j                    P_ij = (q_i·k_j) e^(G_i−G_j)
//     S  ← e^(G_n) S + Σ_i e^(G_n−G_i) k_i R_iᵀ
//
// R is linear in v and in S, so R = U − W S with (1 + A) U = β v and (1 + A) W = β e^G k, which need no state: forward
// substitution, a thread a column. `delta_scan.wgsl` does the rest. G_i−G_j is summed up from j to i: as a difference
// it would lose what matters where decay is strong.
// Needs `activations.wgsl` and `delta_piece.wgsl` before it.

const SLAB: u32 = 16u; // dims in workgroup memory at a time
const STRIDE: u32 = 17u; // of 16 vectors: neighbours lie in different banks

@group(0) @binding(0) var<storage, read> mixed: array<f32>; // [n_token, q | k | v]
@group(0) @binding(1) var<storage, read> b: array<f32>; // [_, n_head_v]
@group(0) @binding(2) var<storage, read> a: array<f32>; // [_, n_head_v]
@group(0) @binding(3) var<storage, read> log_decay: array<f32>; // exp(A_log), [n_head_v]
@group(0) @binding(4) var<storage, read> dt_bias: array<f32>; // [n_head_v]
@group(0) @binding(5) var<storage, read_write> w: array<f32>; // [n_token, n_head_v, dk]
@group(0) @binding(6) var<storage, read_write> u: array<f32>; // [n_token, n_head_v, dv]
@group(0) @binding(7) var<storage, read_write> answers: array<vec4<f32>>; // P, [n_piece, n_head_v, j 64, i 64]
@group(0) @binding(8) var<storage, read_write> gates: array<f32>; // e^(G_i), e^(G_n−G_i), [n_piece, n_head_v, 2, 64]

var<workgroup> log_gates: array<f32, CHUNK>;
var<workgroup> betas: array<f32, CHUNK>;
var<workgroup> decays: array<f32, CHUNK>;
var<workgroup> between: array<vec4<f32>, 1088>; // G_i−G_j, then A, [j 64, i 64], rows of STRIDE vectors
var<workgroup> k_rows: array<vec4<f32>, 272>; // [dim, token]
var<workgroup> q_rows: array<vec4<f32>, 272>; // [dim, token]
var<workgroup> k_columns: array<f32, 1024>; // [dim, token]

// Number `at` of token i's row of the channels from `start` on.
fn channel(piece: Piece, i: u32, start: u32, at: u32, n: u32) -> f32 {
    let value = mixed[(piece.start + min(i, piece.n - 1u)) * channels() + start + min(at, n - 1u)];
    return select(0.0, value, i < piece.n && at < n);
}

fn four_channels(piece: Piece, i: u32, start: u32, at: u32) -> vec4<f32> {
    return vec4(
        channel(piece, i, start, at, p.dk),
        channel(piece, i + 1u, start, at, p.dk),
        channel(piece, i + 2u, start, at, p.dk),
        channel(piece, i + 3u, start, at, p.dk),
    );
}

fn sum_gates(piece: Piece, head: u32, gates_at: u32, thread: u32) {
    if thread < CHUNK {
        var beta = 0.0;
        var log_gate = 0.0;
        if thread < piece.n {
            let at = (p.first + piece.start + thread) * p.n_head_v + head;
            beta = sigmoid(b[at]);
            log_gate = -log_decay[head] * softplus(a[at] + dt_bias[head]);
        }
        betas[thread] = beta;
        log_gates[thread] = log_gate;
    }
    workgroupBarrier();
    if thread < CHUNK {
        // Column j of G_i−G_j.
        var sum = 0.0;
        for (var i = 0u; i < CHUNK; i += 4u) {
            var four: vec4<f32>;
            for (var r = 0u; r < 4u; r++) {
                sum += select(0.0, log_gates[i + r], i + r > thread);
                four[r] = sum;
            }
            between[thread * STRIDE + i / 4u] = four;
        }
        gates[gates_at + CHUNK + thread] = decay_of(sum);
    } else if thread == CHUNK {
        var sum = 0.0;
        for (var i = 0u; i < CHUNK; i++) {
            sum += log_gates[i];
            let decay = decay_of(sum);
            decays[i] = decay;
            gates[gates_at + i] = decay;
        }
    }
}

// Makes A of `between`, and P. A thread has four rows i and four columns j, 16 apart.
fn mix(piece: Piece, key_head: u32, answers_at: u32, thread: u32) {
    let quad = thread / 16u;
    let column = thread % 16u;
    var kk = array(vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    var qk = array(vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    let k_at = (p.n_head_k + key_head) * p.dk;
    let q_at = key_head * p.dk;
    // A thread a dim of four tokens; the next ones are on their way while some are multiplied.
    var k_four = four_channels(piece, quad * 4u, k_at, column);
    var q_four = four_channels(piece, quad * 4u, q_at, column);
    for (var dim = 0u; dim < p.dk; dim += SLAB) {
        workgroupBarrier();
        k_rows[column * STRIDE + quad] = k_four;
        for (var r = 0u; r < 4u; r++) {
            k_columns[column * CHUNK + quad * 4u + r] = k_four[r];
        }
        q_rows[column * STRIDE + quad] = q_four;
        workgroupBarrier();
        if dim + SLAB < p.dk {
            k_four = four_channels(piece, quad * 4u, k_at, dim + SLAB + column);
            q_four = four_channels(piece, quad * 4u, q_at, dim + SLAB + column);
        }
        for (var d = 0u; d < SLAB; d++) {
            let k_row = k_rows[d * STRIDE + quad];
            let q_row = q_rows[d * STRIDE + quad];
            for (var j = 0u; j < 4u; j++) {
                let k_column = vec4(k_columns[d * CHUNK + column + 16u * j]);
                kk[j] = fma(k_row, k_column, kk[j]);
                qk[j] = fma(q_row, k_column, qk[j]);
            }
        }
    }
    let rows = vec4(0u, 1u, 2u, 3u) + vec4(quad * 4u);
    let beta = vec4(betas[quad * 4u], betas[quad * 4u + 1u], betas[quad * 4u + 2u], betas[quad * 4u + 3u]);
    for (var j = 0u; j < 4u; j++) {
        let token = column + 16u * j;
        let decay = exp(between[token * STRIDE + quad]);
        between[token * STRIDE + quad] = select(vec4(0.0), beta * kk[j] * decay, rows > vec4(token));
        answers[answers_at + token * 16u + quad] = select(vec4(0.0), qk[j] * decay, rows >= vec4(token));
    }
}

// Column of one system: where it starts in `w` or `u`, and from token to token.
struct Column {
    is_w: bool,
    at: u32,
    stride: u32,
}

// Eight numbers, from token i on.
fn solved(column: Column, i: u32) -> array<f32, 8> {
    var eight: array<f32, 8>;
    if column.is_w {
        for (var r = 0u; r < 8u; r++) {
            eight[r] = w[column.at + (i + r) * column.stride];
        }
    } else {
        for (var r = 0u; r < 8u; r++) {
            eight[r] = u[column.at + (i + r) * column.stride];
        }
    }
    return eight;
}

fn solve(column: Column, i: u32, n: u32, x: f32) {
    if i < n {
        if column.is_w {
            w[column.at + i * column.stride] = x;
        } else {
            u[column.at + i * column.stride] = x;
        }
    }
}

// Four numbers of the right-hand side.
fn right_side(piece: Piece, i: u32, start: u32, at: u32, width: u32, is_w: bool) -> vec4<f32> {
    var four: vec4<f32>;
    for (var r = 0u; r < 4u; r++) {
        let value = channel(piece, i + r, start, at, width) * betas[i + r];
        four[r] = select(value, value * decays[i + r], is_w);
    }
    return four;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let piece = piece_of(group.x);
    let head = group.y;
    let key_head = head / (p.n_head_v / p.n_head_k);
    let number = group.x * p.n_head_v + head;
    sum_gates(piece, head, number * 2u * CHUNK, thread);
    mix(piece, key_head, number * CHUNK * 16u, thread);
    workgroupBarrier();
    let k_at = (p.n_head_k + key_head) * p.dk;
    let v_at = 2u * p.n_head_k * p.dk + head * p.dv;
    for (var c = thread; c < p.dk + p.dv; c += 256u) {
        let is_w = c < p.dk;
        let at = select(c - p.dk, c, is_w);
        let start = select(v_at, k_at, is_w);
        let width = select(p.dv, p.dk, is_w);
        let column = Column(is_w, (piece.start * p.n_head_v + head) * width + at, p.n_head_v * width);
        for (var i = 0u; i < piece.n; i += 8u) {
            var low = right_side(piece, i, start, at, width, is_w);
            var high = right_side(piece, i + 4u, start, at, width, is_w);
            var a = i / 4u;
            // What this thread has written.
            for (var j = 0u; j < i; j += 8u) {
                var eight = solved(column, j);
                for (var r = 0u; r < 8u; r++) {
                    low = fma(-between[a], vec4(eight[r]), low);
                    high = fma(-between[a + 1u], vec4(eight[r]), high);
                    a += STRIDE;
                }
            }
            // A is 0 on and above the diagonal, so what is solved does not change.
            low = fma(-between[a], low.xxxx, low);
            high = fma(-between[a + 1u], low.xxxx, high);
            a += STRIDE;
            low = fma(-between[a], low.yyyy, low);
            high = fma(-between[a + 1u], low.yyyy, high);
            a += STRIDE;
            low = fma(-between[a], low.zzzz, low);
            high = fma(-between[a + 1u], low.zzzz, high);
            a += STRIDE;
            high = fma(-between[a + 1u], low.wwww, high);
            a += STRIDE;
            high = fma(-between[a + 1u], high.xxxx, high);
            a += STRIDE;
            high = fma(-between[a + 1u], high.yyyy, high);
            a += STRIDE;
            high = fma(-between[a + 1u], high.zzzz, high);
            solve(column, i, piece.n, low.x);
            solve(column, i + 1u, piece.n, low.y);
            solve(column, i + 2u, piece.n, low.z);
            solve(column, i + 3u, piece.n, low.w);
            solve(column, i + 4u, piece.n, high.x);
            solve(column, i + 5u, piece.n, high.y);
            solve(column, i + 6u, piece.n, high.z);
            solve(column, i + 7u, piece.n, high.w);
        }
    }
}
