// Functions of one number. No infinities: compilers may assume that there are none.

fn sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(-clamp(x, -87.0, 87.0)));
}

fn silu(x: f32) -> f32 {
    return x * sigmoid(x);
}
