// Norms and rotates queries and keys in place, and appends keys and values: a workgroup a head of a token, query heads
// before key heads before value heads.
// Needs `reduce.wgsl` and `kv_encode.wgsl` before it.

struct Params {
    n_head: u32,
    n_head_kv: u32,
    head_dim: u32,
    // From one query head to the next.
    q_stride: u32,
    // Pairs that are rotated.
    n_pair: u32,
    // Word of `args` that the token's cosines, then sines start at, `[n_token, 2, n_pair]`.
    angles_at: u32,
    // Row and position of the first token.
    first: u32,
    pos: u32,
    // Words of a stored head: its codes; all of it.
    n_code: u32,
    n_word: u32,
    eps: f32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> args: array<u32>;
@group(0) @binding(1) var<storage, read_write> q: array<f32>; // [n_token, n_head, q_stride]
@group(0) @binding(2) var<storage, read_write> k: array<f32>; // [n_token, n_head_kv, head_dim]
@group(0) @binding(3) var<storage, read> v: array<f32>; // [n_token, n_head_kv, head_dim]
@group(0) @binding(4) var<storage, read> q_weight: array<f32>; // [head_dim]
@group(0) @binding(5) var<storage, read> k_weight: array<f32>; // [head_dim]
@group(0) @binding(6) var<storage, read_write> keys: array<u32>; // [n_pos, n_head_kv, n_word]
@group(0) @binding(7) var<storage, read_write> values: array<u32>; // [n_pos, n_head_kv, n_word]

const N_THREAD: u32 = 256u;
// Dims of a thread, N_THREAD apart.
override N_OWN: u32; // at most 4

// What becomes of a dim: its number and that of the dim that it is rotated with, both to be normed, and how much each
// counts.
struct Turn {
    value: f32,
    other: f32,
    value_share: f32,
    other_share: f32,
}

// The dim that dim i is rotated with, or itself.
fn other_of(i: u32) -> u32 {
    if i >= 2u * p.n_pair {
        return i;
    }
    return select(i - p.n_pair, i + p.n_pair, i < p.n_pair);
}

// Cosine, and sine with its sign.
fn angle_of(t: u32, i: u32) -> vec2<f32> {
    let is_turned = i < 2u * p.n_pair;
    let is_low = i < p.n_pair;
    let at = p.angles_at + 2u * t * p.n_pair + select(0u, select(i - p.n_pair, i, is_low), is_turned);
    let cosine = bitcast<f32>(args[at]);
    let sine = bitcast<f32>(args[at + p.n_pair]);
    return select(vec2(1.0, 0.0), vec2(cosine, select(sine, -sine, is_low)), is_turned);
}

@compute @workgroup_size(N_THREAD)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) n_lane: u32,
) {
    let t = group.y;
    let is_q = group.x < p.n_head;
    let is_k = !is_q && group.x < p.n_head + p.n_head_kv;
    let head = select((group.x - p.n_head) % p.n_head_kv, group.x, is_q);
    let row = p.first + t;
    let kv_row = row * p.n_head_kv + head;
    let start = select(kv_row * p.head_dim, (row * p.n_head + head) * p.q_stride, is_q);
    // All on their way. Others write what is read here behind the barrier of the sum.
    var turns: array<Turn, 4>;
    for (var o = 0u; o < N_OWN; o++) {
        let i = min(thread + o * N_THREAD, p.head_dim - 1u);
        let other = other_of(i);
        let angle = angle_of(t, i);
        if is_q {
            turns[o] = Turn(q[start + i], q[start + other], angle.x * q_weight[i], angle.y * q_weight[other]);
        } else if is_k {
            turns[o] = Turn(k[start + i], k[start + other], angle.x * k_weight[i], angle.y * k_weight[other]);
        } else {
            turns[o] = Turn(v[start + i], 0.0, 1.0, 0.0);
        }
    }
    var sum = 0.0;
    for (var o = 0u; o < N_OWN; o++) {
        if thread + o * N_THREAD < p.head_dim {
            sum = fma(turns[o].value, turns[o].value, sum);
        }
    }
    let mean = workgroup_sum(sum, thread, lane, n_lane) / f32(p.head_dim);
    let scale = inverseSqrt(mean + p.eps);
    for (var o = 0u; o < N_OWN; o++) {
        let i = thread + o * N_THREAD;
        if i < p.head_dim {
            let turn = turns[o];
            var value = turn.value;
            if is_q || is_k {
                value = fma(value * scale, turn.value_share, turn.other * scale * turn.other_share);
            }
            if is_q {
                q[start + i] = value;
            } else {
                head_row[i] = value;
            }
            if is_k {
                k[start + i] = value;
            }
        }
    }
    if is_q {
        return;
    }
    for (var i = p.head_dim + thread; i < (p.head_dim + 31u) / 32u * 32u; i += N_THREAD) {
        head_row[i] = 0.0;
    }
    workgroupBarrier();
    prepare_scales(p.head_dim, thread);
    let at = ((p.pos + t) * p.n_head_kv + head) * p.n_word;
    for (var w = thread; w < p.n_word; w += N_THREAD) {
        let word = stored_word(w, p.n_code, p.head_dim);
        if is_k {
            keys[at + w] = word;
        } else {
            values[at + w] = word;
        }
    }
}
