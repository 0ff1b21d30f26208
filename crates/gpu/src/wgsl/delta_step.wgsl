// A gated delta-net's recurrence of one token, convolution to gated norm: a workgroup a value head. With p = Sᵀk
// and u = Sᵀq of the old state, d = β(v − e^g p), o = e^g u + (k·q) d, S ← e^g S + k dᵀ. A thread keeps 32 rows of a
// column of the state in registers, so the state is read and written once. All that is read is on its way before any
// of it is needed; subgroups all make the same short sums, so that none waits for another's.
// Needs `activations.wgsl` and `delta_out.wgsl` before it.

override N_THREAD: u32; // at least 256
// Columns at a time; N_THREAD / COLUMNS threads share a column. N_OWN · N_THREAD / COLUMNS is at least head_dim_k.
override COLUMNS: u32;
override N_CONV: u32; // at most 16

const N_OWN: u32 = 32u;
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
    token: u32,
    eps: f32,
    n_tile: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read_write> control: array<atomic<u32>>;
@group(0) @binding(1) var<storage, read> qkv: array<f32>; // [n_token, n_channel]
@group(0) @binding(2) var<storage, read> b: array<f32>; // [n_token, n_head_v]
@group(0) @binding(3) var<storage, read> a: array<f32>; // [n_token, n_head_v]
@group(0) @binding(4) var<storage, read> z: array<f32>; // [n_token, n_head_v, dv]
@group(0) @binding(5) var<storage, read> taps: array<f32>; // [N_CONV, n_channel]
@group(0) @binding(6) var<storage, read> log_decay: array<f32>; // exp(A_log), [n_head_v]
@group(0) @binding(7) var<storage, read> dt_bias: array<f32>; // [n_head_v]
@group(0) @binding(8) var<storage, read> norm: array<f32>; // [dv]
@group(0) @binding(9) var<storage, read_write> conv_state: array<f32>; // [N_CONV - 1, n_channel]
@group(0) @binding(10) var<storage, read_write> state: array<f32>; // [n_head_v, dk, dv]
@group(0) @binding(11) var<storage, read_write> out: array<f32>; // [n_token, n_head_v, dv]

var<workgroup> n_arrived: u32;
// Convolved, zeros behind them.
var<workgroup> q_row: array<vec4<f32>, 64>;
var<workgroup> k_row: array<vec4<f32>, 64>;
var<workgroup> v_row: array<f32, DV_MAX>;
var<workgroup> o_row: array<f32, DV_MAX>;
// What the normed output is multiplied with.
var<workgroup> gate_row: array<f32, DV_MAX>;
var<workgroup> parts: array<vec2<f32>, 512>;

fn n_channel() -> u32 {
    return 2u * p.n_head_k * p.dk + p.n_head_v * p.dv;
}

// The channel of a head's number i of q, k and v.
fn channel_of(head: u32, i: u32) -> u32 {
    let key_head = head / (p.n_head_v / p.n_head_k);
    if i < 2u * p.dk {
        return (select(0u, p.n_head_k, i >= p.dk) + key_head) * p.dk + select(i, i - p.dk, i >= p.dk);
    }
    return 2u * p.n_head_k * p.dk + head * p.dv + i - 2u * p.dk;
}

// What the convolution of a channel sees.
fn window_of(channel: u32) -> array<f32, 16> {
    var window: array<f32, 16>;
    for (var j = 0u; j + 1u < N_CONV; j++) {
        window[j] = conv_state[j * n_channel() + channel];
    }
    window[N_CONV - 1u] = qkv[p.token * n_channel() + channel];
    return window;
}

// The convolution with SiLU.
fn convolve(channel: u32, window: array<f32, 16>) -> f32 {
    var seen = window;
    var sum = 0.0;
    for (var j = 0u; j < N_CONV; j++) {
        sum = fma(taps[j * n_channel() + channel], seen[j], sum);
    }
    return silu(sum);
}

fn shift(channel: u32, window: array<f32, 16>) {
    var seen = window;
    for (var j = 0u; j + 1u < N_CONV; j++) {
        conv_state[j * n_channel() + channel] = seen[j + 1u];
    }
}

