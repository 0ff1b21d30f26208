// Folds the blocks' sums of one row, in order; with the last ones, divides and gates. A workgroup 32 dims of a row:
// eight splits are folded at a time, then these in order.
// Needs `attention_fold.wgsl` and `activations.wgsl` before it.

struct Params {
    n_row: u32, // n_token · n_head
    head_dim: u32,
    q_stride: u32,
    is_gated: u32,
    n_block: u32,
    stats_at: u32,
    // Where the rows' largest scores and sums of earlier dispatches are, and where they go, [n_row, 2].
    carry_from: u32,
    carry_to: u32,
    is_first: u32,
    is_last: u32,
    // Heads of tokens of `q` and `out` before ours.
    first_head: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> q: array<f32>; // [n_row, q_stride]
@group(0) @binding(1) var<storage, read_write> partials: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [n_row, head_dim]

const N_LANE: u32 = 8u;
var<workgroup> folded: array<vec4<f32>, 256>; // [split, dim]: largest score, sum, value

// A row's largest score, sum and value; the functions of `attention_fold.wgsl` take the bits of four.
fn fold_one(old: vec4<f32>, more: vec4<f32>) -> vec4<f32> {
    let largest = max(old.x, more.x);
    let weights = fold_weight(vec4(old.x, more.x, old.x, more.x), vec4(largest));
    let sums = fold(vec4(old.y, old.z, 0.0, 0.0), weights.xxxx, vec4(more.y, more.z, 0.0, 0.0), weights.yyyy);
    return vec4(largest, sums.x, sums.y, 0.0);
}

fn partial(row: u32, block: u32, dim: u32) -> vec4<f32> {
    let at = block * p.n_row + row;
    let stats = p.stats_at + 2u * at;
    return vec4(partials[stats], partials[stats + 1u], partials[at * p.head_dim + dim], 0.0);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.x;
    let lane = thread / 32u;
    let dim = group.y * 32u + thread % 32u;
    let is_inside = dim < p.head_dim;
    let dim_read = min(dim, p.head_dim - 1u);
    let place = (p.first_head + row) * p.head_dim + dim_read;
    var total = vec4(UNSEEN, 0.0, 0.0, 0.0);
    if p.is_first == 0u {
        let carry = p.carry_from + 2u * row;
        total = vec4(partials[carry], partials[carry + 1u], out[place], 0.0);
    }
    let gate_at = (p.first_head + row) * p.q_stride + p.head_dim + dim_read;
    var gate = 0.0;
    if p.is_gated != 0u {
        gate = q[gate_at];
    }
    let n_split = (p.n_block + SPLIT_BLOCKS - 1u) / SPLIT_BLOCKS;
    for (var first = 0u; first < n_split; first += N_LANE) {
        let start = (first + lane) * SPLIT_BLOCKS;
        var split = vec4(UNSEEN, 0.0, 0.0, 0.0);
        if start < p.n_block {
            // All on their way.
            var blocks: array<vec4<f32>, SPLIT_BLOCKS>;
            for (var i = 0u; i < SPLIT_BLOCKS; i++) {
                blocks[i] = partial(row, min(start + i, p.n_block - 1u), dim_read);
            }
            for (var i = 0u; i < SPLIT_BLOCKS; i++) {
                split = select(split, fold_one(split, blocks[i]), start + i < p.n_block);
            }
        }
        if first > 0u {
            workgroupBarrier();
        }
        folded[thread] = split;
        workgroupBarrier();
        for (var i = 0u; i < min(N_LANE, n_split - first); i++) {
            total = fold_one(total, folded[i * 32u + thread % 32u]);
        }
    }
    if lane != 0u || !is_inside {
        return;
    }
    if p.is_last == 0u {
        out[place] = total.z;
        if dim == 0u {
            partials[p.carry_to + 2u * row] = total.x;
            partials[p.carry_to + 2u * row + 1u] = total.y;
        }
        return;
    }
    var value = total.z / total.y;
    if p.is_gated != 0u {
        value *= sigmoid(gate);
    }
    out[place] = value;
}
