// Sums over a workgroup of 256 threads, whatever the size of its subgroups (4 to 128 threads that run in step).

var<workgroup> partial_sums: array<f32, 64>;

// Every thread gets the sum of all threads' values. All threads call it, as often as each other.
fn workgroup_sum(value: f32, thread: u32, lane: u32, n_lane: u32) -> f32 {
    let sum = subgroupAdd(value);
    workgroupBarrier();
    if lane == 0u {
        partial_sums[thread / n_lane] = sum;
    }
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < 256u / n_lane; i++) {
        total += partial_sums[i];
    }
    return total;
}
