// Makes the convolution's state that behind some tokens: a thread a channel.

struct Params {
    n_channel: u32,
    n_conv: u32,
    first: u32, // token of `qkv`
    n_token: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> qkv: array<f32>; // [_, n_channel]
@group(0) @binding(1) var<storage, read_write> conv_state: array<f32>; // [n_conv - 1, n_channel]

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let channel = group.x * 256u + thread;
    if channel >= p.n_channel {
        return;
    }
    let n_old = p.n_conv - 1u;
    // The row that is read lies behind the one that is written.
    for (var j = 0u; j < n_old; j++) {
        let behind = j + p.n_token;
        if behind < n_old {
            conv_state[j * p.n_channel + channel] = conv_state[behind * p.n_channel + channel];
        } else {
            conv_state[j * p.n_channel + channel] = qkv[(p.first + behind - n_old) * p.n_channel + channel];
        }
    }
}
