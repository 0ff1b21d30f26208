// The convolution with SiLU of some tokens, and the l2 norms of queries and keys: a workgroup a head of eight tokens,
// query heads before key heads before value heads; a subgroup a token at a time.
// Needs `activations.wgsl` before it.

override N_CONV: u32; // at most 16

const N_THREAD: u32 = 256u;
const N_TOKEN: u32 = 8u;
const DK_MAX: u32 = 256u;
const L2_EPS: f32 = 1e-6;

struct Params {
    n_head_k: u32,
    n_head_v: u32,
    dk: u32,
    dv: u32,
    first: u32, // token of `qkv`
    n_token: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> qkv: array<f32>; // [_, n_channel]
@group(0) @binding(1) var<storage, read> taps: array<f32>; // [N_CONV, n_channel]
@group(0) @binding(2) var<storage, read> conv_state: array<f32>; // [N_CONV - 1, n_channel]
@group(0) @binding(3) var<storage, read_write> mixed: array<f32>; // [n_token, n_channel]

var<workgroup> rows: array<f32, 2048>; // [token, dim]; no thread reads what another wrote

fn convolve(t: u32, channel: u32, n_channel: u32) -> f32 {
    let n_old = N_CONV - 1u;
    var seen: array<f32, 16>;
    if t >= n_old {
        for (var j = 0u; j < N_CONV; j++) {
            seen[j] = qkv[(p.first + t + j - n_old) * n_channel + channel];
        }
    } else {
        for (var j = 0u; j < N_CONV; j++) {
            if t + j < n_old {
                seen[j] = conv_state[(t + j) * n_channel + channel];
            } else {
                seen[j] = qkv[(p.first + t + j - n_old) * n_channel + channel];
            }
        }
    }
    var sum = 0.0;
    for (var j = 0u; j < N_CONV; j++) {
        sum = fma(taps[j * n_channel + channel], seen[j], sum);
    }
    return silu(sum);
}

@compute @workgroup_size(N_THREAD)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) n_lane: u32,
) {
    let n_key = p.n_head_k * p.dk;
    let n_channel = 2u * n_key + p.n_head_v * p.dv;
    let first = group.y * N_TOKEN;
    let n = min(N_TOKEN, p.n_token - first);
    if group.x >= 2u * p.n_head_k {
        let start = 2u * n_key + (group.x - 2u * p.n_head_k) * p.dv;
        for (var i = thread; i < n * p.dv; i += N_THREAD) {
            let channel = start + i % p.dv;
            let t = first + i / p.dv;
            mixed[t * n_channel + channel] = convolve(t, channel, n_channel);
        }
        return;
    }
    let start = group.x * p.dk;
    let unit = select(1.0, inverseSqrt(f32(p.dk)), group.x < p.n_head_k);
    for (var i = thread / n_lane; i < N_TOKEN; i += N_THREAD / n_lane) {
        // As many for all threads.
        let t = first + min(i, n - 1u);
        var square = 0.0;
        for (var dim = lane; dim < p.dk; dim += n_lane) {
            let value = convolve(t, start + dim, n_channel);
            rows[i * DK_MAX + dim] = value;
            square = fma(value, value, square);
        }
        let scale = inverseSqrt(subgroupAdd(square) + L2_EPS) * unit;
        for (var dim = lane; dim < p.dk; dim += n_lane) {
            if i < n {
                mixed[t * n_channel + start + dim] = rows[i * DK_MAX + dim] * scale;
            }
        }
    }
}
