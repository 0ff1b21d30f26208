// The power of two that brings numbers of at most `top` near 2^exponent, at most 14: f16 ends at 2^16. It and its
// inverse are normal.
fn unit_of(top: f32, exponent: u32) -> f32 {
    let own = bitcast<u32>(top) >> 23u;
    return bitcast<f32>(clamp(254u + exponent - own, 1u, 253u) << 23u);
}

// To the 11 bits that f16 has. (A conversion to f16 and back is nothing to some compilers.)
fn rounded(x: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>((bitcast<vec4<u32>>(x) + 0x1000u) & vec4(0xffffe000u));
}

// Fours of a part of a row of split activations: its columns, and sums of groups of them, 16 groups or a multiple.
fn fours_of_row(cols: u32, n_col_of_group: u32) -> u32 {
    return cols / 4u + (cols / n_col_of_group + 15u) / 16u * 4u;
}
