// The state's way over the pieces: see `delta_mix.wgsl`. A workgroup 2 · LANES columns of a value head's state, which
// do not meet others; they stay in workgroup memory. A thread has four tokens, or rows of the state, in a vector, and two
// columns. What the next step needs is on its way while one is computed.
// Needs `delta_piece.wgsl` and `delta_out.wgsl` before it.

override LANES: u32; // 16, or 8 where dk is more than 128
override N_THREAD = 16u * LANES;
override ROWS = 2048u / LANES; // of the state, filled up with zeros
override ROW_FOURS = ROWS / 4u;
override TOKENS = LANES / 2u; // of k in workgroup memory at a time
override N_ITEM = 16u / LANES; // what a thread loads of 256

const SLAB: u32 = 8u; // dims of w and q in workgroup memory at a time
const ANSWERS: u32 = 16u; // tokens of P
const STRIDE: u32 = 17u; // of 16 vectors

@group(0) @binding(0) var<storage, read> mixed: array<f32>; // [n_token, q | k | v]
@group(0) @binding(1) var<storage, read> w: array<f32>; // [n_token, n_head_v, dk]
@group(0) @binding(2) var<storage, read> u: array<f32>; // [n_token, n_head_v, dv]
@group(0) @binding(3) var<storage, read> answers: array<vec4<f32>>; // [n_piece, n_head_v, j 64, i 64]
@group(0) @binding(4) var<storage, read> gates: array<f32>; // [n_piece, n_head_v, 2, 64]
@group(0) @binding(5) var<storage, read_write> state: array<f32>; // [n_head_v, dk, dv]
@group(0) @binding(6) var<storage, read_write> out: array<f32>; // [_, n_head_v, dv]

var<workgroup> s: array<vec2<f32>, 2048>; // [ROWS, LANES], columns LANES apart in a vector
var<workgroup> tile: array<vec4<f32>, 272>; // w and q, [2, dim, token]; P, [j, i]; k, [token, dim]
var<workgroup> learnt: array<vec2<f32>, 1024>; // R, [token, LANES]

struct Place {
    thread: u32,
    head: u32,
    quad: u32, // of tokens, or of rows
    lane: u32,
    // Channels that q and k start at.
    q_at: u32,
    k_at: u32,
}

fn at_w(piece: Piece, head: u32, i: u32, dim: u32) -> f32 {
    let value = w[((piece.start + min(i, piece.n - 1u)) * p.n_head_v + head) * p.dk + min(dim, p.dk - 1u)];
    return select(0.0, value, i < piece.n && dim < p.dk);
}

// Of q, or of k.
fn at_mixed(piece: Piece, start: u32, i: u32, dim: u32) -> f32 {
    let value = mixed[(piece.start + min(i, piece.n - 1u)) * channels() + start + min(dim, p.dk - 1u)];
    return select(0.0, value, i < piece.n && dim < p.dk);
}

// Of w, then of q: four tokens of a dim from `dim` on.
fn load_dims(piece: Piece, place: Place, dim: u32) -> array<vec4<f32>, 2> {
    var fours: array<vec4<f32>, 2>;
    for (var o = 0u; o < N_ITEM; o++) {
        let item = place.thread + o * N_THREAD;
        let d = dim + item % SLAB;
        let i = item % 128u / SLAB * 4u;
        if item < 128u {
            for (var r = 0u; r < 4u; r++) {
                fours[o][r] = at_w(piece, place.head, i + r, d);
            }
        } else {
            for (var r = 0u; r < 4u; r++) {
                fours[o][r] = at_mixed(piece, place.q_at, i + r, d);
            }
        }
    }
    return fours;
}

// Of P, from token `first` on.
fn load_answers(answers_at: u32, place: Place, first: u32) -> array<vec4<f32>, 2> {
    var fours: array<vec4<f32>, 2>;
    for (var o = 0u; o < N_ITEM; o++) {
        fours[o] = answers[answers_at + first * 16u + place.thread + o * N_THREAD];
    }
    return fours;
}

// Of k, times what is left of it at the end of the piece: four dims of a token from `first` on.
fn load_keys(piece: Piece, place: Place, gates_at: u32, first: u32) -> array<vec4<f32>, 2> {
    var fours: array<vec4<f32>, 2>;
    for (var o = 0u; o < N_ITEM; o++) {
        let item = place.thread + o * N_THREAD;
        let i = first + item / ROW_FOURS;
        let dim = item % ROW_FOURS * 4u;
        let gate = gates[gates_at + CHUNK + min(i, CHUNK - 1u)];
        for (var r = 0u; r < 4u; r++) {
            fours[o][r] = gate * at_mixed(piece, place.k_at, i, dim + r);
        }
    }
    return fours;
}

fn store(place: Place, fours: array<vec4<f32>, 2>) {
    var items = fours;
    for (var o = 0u; o < N_ITEM; o++) {
        tile[place.thread + o * N_THREAD] = items[o];
    }
}

fn store_dims(place: Place, fours: array<vec4<f32>, 2>) {
    var items = fours;
    for (var o = 0u; o < N_ITEM; o++) {
        let item = place.thread + o * N_THREAD;
        tile[(item / 128u * SLAB + item % SLAB) * STRIDE + item % 128u / SLAB] = items[o];
    }
}

