// The convolution with SiLU of some tokens, and the l2 norms of queries and keys: a workgroup a head of a token, query
// heads before key heads before value heads.
// Needs `reduce.wgsl` and `activations.wgsl` before it.

const L2_EPS: f32 = 1e-6;

struct Params {
    n_head_k: u32,
    n_head_v: u32,
    dk: u32,
    dv: u32,
    n_conv: u32,
    first: u32, // token of `qkv`
    n_token: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> qkv: array<f32>; // [_, n_channel]
@group(0) @binding(1) var<storage, read> taps: array<f32>; // [n_conv, n_channel]
@group(0) @binding(2) var<storage, read> conv_state: array<f32>; // [n_conv - 1, n_channel]
@group(0) @binding(3) var<storage, read_write> mixed: array<f32>; // [n_token, n_channel]

fn convolve(t: u32, channel: u32, n_channel: u32) -> f32 {
    let n_old = p.n_conv - 1u;
    var sum = 0.0;
    for (var j = 0u; j < p.n_conv; j++) {
        var seen = 0.0;
        if t + j < n_old {
            seen = conv_state[(t + j) * n_channel + channel];
        } else {
            seen = qkv[(p.first + t + j - n_old) * n_channel + channel];
        }
        sum = fma(taps[j * n_channel + channel], seen, sum);
    }
    return silu(sum);
}

const N_THREAD: u32 = 256u;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) n_lane: u32,
) {
    let n_key = p.n_head_k * p.dk;
    let n_channel = 2u * n_key + p.n_head_v * p.dv;
    let t = group.y;
    if group.x >= 2u * p.n_head_k {
        let start = 2u * n_key + (group.x - 2u * p.n_head_k) * p.dv;
        for (var i = thread; i < p.dv; i += 256u) {
            mixed[t * n_channel + start + i] = convolve(t, start + i, n_channel);
        }
        return;
    }
    // At most 256 dims.
    let channel = group.x * p.dk + thread;
    var own = 0.0;
    if thread < p.dk {
        own = convolve(t, channel, n_channel);
    }
    let sum = workgroup_sum(own * own, thread, lane, n_lane);
    let scale = select(1.0, inverseSqrt(f32(p.dk)), group.x < p.n_head_k);
    if thread < p.dk {
        mixed[t * n_channel + channel] = own * (inverseSqrt(sum + L2_EPS) * scale);
    }
}
