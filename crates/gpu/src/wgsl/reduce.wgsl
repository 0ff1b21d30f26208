// Sums over a workgroup of N_THREAD threads (at most 1024), whatever the size of its subgroups (4 to 128 threads that
// run in step).

var<workgroup> partial_sums: array<f32, 256>;

// Every thread gets the sum of all threads' values. All threads call it, once in a kernel.
fn workgroup_sum(value: f32, thread: u32, lane: u32, n_lane: u32) -> f32 {
    let sum = subgroupAdd(value);
    if lane == 0u {
        partial_sums[thread / n_lane] = sum;
    }
    workgroupBarrier();
    var some = 0.0;
    for (var i = lane; i < N_THREAD / n_lane; i += n_lane) {
        some += partial_sums[i];
    }
    return subgroupAdd(some);
}