@compute @workgroup_size(N_THREAD)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) n_lane: u32,
) {
    let head = group.x;
    let first_row = thread / COLUMNS * N_OWN;
    var own: array<f32, N_OWN>;
    let first_at = head * p.dk * p.dv + min(thread % COLUMNS, p.dv - 1u);
    for (var i = 0u; i < N_OWN; i++) {
        own[i] = state[first_at + min(first_row + i, p.dk - 1u) * p.dv];
    }
    // Where it is not, nothing is written.
    let is_live = atomicLoad(&control[0]) == 0u;
    let gate = p.token * p.n_head_v + head;
    let beta = sigmoid(b[gate]);
    let decay = decay_of(-log_decay[head] * softplus(a[gate] + dt_bias[head]));
    let n_value = p.n_head_v / p.n_head_k;
    let key_head = head / n_value;
    let z_at = gate * p.dv;
    let out_at = (p.token * p.n_head_v + out_head(head, p.n_head_v, p.n_tile)) * p.dv;

    for (var i = thread; i < p.dv; i += N_THREAD) {
        gate_row[i] = norm[i] * silu(z[z_at + i]);
    }
    for (var i = thread; i < 2u * p.dk + p.dv; i += N_THREAD) {
        let channel = channel_of(head, i);
        let window = window_of(channel);
        let value = convolve(channel, window);
        if i < p.dk {
            q_row[i / 4u][i % 4u] = value;
        } else if i < 2u * p.dk {
            k_row[(i - p.dk) / 4u][(i - p.dk) % 4u] = value;
        } else {
            v_row[i - 2u * p.dk] = value;
            if is_live {
                shift(channel, window);
            }
        }
    }
    for (var i = p.dk + thread; i < DK_MAX; i += N_THREAD) {
        q_row[i / 4u][i % 4u] = 0.0;
        k_row[i / 4u][i % 4u] = 0.0;
    }
    workgroupBarrier();
    // Nobody needs the result yet.
    var arrived = 0u;
    if thread == 0u && is_live {
        arrived = atomicAdd(&control[ARRIVED_AT + key_head], 1u) + 1u;
    }

    var q_square = 0.0;
    var k_square = 0.0;
    var product = 0.0;
    for (var i = lane; i < (p.dk + 3u) / 4u; i += n_lane) {
        let q_four = q_row[i];
        let k_four = k_row[i];
        q_square += dot(q_four, q_four);
        k_square += dot(k_four, k_four);
        product += dot(k_four, q_four);
    }
    let q_scale = inverseSqrt(subgroupAdd(q_square) + L2_EPS) * inverseSqrt(f32(p.dk));
    let k_scale = inverseSqrt(subgroupAdd(k_square) + L2_EPS);
    let kq = subgroupAdd(product) * k_scale * q_scale;

    for (var first = 0u; first < p.dv; first += COLUMNS) {
        let column = first + thread % COLUMNS;
        let at = head * p.dk * p.dv + min(column, p.dv - 1u);
        if first > 0u {
            for (var i = 0u; i < N_OWN; i++) {
                own[i] = state[at + min(first_row + i, p.dk - 1u) * p.dv];
            }
        }
        // Of k and q.
        var sums = vec2(0.0);
        for (var i = 0u; i < N_OWN; i += 4u) {
            let k_four = k_row[(first_row + i) / 4u];
            let q_four = q_row[(first_row + i) / 4u];
            sums = fma(vec2(k_four.x, q_four.x), vec2(own[i]), sums);
            sums = fma(vec2(k_four.y, q_four.y), vec2(own[i + 1u]), sums);
            sums = fma(vec2(k_four.z, q_four.z), vec2(own[i + 2u]), sums);
            sums = fma(vec2(k_four.w, q_four.w), vec2(own[i + 3u]), sums);
        }
        parts[thread] = sums;
        workgroupBarrier();
        sums = parts[thread % COLUMNS];
        for (var part = 1u; part < N_THREAD / COLUMNS; part++) {
            sums += parts[part * COLUMNS + thread % COLUMNS];
        }
        let d = beta * (v_row[min(column, p.dv - 1u)] - decay * (k_scale * sums.x));
        if column < p.dv && thread < COLUMNS {
            o_row[column] = fma(decay, q_scale * sums.y, kq * d);
        }
        if column < p.dv && is_live {
            for (var i = 0u; i < N_OWN; i += 4u) {
                let k_four = k_row[(first_row + i) / 4u];
                for (var r = 0u; r < 4u; r++) {
                    if first_row + i + r < p.dk {
                        state[at + (first_row + i + r) * p.dv] = fma(k_four[r], k_scale * d, decay * own[i + r]);
                    }
                }
            }
        }
        workgroupBarrier();
    }

    var square = 0.0;
    for (var i = lane; i < p.dv; i += n_lane) {
        square = fma(o_row[i], o_row[i], square);
    }
    let mean = subgroupAdd(square) / f32(p.dv);
    let scale = inverseSqrt(mean + p.eps);
    for (var i = thread; i < p.dv && is_live; i += N_THREAD) {
        out[out_at + i] = o_row[i] * scale * gate_row[i];
    }

    // The last one of a key head's value heads shifts what all of them have read.
    if thread == 0u {
        n_arrived = arrived;
    }
    if workgroupUniformLoad(&n_arrived) == n_value {
        for (var i = thread; i < 2u * p.dk; i += N_THREAD) {
            let channel = channel_of(head, i);
            shift(channel, window_of(channel));
        }
        if thread == 0u {
            atomicStore(&control[ARRIVED_AT + key_head], 0u);
        }
    }
}
