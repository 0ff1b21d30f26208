// How sums over some positions are put together. The context is cut at absolute multiples of 64 positions, a block,
// and of 1024, a split; the blocks of a split are folded in order, then the splits. So a token's bits depend on its own
// position only, whichever kernel folds.

const BLOCK: u32 = 64u;
const SPLIT_BLOCKS: u32 = 16u;
// Dims of a dot that are summed up at a time.
const DOT_DIMS: u32 = 32u;
// A score of what is not seen. Finite: compilers may assume that there are no infinities.
const UNSEEN: f32 = -1e30;
// Scores below it are `UNSEEN`.
const UNSEEN_BELOW: f32 = -9e29;

// What sums relative to score m count beside the larger of theirs and others' largest.
fn fold_weight(m: vec4<f32>, largest: vec4<f32>) -> vec4<f32> {
    let weight = select(exp(m - largest), vec4(1.0), m == largest);
    return select(weight, vec4(0.0), m < vec4(UNSEEN_BELOW));
}

fn fold(old: vec4<f32>, old_weight: vec4<f32>, more: vec4<f32>, more_weight: vec4<f32>) -> vec4<f32> {
    return fma(more, more_weight, old * old_weight);
}
