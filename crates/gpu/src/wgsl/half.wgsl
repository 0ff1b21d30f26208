// The number that 16 bits are in half precision. (What devices have for it may take small numbers for zero, and scales
// are small.)
fn half_of(bits: u32) -> f32 {
    let sign = (bits & 0x8000u) << 16u;
    let rest = (bits & 0x7fffu) << 13u;
    if rest < 0x00800000u {
        // Steps of 2^-24: behind a one they are part of a number that is normal.
        let one = 113u << 23u;
        let small = bitcast<f32>(rest | one) - bitcast<f32>(one);
        return bitcast<f32>(bitcast<u32>(small) | sign);
    }
    return bitcast<f32>((rest + (112u << 23u)) | sign);
}
