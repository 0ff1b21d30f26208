// A workgroup walks over all blocks that its rows see. Heads of at most 256 dims.
// Needs `attention_block.wgsl` before it.

@group(0) @binding(3) var<storage, read_write> out: array<f32>; // [n_token, n_head, head_dim]

const N_SUM: u32 = 16u;

// Writes a column's sums of the splits so far; what the last split makes of them is the result.
fn put(place: Place, dim: u32, split: vec4<f32>, weight: array<vec4<f32>, 2>, total: vec4<f32>, step: u32) {
    for (var r = 0u; r < 4u; r++) {
        let row = place.first_row + place.quad * 4u + r;
        if row < p.n_row && dim < p.head_dim {
            let head = p.first_head + token_head(place.head_kv, row);
            let at = head * p.head_dim + dim;
            var old = 0.0;
            if (step & IS_FIRST) == 0u {
                old = out[at];
            }
            var value = fold(vec4(old), weight[0], split, weight[1])[r];
            if (step & IS_LAST) != 0u {
                value = value / total[r];
                if p.is_gated != 0u {
                    value *= sigmoid(q[head * p.q_stride + p.head_dim + dim]);
                }
            }
            out[at] = value;
        }
    }
}

const IS_FIRST: u32 = 1u;
const IS_LAST: u32 = 2u;

@compute @workgroup_size(N_THREAD)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let place = place_of(thread, group.y, group.x);
    let last_row = min(place.first_row + ROWS, p.n_row) - 1u;
    let n_block = (p.pos + last_row / p.n_rep) / BLOCK + 1u;
    // Of the split, and of all splits.
    var split = Stats(vec4(UNSEEN), vec4(0.0));
    var total = Stats(vec4(UNSEEN), vec4(0.0));
    var sums: array<vec4<f32>, N_SUM>;
    for (var block = 0u; block < n_block; block++) {
        score(place, block);
        let stats = softmax(place);
        let is_start = block % SPLIT_BLOCKS == 0u;
        if is_start {
            split = Stats(vec4(UNSEEN), vec4(0.0));
        }
        let largest = max(split.largest, stats.largest);
        let old_weight = fold_weight(split.largest, largest);
        let more_weight = fold_weight(stats.largest, largest);
        split = Stats(largest, fold(split.sum, old_weight, stats.sum, more_weight));
        for (var i = 0u; i < (p.head_dim + 63u) / 64u; i++) {
            let columns = weigh(place, block, i * 64u);
            for (var j = 0u; j < 4u; j++) {
                let old = select(sums[i * 4u + j], vec4(0.0), is_start);
                sums[i * 4u + j] = fold(old, old_weight, columns[j], more_weight);
            }
        }
        let is_last = block + 1u == n_block;
        if is_last || block % SPLIT_BLOCKS == SPLIT_BLOCKS - 1u {
            let all = max(total.largest, split.largest);
            let weights = array(fold_weight(total.largest, all), fold_weight(split.largest, all));
            total = Stats(all, fold(total.sum, weights[0], split.sum, weights[1]));
            let step = select(0u, IS_FIRST, block < SPLIT_BLOCKS) | select(0u, IS_LAST, is_last);
            for (var i = 0u; i < (p.head_dim + 63u) / 64u; i++) {
                for (var j = 0u; j < 4u; j++) {
                    let dim = i * 64u + place.column + j * 16u;
                    put(place, dim, sums[i * 4u + j], weights, total.sum, step);
                }
            }
        }
    }
}
