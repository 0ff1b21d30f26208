// The state's way over the pieces: see `delta_mix.wgsl`. A workgroup 16 columns of a value head's state, which do not
// meet others; they stay in workgroup memory.
// Needs `delta_piece.wgsl` before it.

const COLUMNS: u32 = 16u;
const DK_MAX: u32 = 256u;
const SLAB: u32 = 16u; // dims, or tokens of P, in workgroup memory at a time
const STRIDE: u32 = 17u; // of 16 vectors
const TOKENS: u32 = 8u; // tokens of k in workgroup memory at a time

@group(0) @binding(0) var<storage, read> mixed: array<f32>; // [n_token, q | k | v]
@group(0) @binding(1) var<storage, read> w: array<f32>; // [n_token, n_head_v, dk]
@group(0) @binding(2) var<storage, read> u: array<f32>; // [n_token, n_head_v, dv]
@group(0) @binding(3) var<storage, read> answers: array<vec4<f32>>; // [n_piece, n_head_v, j 64, i 64]
@group(0) @binding(4) var<storage, read> gates: array<f32>; // [n_piece, n_head_v, 2, 64]
@group(0) @binding(5) var<storage, read_write> state: array<f32>; // [n_head_v, dk, dv]
@group(0) @binding(6) var<storage, read_write> out: array<f32>; // [_, n_head_v, dv]

var<workgroup> s: array<f32, 4096>; // [dk, COLUMNS]
var<workgroup> tile: array<vec4<f32>, 544>; // w and q, [2, dim, token]; P, [j, i]; k, [token, dim]
var<workgroup> learnt: array<f32, 1024>; // R, [token, COLUMNS]

fn at_w(piece: Piece, head: u32, i: u32, dim: u32) -> f32 {
    if i >= piece.n || dim >= p.dk {
        return 0.0;
    }
    return w[((piece.start + i) * p.n_head_v + head) * p.dk + dim];
}

// Of q, or of k.
fn at_mixed(piece: Piece, start: u32, i: u32, dim: u32) -> f32 {
    if i >= piece.n || dim >= p.dk {
        return 0.0;
    }
    return mixed[(piece.start + i) * channels() + start + dim];
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = group.x;
    let key_head = head / (p.n_head_v / p.n_head_k);
    let quad = thread / COLUMNS;
    let own = thread % COLUMNS;
    let column = group.y * COLUMNS + own;
    let is_inside = column < p.dv;
    for (var row = quad; row < DK_MAX; row += 16u) {
        var value = 0.0;
        if row < p.dk && is_inside {
            value = state[(head * p.dk + row) * p.dv + column];
        }
        s[row * COLUMNS + own] = value;
    }
    for (var number = 0u; number < n_piece(); number++) {
        let piece = piece_of(number);
        let gates_at = (number * p.n_head_v + head) * 2u * CHUNK;
        let answers_at = (number * p.n_head_v + head) * CHUNK * 16u;
        // Sᵀ w and Sᵀ q of four tokens.
        var w_sum = vec4(0.0);
        var q_sum = vec4(0.0);
        for (var dim = 0u; dim < p.dk; dim += SLAB) {
            workgroupBarrier();
            let i = quad * 4u;
            let d = dim + own;
            let q_at = key_head * p.dk;
            tile[own * STRIDE + quad] = vec4(
                at_w(piece, head, i, d),
                at_w(piece, head, i + 1u, d),
                at_w(piece, head, i + 2u, d),
                at_w(piece, head, i + 3u, d),
            );
            tile[(SLAB + own) * STRIDE + quad] = vec4(
                at_mixed(piece, q_at, i, d),
                at_mixed(piece, q_at, i + 1u, d),
                at_mixed(piece, q_at, i + 2u, d),
                at_mixed(piece, q_at, i + 3u, d),
            );
            workgroupBarrier();
            for (var k = 0u; k < SLAB; k++) {
                let value = vec4(s[(dim + k) * COLUMNS + own]);
                w_sum = fma(tile[k * STRIDE + quad], value, w_sum);
                q_sum = fma(tile[(SLAB + k) * STRIDE + quad], value, q_sum);
            }
        }
        var o = vec4(0.0);
        for (var r = 0u; r < 4u; r++) {
            let i = quad * 4u + r;
            var value = 0.0;
            if i < piece.n && is_inside {
                value = u[((piece.start + i) * p.n_head_v + head) * p.dv + column] - w_sum[r];
            }
            learnt[i * COLUMNS + own] = value;
            o[r] = gates[gates_at + i] * q_sum[r];
        }
        for (var first = 0u; first < piece.n; first += SLAB) {
            workgroupBarrier();
            tile[thread] = answers[answers_at + first * 16u + thread];
            workgroupBarrier();
            for (var j = 0u; j < SLAB; j++) {
                o = fma(tile[j * 16u + quad], vec4(learnt[(first + j) * COLUMNS + own]), o);
            }
        }
        for (var r = 0u; r < 4u; r++) {
            let i = quad * 4u + r;
            if i < piece.n && is_inside {
                out[((p.first + piece.start + i) * p.n_head_v + head) * p.dv + column] = o[r];
            }
        }
        // The new state, four rows in a vector, 64 apart.
        let whole = gates[gates_at + piece.n - 1u];
        var sums: array<vec4<f32>, 4>;
        for (var k = 0u; k < 4u; k++) {
            let at = (k * 64u + quad * 4u) * COLUMNS + own;
            sums[k] = whole * vec4(s[at], s[at + COLUMNS], s[at + 2u * COLUMNS], s[at + 3u * COLUMNS]);
        }
        for (var first = 0u; first < piece.n; first += TOKENS) {
            workgroupBarrier();
            for (var item = thread; item < TOKENS * 64u; item += 256u) {
                let i = first + item / 64u;
                let dim = item % 64u * 4u;
                let k_at = (p.n_head_k + key_head) * p.dk;
                let k_four = vec4(
                    at_mixed(piece, k_at, i, dim),
                    at_mixed(piece, k_at, i, dim + 1u),
                    at_mixed(piece, k_at, i, dim + 2u),
                    at_mixed(piece, k_at, i, dim + 3u),
                );
                tile[item] = gates[gates_at + CHUNK + min(i, CHUNK - 1u)] * k_four;
            }
            workgroupBarrier();
            for (var i = 0u; i < TOKENS; i++) {
                let value = vec4(learnt[(first + i) * COLUMNS + own]);
                for (var k = 0u; k < 4u; k++) {
                    if k * 64u < p.dk {
                        sums[k] = fma(tile[i * 64u + k * 16u + quad], value, sums[k]);
                    }
                }
            }
        }
        // Rows of the state that others read are behind the barriers above.
        for (var k = 0u; k < 4u; k++) {
            for (var r = 0u; r < 4u; r++) {
                s[(k * 64u + quad * 4u + r) * COLUMNS + own] = sums[k][r];
            }
        }
        workgroupBarrier();
    }
    for (var row = quad; row < p.dk; row += 16u) {
        if is_inside {
            state[(head * p.dk + row) * p.dv + column] = s[row * COLUMNS + own];
        }
    }
}
