// Experts for some pairs of a token and an expert, one step of
// `out[row_out] = down · (silu(gate · x[row_in]) ⊙ (up · x[row_in]))`: a workgroup some rows of a pair.
// Needs a `format_*.wgsl`, a `rows_*.wgsl` and `rows.wgsl` beside it.

// 0: hidden = silu(gate · x) ⊙ (up · x), 1: hidden = silu(gate · x), 2: hidden = hidden ⊙ (up · x), 3: out = down · x.
override STEP: u32;

struct Params {
    planes: vec3<u32>, // in a record: of gate, up or down
    pairs_at: u32,
    planes_up: vec3<u32>, // for step 0
    cols: u32,
    rows: u32,
}
var<immediate> p: Params;

// Where in `w` the record starts or NONE, row of the input, row of the output, unused.
@group(0) @binding(5) var<storage, read> pairs: array<u32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>; // [_, rows]

// For a pair that has no expert.
const NONE: u32 = 0xffffffffu;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_size) n_lane: u32,
) {
    let pair = p.pairs_at + 4u * group.y;
    let record = pairs[pair];
    if record == NONE {
        return;
    }
    let row_in = select(pairs[pair + 1u], group.y, STEP == 3u);
    let row_out = select(group.y, pairs[pair + 2u], STEP == 3u);
    let tokens = Tokens(vec4(row_in * p.cols), 1u, p.cols);
    let n_row = ROWS / select(1u, 2u, STEP == 0u);
    let turn_rows = THREADS / LANES * n_row;
    for (var turn = 0u; turn < TURNS; turn++) {
        let first = (group.x * TURNS + turn) * turn_rows;
        if p.rows <= first {
            break;
        }
        let row0 = first + thread / LANES * n_row;
        var rows: Rows;
        for (var r = 0u; r < n_row; r++) {
            let row = min(row0 + r, p.rows - 1u);
            rows[r] = row_at(p.planes + record, row, p.cols);
            if STEP == 0u {
                rows[n_row + r] = row_at(p.planes_up + record, row, p.cols);
            }
        }
        let sums = dots(&rows, tokens, turn == 0u, thread, n_lane);
        for (var r = 0u; r < n_row; r++) {
            if thread % LANES == r % LANES && row0 + r < p.rows {
                finish(row_out * p.rows + row0 + r, sums[r], sums[n_row + r]);
            }
        }
    }
}

fn finish(at: u32, sum: f32, sum_up: f32) {
    switch STEP {
        case 0u: { out[at] = silu(sum) * sum_up; }
        case 1u: { out[at] = silu(sum); }
        case 2u: { out[at] *= sum; }
        default: { out[at] = sum; }
    }
}

// Where e^-x would overflow, the result is 0 all the same.
fn silu(x: f32) -> f32 {
    return x / (1.0 + exp(min(-x, 80.0)));
}
