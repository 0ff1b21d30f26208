// A gated delta-net's recurrence of one token, convolution to gated norm: a workgroup a value head. With p = Sᵀk
// and u = Sᵀq of the old state, d = β(v − e^g p), o = e^g u + (k·q) d, S ← e^g S + k dᵀ. A thread keeps 64 rows of a
// column of the state in registers, so the state is read and written once.
// Needs `reduce.wgsl` and `activations.wgsl` before it.

// Columns at a time, at least 64; 256 / COLUMNS threads share a column. 64 · 256 / COLUMNS is at least head_dim_k.
override COLUMNS: u32;

const N_OWN: u32 = 64u;
const DK_MAX: u32 = 256u;
const DV_MAX: u32 = 1024u;
const L2_EPS: f32 = 1e-6;
// Word of `control` where the value heads of key head 0 are counted.
const ARRIVED_AT: u32 = 16u;

struct Params {
    n_head_k: u32,
    n_head_v: u32,
    dk: u32,
    dv: u32,
    n_conv: u32,
    token: u32,
    eps: f32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read_write> control: array<atomic<u32>>;
@group(0) @binding(1) var<storage, read> qkv: array<f32>; // [n_token, n_channel]
@group(0) @binding(2) var<storage, read> b: array<f32>; // [n_token, n_head_v]
@group(0) @binding(3) var<storage, read> a: array<f32>; // [n_token, n_head_v]
@group(0) @binding(4) var<storage, read> z: array<f32>; // [n_token, n_head_v, dv]
@group(0) @binding(5) var<storage, read> taps: array<f32>; // [n_conv, n_channel]
@group(0) @binding(6) var<storage, read> log_decay: array<f32>; // exp(A_log), [n_head_v]
@group(0) @binding(7) var<storage, read> dt_bias: array<f32>; // [n_head_v]
@group(0) @binding(8) var<storage, read> norm: array<f32>; // [dv]
@group(0) @binding(9) var<storage, read_write> conv_state: array<f32>; // [n_conv - 1, n_channel]
@group(0) @binding(10) var<storage, read_write> state: array<f32>; // [n_head_v, dk, dv]
@group(0) @binding(11) var<storage, read_write> out: array<f32>; // [n_token, n_head_v, dv]

var<workgroup> control_word: u32;
var<workgroup> n_arrived: u32;
var<workgroup> keys: array<vec2<f32>, DK_MAX>; // k and q of a row, zeros behind them
var<workgroup> v_row: array<f32, DV_MAX>;
var<workgroup> o_row: array<f32, DV_MAX>;
var<workgroup> parts: array<vec2<f32>, 256>;

fn n_channel() -> u32 {
    return 2u * p.n_head_k * p.dk + p.n_head_v * p.dv;
}

// The convolution with SiLU of a channel.
fn convolve(channel: u32) -> f32 {
    let n = n_channel();
    var sum = 0.0;
    for (var j = 0u; j + 1u < p.n_conv; j++) {
        sum = fma(taps[j * n + channel], conv_state[j * n + channel], sum);
    }
    return silu(fma(taps[(p.n_conv - 1u) * n + channel], qkv[p.token * n + channel], sum));
}

fn shift(channel: u32) {
    let n = n_channel();
    for (var j = 0u; j + 1u < p.n_conv; j++) {
        if j + 2u < p.n_conv {
            conv_state[j * n + channel] = conv_state[(j + 1u) * n + channel];
        } else {
            conv_state[j * n + channel] = qkv[p.token * n + channel];
        }
    }
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) n_lane: u32,
) {
    let head = group.x;
    let first_row = thread / COLUMNS * N_OWN;
    // On their way while the convolution is computed.
    var own: array<f32, N_OWN>;
    let first_at = head * p.dk * p.dv + min(thread % COLUMNS, p.dv - 1u);
    for (var i = 0u; i < N_OWN; i++) {
        own[i] = state[first_at + min(first_row + i, p.dk - 1u) * p.dv];
    }
    if thread == 0u {
        control_word = atomicLoad(&control[0]);
    }
    if workgroupUniformLoad(&control_word) != 0u {
        return;
    }
    let n_value = p.n_head_v / p.n_head_k;
    let key_head = head / n_value;
    let q_at = key_head * p.dk;
    let k_at = (p.n_head_k + key_head) * p.dk;
    let v_at = 2u * p.n_head_k * p.dk + head * p.dv;

    // DK_MAX is the number of threads.
    var q_own = 0.0;
    var k_own = 0.0;
    if thread < p.dk {
        q_own = convolve(q_at + thread);
        k_own = convolve(k_at + thread);
    }
    for (var i = thread; i < p.dv; i += 256u) {
        v_row[i] = convolve(v_at + i);
    }
    let q_sum = workgroup_sum(q_own * q_own, thread, lane, n_lane);
    let k_sum = workgroup_sum(k_own * k_own, thread, lane, n_lane);
    q_own *= inverseSqrt(q_sum + L2_EPS) * inverseSqrt(f32(p.dk));
    k_own *= inverseSqrt(k_sum + L2_EPS);
    keys[thread] = vec2(k_own, q_own);
    let kq = workgroup_sum(k_own * q_own, thread, lane, n_lane);
    let gate = p.token * p.n_head_v + head;
    let beta = sigmoid(b[gate]);
    let decay = decay_of(-log_decay[head] * softplus(a[gate] + dt_bias[head]));

    for (var first = 0u; first < p.dv; first += COLUMNS) {
        let column = first + thread % COLUMNS;
        let at = head * p.dk * p.dv + min(column, p.dv - 1u);
        if first > 0u {
            for (var i = 0u; i < N_OWN; i++) {
                own[i] = state[at + min(first_row + i, p.dk - 1u) * p.dv];
            }
        }
        var sums = vec2(0.0);
        for (var i = 0u; i < N_OWN; i++) {
            sums = fma(keys[first_row + i], vec2(own[i]), sums);
        }
        workgroupBarrier();
        parts[thread] = sums;
        workgroupBarrier();
        sums = parts[thread % COLUMNS];
        for (var part = 1u; part < 256u / COLUMNS; part++) {
            sums += parts[part * COLUMNS + thread % COLUMNS];
        }
        let d = beta * (v_row[min(column, p.dv - 1u)] - decay * sums.x);
        if column < p.dv {
            if thread < COLUMNS {
                o_row[column] = fma(decay, sums.y, kq * d);
            }
            for (var i = 0u; i < N_OWN; i++) {
                if first_row + i < p.dk {
                    state[at + (first_row + i) * p.dv] = fma(keys[first_row + i].x, d, decay * own[i]);
                }
            }
        }
    }
    workgroupBarrier();

    var square = 0.0;
    for (var i = thread; i < p.dv; i += 256u) {
        square = fma(o_row[i], o_row[i], square);
    }
    let mean = workgroup_sum(square, thread, lane, n_lane) / f32(p.dv);
    let scale = inverseSqrt(mean + p.eps);
    let row = (p.token * p.n_head_v + head) * p.dv;
    for (var i = thread; i < p.dv; i += 256u) {
        out[row + i] = o_row[i] * (scale * norm[i]) * silu(z[row + i]);
        shift(v_at + i);
    }

    // The last one of a key head's value heads shifts what all of them have read.
    if thread == 0u {
        n_arrived = atomicAdd(&control[ARRIVED_AT + key_head], 1u) + 1u;
    }
    if workgroupUniformLoad(&n_arrived) == n_value {
        if thread < p.dk {
            shift(q_at + thread);
            shift(k_at + thread);
        }
        if thread == 0u {
            atomicStore(&control[ARRIVED_AT + key_head], 0u);
        }
    }
}
