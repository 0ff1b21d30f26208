// Codes of blocks, which are signed bytes, for `rows_dot.wgsl`.

// The columns of the two words of a quarter, of the token that starts at number `at`.
fn columns(at: u32, quarter: u32) -> mat2x4<f32> {
    let k = 2u * (quarter % 4u);
    return mat2x4(x4[at / 4u + vector_of(quarter / 4u, k)], x4[at / 4u + vector_of(quarter / 4u, k + 1u)]);
}

fn bias_of(factors: vec2<f32>) -> f32 {
    return factors.y;
}
