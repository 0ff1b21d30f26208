// A router's choice: the k best of a row of logits, ties to the lowest index, and their weights: a softmax over all
// experts, or over the chosen ones. A workgroup of 256 threads a row.
// Needs `reduce.wgsl` before it, and `logit(i)`, `forced(j)` behind it.

const N_EXPERT_MAX: u32 = 1024u;
const N_OWN: u32 = 4u; // experts of a thread

var<workgroup> best_keys: array<u32, 64>;
var<workgroup> best_experts: array<u32, 64>;
var<workgroup> chosen_experts: array<u32, N_EXPERT_MAX>;
var<workgroup> n_bad: atomic<u32>;

struct Choice {
    // Of the logits that are summed up; whether all logits are finite.
    largest: f32,
    is_finite: bool,
    // Of the exponentials that a weight is divided by.
    sum: f32,
}

// A whole number that orders as its logit does; never 0. Both zeros are the same.
fn order_of(logit: f32) -> u32 {
    let bits = bitcast<u32>(logit);
    if (bits & 0x7fffffffu) == 0u {
        return 0x80000000u;
    }
    return max(1u, select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u));
}

// Leaves the experts in `chosen_experts`. All threads call it.
fn choose_row(
    n_expert: u32,
    k: u32,
    renormalise: bool,
    is_forced: bool,
    thread: u32,
    lane: u32,
    n_lane: u32,
) -> Choice {
    if thread == 0u {
        atomicStore(&n_bad, 0u);
    }
    workgroupBarrier();
    var keys: array<u32, N_OWN>;
    for (var i = 0u; i < N_OWN; i++) {
        let expert = thread + i * 256u;
        keys[i] = 0u;
        if expert < n_expert {
            let value = logit(expert);
            keys[i] = order_of(value);
            // The bits, not a comparison: compilers may assume that there is no NaN.
            if (bitcast<u32>(value) & 0x7f800000u) == 0x7f800000u {
                atomicAdd(&n_bad, 1u);
            }
        }
    }
    var largest = 0u;
    let n_round = select(k, 1u, is_forced);
    for (var j = 0u; j < n_round; j++) {
        var key = 0u;
        var expert = N_EXPERT_MAX;
        for (var i = 0u; i < N_OWN; i++) {
            if keys[i] > key {
                key = keys[i];
                expert = thread + i * 256u;
            }
        }
        let key_near = subgroupMax(key);
        let expert_near = subgroupMin(select(N_EXPERT_MAX, expert, key == key_near));
        workgroupBarrier();
        if lane == 0u {
            best_keys[thread / n_lane] = key_near;
            best_experts[thread / n_lane] = expert_near;
        }
        workgroupBarrier();
        key = 0u;
        expert = N_EXPERT_MAX;
        for (var i = 0u; i < 256u / n_lane; i++) {
            let is_better = best_keys[i] > key || (best_keys[i] == key && best_experts[i] < expert);
            key = select(key, best_keys[i], is_better);
            expert = select(expert, best_experts[i], is_better);
        }
        largest = max(largest, key);
        for (var i = 0u; i < N_OWN; i++) {
            if thread + i * 256u == expert {
                keys[i] = 0u;
            }
        }
        if thread == 0u && !is_forced {
            chosen_experts[j] = expert;
        }
    }
    if is_forced {
        for (var j = thread; j < k; j += 256u) {
            chosen_experts[j] = min(forced(j), n_expert - 1u);
        }
    }
    workgroupBarrier();
    var choice: Choice;
    choice.is_finite = atomicLoad(&n_bad) == 0u;
    choice.largest = bitcast<f32>(select(~largest, largest & 0x7fffffffu, (largest & 0x80000000u) != 0u));
    choice.sum = 0.0;
    if renormalise {
        if is_forced {
            choice.largest = logit(chosen_experts[0]);
            for (var j = 1u; j < k; j++) {
                choice.largest = max(choice.largest, logit(chosen_experts[j]));
            }
        }
        for (var j = 0u; j < k; j++) {
            choice.sum += exp(logit(chosen_experts[j]) - choice.largest);
        }
    } else {
        var sum = 0.0;
        for (var expert = thread; expert < n_expert; expert += 256u) {
            sum += exp(logit(expert) - choice.largest);
        }
        choice.sum = workgroup_sum(sum, thread, lane, n_lane);
    }
    return choice;
}

// The weight of choice j.
fn weight_of(choice: Choice, j: u32) -> f32 {
    return exp(logit(chosen_experts[j]) - choice.largest) / choice.sum;
}
