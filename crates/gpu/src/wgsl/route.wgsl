// A router's choice: the k best of a row of logits, ties to the lowest index, and their weights: a softmax over all
// experts, or over the chosen ones. A workgroup of 256 threads a row. An expert's rank is the number of better ones:
// first among the 32 of its group, then, for the best k of each group, among all of these.
// Needs `reduce.wgsl` before it, and `logit(i)`, `take_note(i)`, `forced(j)` behind it.

const N_THREAD: u32 = 256u;
const N_EXPERT_MAX: u32 = 1024u;
const N_OWN: u32 = 4u; // experts of a thread
const GROUP: u32 = 32u;
// Of a logit that is not finite: better than all others.
const BAD_KEY: u32 = 0xffffffffu;

var<workgroup> keys: array<vec4<u32>, 256>; // [n_expert], zeros behind them
var<workgroup> group_keys: array<vec4<u32>, 256>; // the best of each group, the best first
var<workgroup> group_experts: array<u32, N_EXPERT_MAX>;
var<workgroup> chosen_experts: array<u32, N_EXPERT_MAX>;
var<workgroup> chosen_logits: array<f32, N_EXPERT_MAX>;
var<workgroup> best_key: u32;

struct Choice {
    // Of the logits that are summed up; whether all logits are finite.
    largest: f32,
    is_finite: bool,
    // Of the exponentials that a weight is divided by.
    sum: f32,
}

// A whole number that orders as its logit does; never 0. Both zeros are the same.
fn key_of(logit: f32) -> u32 {
    let bits = bitcast<u32>(logit);
    let size = bits & 0x7fffffffu;
    // The bits, not a comparison: compilers may assume that there is no NaN.
    if size >= 0x7f800000u {
        return BAD_KEY;
    }
    return select(0x80000000u | size, ~bits, bits > 0x80000000u);
}

fn logit_of(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, (key & 0x80000000u) != 0u));
}

// How many of four keys, numbers `first` .., are better than key number i.
fn n_better(four: vec4<u32>, first: u32, key: u32, i: u32) -> u32 {
    let is_before = vec4(first, first + 1u, first + 2u, first + 3u) < vec4(i);
    let is_better = select(four > vec4(key), four >= vec4(key), is_before);
    let counts = select(vec4(0u), vec4(1u), is_better);
    return counts.x + counts.y + counts.z + counts.w;
}

// Leaves the experts and their logits in `chosen_experts` and `chosen_logits`. All threads call it.
fn choose_row(
    n_expert: u32,
    k: u32,
    renormalise: bool,
    is_forced: bool,
    thread: u32,
    lane: u32,
    n_lane: u32,
) -> Choice {
    let n_group = (n_expert + GROUP - 1u) / GROUP;
    var own: array<u32, N_OWN>;
    for (var o = 0u; o < N_OWN; o++) {
        let expert = thread + o * N_THREAD;
        own[o] = 0u;
        if expert < n_expert {
            own[o] = key_of(logit(expert));
            take_note(expert);
        }
        if expert < n_group * GROUP {
            keys[expert / 4u][expert % 4u] = own[o];
        }
    }
    if is_forced {
        for (var j = thread; j < k; j += N_THREAD) {
            let expert = min(forced(j), n_expert - 1u);
            chosen_experts[j] = expert;
            chosen_logits[j] = logit(expert);
        }
    }
    workgroupBarrier();
    let n_best = min(GROUP, select(k, 1u, is_forced));
    for (var o = 0u; o < N_OWN; o++) {
        let expert = thread + o * N_THREAD;
        if expert < n_group * GROUP {
            let first = expert / GROUP * GROUP;
            var rank = 0u;
            for (var i = 0u; i < GROUP; i += 4u) {
                rank += n_better(keys[(first + i) / 4u], first + i, own[o], expert);
            }
            if rank < n_best {
                let at = expert / GROUP * n_best + rank;
                group_keys[at / 4u][at % 4u] = own[o];
                group_experts[at] = expert;
            }
        }
    }
    // Up to a whole vector.
    let n_left = n_group * n_best;
    let behind = n_left + thread;
    if behind < (n_left + 3u) / 4u * 4u {
        group_keys[behind / 4u][behind % 4u] = 0u;
    }
    workgroupBarrier();
    // Those that are left lie in the order of their indices where their keys are the same.
    for (var at = thread; at < n_left; at += N_THREAD) {
        let key = group_keys[at / 4u][at % 4u];
        var rank = 0u;
        for (var i = 0u; i < n_left; i += 4u) {
            rank += n_better(group_keys[i / 4u], i, key, at);
        }
        if rank == 0u {
            best_key = key;
        }
        if rank < k && !is_forced {
            chosen_experts[rank] = group_experts[at];
            chosen_logits[rank] = logit_of(key);
        }
    }
    workgroupBarrier();
    var choice: Choice;
    choice.is_finite = best_key != BAD_KEY;
    choice.largest = logit_of(best_key);
    choice.sum = 0.0;
    if renormalise {
        if is_forced {
            choice.largest = chosen_logits[0];
            for (var j = 1u; j < k; j++) {
                choice.largest = max(choice.largest, chosen_logits[j]);
            }
        }
        for (var j = 0u; j < k; j++) {
            choice.sum += exp(chosen_logits[j] - choice.largest);
        }
    } else {
        var sum = 0.0;
        for (var o = 0u; o < N_OWN; o++) {
            if thread + o * N_THREAD < n_expert {
                sum += exp(logit_of(own[o]) - choice.largest);
            }
        }
        choice.sum = workgroup_sum(sum, thread, lane, n_lane);
    }
    return choice;
}

// The weight of choice j.
fn weight_of(choice: Choice, j: u32) -> f32 {
    return exp(chosen_logits[j] - choice.largest) / choice.sum;
}
