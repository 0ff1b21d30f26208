// The power of two that brings numbers of at most `top` near 2^14, where f16 ends. It and its inverse are normal.
fn unit_of(top: f32) -> f32 {
    let exponent = bitcast<u32>(top) >> 23u;
    return bitcast<f32>(clamp(268u - exponent, 1u, 253u) << 23u);
}

// To the 11 bits that f16 has. (A conversion to f16 and back is nothing to some compilers.)
fn rounded(x: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>((bitcast<vec4<u32>>(x) + 0x1000u) & vec4(0xffffe000u));
}
