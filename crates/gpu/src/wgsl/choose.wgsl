// The choice of each of some tokens, for the host. Needs `route.wgsl` before it.

struct Params {
    n_token: u32,
    n_expert: u32,
    k: u32,
    renormalise: u32,
    // Word of `args` from which on the experts to take are, `[n_token, k]`, or 0xffffffff.
    forced_at: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> logits: array<f32>; // [n_token, n_expert]
@group(0) @binding(1) var<storage, read> args: array<u32>;
// Bits of weights, [n_token, k]; experts, [n_token, k]; whether a logit is not finite, [n_token]: one piece to read.
@group(0) @binding(2) var<storage, read_write> routes: array<u32>;

var<private> token: u32;

fn logit(expert: u32) -> f32 {
    return logits[token * p.n_expert + expert];
}

fn take_note(expert: u32) {}

fn forced(j: u32) -> u32 {
    return args[p.forced_at + token * p.k + j];
}

@compute @workgroup_size(N_THREAD)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) n_group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) n_lane: u32,
) {
    token = group.y * n_group.x + group.x;
    if group.y * n_group.x + group.x >= p.n_token {
        return;
    }
    let is_forced = p.forced_at != 0xffffffffu;
    let choice = choose_row(p.n_expert, p.k, p.renormalise != 0u, is_forced, thread, lane, n_lane);
    for (var j = thread; j < p.k; j += N_THREAD) {
        routes[token * p.k + j] = bitcast<u32>(weight_of(choice, j));
        routes[(p.n_token + token) * p.k + j] = chosen_experts[j];
    }
    if thread == 0u {
        routes[2u * p.n_token * p.k + token] = select(1u, 0u, choice.is_finite);
    }
}
