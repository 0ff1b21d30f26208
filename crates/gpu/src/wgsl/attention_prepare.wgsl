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

@compute @workgroup_size(256)
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
    let kv_row = t * p.n_head_kv + head;
    let start = select(kv_row * p.head_dim, (t * p.n_head + head) * p.q_stride, is_q);
    var sum = 0.0;
    for (var i = thread; i < HEAD_DIM_MAX; i += 256u) {
        var value = 0.0;
        if i < p.head_dim {
            if is_q {
                value = q[start + i];
            } else if is_k {
                value = k[start + i];
            } else {
                value = v[start + i];
            }
        }
        sum = fma(value, value, sum);
        head_row[i] = value;
    }
    let mean = workgroup_sum(sum, thread, lane, n_lane) / f32(p.head_dim);
    let scale = inverseSqrt(mean + p.eps);
    if is_q || is_k {
        for (var i = thread; i < p.head_dim; i += 256u) {
            head_row[i] *= scale * select(k_weight[i], q_weight[i], is_q);
        }
        workgroupBarrier();
        for (var j = thread; j < p.n_pair; j += 256u) {
            let angle = p.angles_at + 2u * t * p.n_pair + j;
            let cosine = bitcast<f32>(args[angle]);
            let sine = bitcast<f32>(args[angle + p.n_pair]);
            let a = head_row[j];
            let b = head_row[j + p.n_pair];
            head_row[j] = a * cosine - b * sine;
            head_row[j + p.n_pair] = b * cosine + a * sine;
        }
        workgroupBarrier();
        for (var i = thread; i < p.head_dim; i += 256u) {
            if is_q {
                q[start + i] = head_row[i];
            } else {
                k[start + i] = head_row[i];
            }
        }
    }
    if is_q {
        return;
    }
    prepare_scales(p.head_dim, thread);
    let at = ((p.pos + t) * p.n_head_kv + head) * p.n_word;
    for (var w = thread; w < p.n_word; w += 256u) {
        let word = stored_word(w, p.n_code, p.head_dim);
        if is_k {
            keys[at + w] = word;
        } else {
            values[at + w] = word;
        }
    }
}
