// A workgroup a block: largest scores, sums and weighted values of each, for `attention_merge.wgsl`.
// Needs `attention_block.wgsl` before it.

// [n_block, n_token · n_head, head_dim], then from `stats_at` on [n_block, n_token · n_head, 2]
@group(0) @binding(3) var<storage, read_write> partials: array<f32>;

@compute @workgroup_size(N_THREAD)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let n_tile = (p.n_row + ROWS - 1u) / ROWS;
    let place = place_of(thread, group.y / n_tile, group.y % n_tile);
    let block = p.first_block + group.x;
    score(place, block);
    let stats = softmax(place);
    let first = group.x * p.n_head_kv * p.n_row;
    for (var dim = 0u; dim < p.head_dim; dim += 64u) {
        let sums = weigh(place, block, dim);
        for (var r = 0u; r < 4u; r++) {
            let row = place.first_row + place.quad * 4u + r;
            if row < p.n_row {
                let at = (first + token_head(place.head_kv, row)) * p.head_dim;
                for (var j = 0u; j < COLUMNS; j++) {
                    let to = dim + place.column + j * 16u;
                    if to < p.head_dim {
                        partials[at + to] = sums[j][r];
                    }
                }
            }
        }
    }
    if place.column == 0u {
        for (var r = 0u; r < 4u; r++) {
            let row = place.first_row + place.quad * 4u + r;
            if row < p.n_row {
                let at = p.stats_at + 2u * (first + token_head(place.head_kv, row));
                partials[at] = stats.largest[r];
                partials[at + 1u] = stats.sum[r];
            }
        }
    }
}