@compute @workgroup_size(N_THREAD)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = group.x;
    let key_head = head / (p.n_head_v / p.n_head_k);
    let place =
        Place(thread, head, thread / LANES, thread % LANES, key_head * p.dk, (p.n_head_k + key_head) * p.dk);
    let quad = place.quad;
    let lane = place.lane;
    let column = group.y * 2u * LANES + lane;
    let columns = min(vec2(column, column + LANES), vec2(p.dv - 1u));
    let is_inside = vec2(column, column + LANES) < vec2(p.dv);
    for (var row = quad; row < ROWS; row += 16u) {
        let at = (head * p.dk + min(row, p.dk - 1u)) * p.dv;
        s[row * LANES + lane] = select(vec2(0.0), vec2(state[at + columns.x], state[at + columns.y]), vec2(row < p.dk));
    }
    for (var number = 0u; number < n_piece(); number++) {
        let piece = piece_of(number);
        let gates_at = (number * p.n_head_v + head) * 2u * CHUNK;
        let answers_at = (number * p.n_head_v + head) * CHUNK * 16u;
        var next = load_dims(piece, place, 0u);
        var rest: array<vec2<f32>, 4>;
        for (var r = 0u; r < 4u; r++) {
            let i = quad * 4u + r;
            let at = ((piece.start + min(i, piece.n - 1u)) * p.n_head_v + head) * p.dv;
            rest[r] = select(vec2(0.0), vec2(u[at + columns.x], u[at + columns.y]), vec2(i < piece.n));
        }
        // Sᵀ w and Sᵀ q of four tokens, [column].
        var w_sums = array(vec4(0.0), vec4(0.0));
        var q_sums = array(vec4(0.0), vec4(0.0));
        for (var dim = 0u; dim < p.dk; dim += SLAB) {
            workgroupBarrier();
            store_dims(place, next);
            workgroupBarrier();
            if dim + SLAB < p.dk {
                next = load_dims(piece, place, dim + SLAB);
            } else {
                next = load_answers(answers_at, place, 0u);
            }
            for (var k = 0u; k < SLAB; k++) {
                let values = s[(dim + k) * LANES + lane];
                let w_four = tile[k * STRIDE + quad];
                let q_four = tile[(SLAB + k) * STRIDE + quad];
                w_sums[0] = fma(w_four, vec4(values.x), w_sums[0]);
                w_sums[1] = fma(w_four, vec4(values.y), w_sums[1]);
                q_sums[0] = fma(q_four, vec4(values.x), q_sums[0]);
                q_sums[1] = fma(q_four, vec4(values.y), q_sums[1]);
            }
        }
        for (var r = 0u; r < 4u; r++) {
            let i = quad * 4u + r;
            // A token that is not there has learnt nothing: its w and u are 0.
            learnt[i * LANES + lane] = rest[r] - vec2(w_sums[0][r], w_sums[1][r]);
            q_sums[0][r] *= gates[gates_at + i];
            q_sums[1][r] *= gates[gates_at + i];
        }
        for (var first = 0u; first < piece.n; first += ANSWERS) {
            workgroupBarrier();
            store(place, next);
            workgroupBarrier();
            if first + ANSWERS < piece.n {
                next = load_answers(answers_at, place, first + ANSWERS);
            } else {
                next = load_keys(piece, place, gates_at, 0u);
            }
            for (var j = 0u; j < ANSWERS; j++) {
                let values = learnt[(first + j) * LANES + lane];
                let four = tile[j * 16u + quad];
                q_sums[0] = fma(four, vec4(values.x), q_sums[0]);
                q_sums[1] = fma(four, vec4(values.y), q_sums[1]);
            }
        }
        for (var r = 0u; r < 4u; r++) {
            let i = quad * 4u + r;
            let at = ((p.first + piece.start + i) * p.n_head_v + out_head(head, p.n_head_v, p.n_tile)) * p.dv;
            if i < piece.n && is_inside.x {
                out[at + columns.x] = q_sums[0][r];
            }
            if i < piece.n && is_inside.y {
                out[at + columns.y] = q_sums[1][r];
            }
        }
        // The new state: four rows in a vector, 64 apart, [row, column].
        let whole = gates[gates_at + piece.n - 1u];
        var sums: array<vec4<f32>, 8>;
        for (var k = 0u; k < ROWS / 64u; k++) {
            for (var r = 0u; r < 4u; r++) {
                let values = whole * s[(k * 64u + quad * 4u + r) * LANES + lane];
                sums[2u * k][r] = values.x;
                sums[2u * k + 1u][r] = values.y;
            }
        }
        for (var first = 0u; first < piece.n; first += TOKENS) {
            workgroupBarrier();
            store(place, next);
            workgroupBarrier();
            if first + TOKENS < piece.n {
                next = load_keys(piece, place, gates_at, first + TOKENS);
            }
            for (var i = 0u; i < TOKENS; i++) {
                let values = learnt[(first + i) * LANES + lane];
                for (var k = 0u; k < ROWS / 64u; k++) {
                    let four = tile[i * ROW_FOURS + k * 16u + quad];
                    sums[2u * k] = fma(four, vec4(values.x), sums[2u * k]);
                    sums[2u * k + 1u] = fma(four, vec4(values.y), sums[2u * k + 1u]);
                }
            }
        }
        // Rows of the state that others read are behind the barriers above.
        for (var k = 0u; k < ROWS / 64u; k++) {
            for (var r = 0u; r < 4u; r++) {
                s[(k * 64u + quad * 4u + r) * LANES + lane] = vec2(sums[2u * k][r], sums[2u * k + 1u][r]);
            }
        }
        workgroupBarrier();
    }
    for (var row = quad; row < p.dk; row += 16u) {
        let at = (head * p.dk + row) * p.dv;
        if is_inside.x {
            state[at + columns.x] = s[row * LANES + lane].x;
        }
        if is_inside.y {
            state[at + columns.y] = s[row * LANES + lane].y;
        }
    }
}
