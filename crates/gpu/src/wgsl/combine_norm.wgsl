// Then the norm of x[t]: see `norm_row.wgsl`. The sums are those of `combine.wgsl` and `rms_norm.wgsl`, so the bits are
// too.
// Needs `norm_row.wgsl` and `combine_sum.wgsl` before it.

@group(0) @binding(5) var<storage, read> weight: array<f32>; // [d]
@group(0) @binding(6) var<storage, read_write> h: array<f32>; // [n_token, d]

fn is_row(t: u32) -> bool {
    return t < p.n_token;
}

fn is_live() -> bool {
    return control[0] == 0u;
}

fn numbers(t: u32, first: u32) -> array<f32, 8> {
    var at: array<u32, 8>;
    var own: array<f32, 8>;
    for (var o = 0u; o < N_OWN; o++) {
        at[o] = min(first + o * N_THREAD, p.d - 1u);
        own[o] = x[t * p.d + at[o]];
    }
    // Four experts under way.
    var sums: array<f32, 8>;
    let n = n_part();
    for (var j = 0u; j < n; j += 4u) {
        let last = n - 1u;
        let parts = array(
            part(t, j),
            part(t, min(j + 1u, last)),
            part(t, min(j + 2u, last)),
            part(t, min(j + 3u, last)),
        );
        var fours: array<vec4<f32>, 8>;
        for (var o = 0u; o < N_OWN; o++) {
            fours[o] = vec4(
                routed[parts[0].at + at[o]],
                routed[parts[1].at + at[o]],
                routed[parts[2].at + at[o]],
                routed[parts[3].at + at[o]],
            );
        }
        for (var o = 0u; o < N_OWN; o++) {
            sums[o] = fma(parts[0].weight, fours[o].x, sums[o]);
            sums[o] = select(sums[o], fma(parts[1].weight, fours[o].y, sums[o]), j + 1u < n);
            sums[o] = select(sums[o], fma(parts[2].weight, fours[o].z, sums[o]), j + 2u < n);
            sums[o] = select(sums[o], fma(parts[3].weight, fours[o].w, sums[o]), j + 3u < n);
        }
    }
    for (var o = 0u; o < N_OWN; o++) {
        own[o] += sums[o];
    }
    return own;
}

fn keep(t: u32, i: u32, value: f32) {
    x[t * p.d + i] = value;
}

fn kept(t: u32, i: u32) -> f32 {
    return x[t * p.d + i];
}
