// Functions of one number. No infinities: compilers may assume that there are none.

fn sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(-clamp(x, -87.0, 87.0)));
}

fn silu(x: f32) -> f32 {
    return select(0.0, x * sigmoid(x), x > -87.0);
}

// ln(1 + eˣ): max(x, 0) + 2 atanh(y / (2 + y)) with y = e^(-|x|), by the series of the inverse hyperbolic tangent,
// whose argument is at most 1/3.
fn softplus(x: f32) -> f32 {
    let y = exp(-min(abs(x), 87.0));
    let z = y / (2.0 + y);
    let square = z * z;
    var series = 1.0 / 15.0;
    series = fma(series, square, 1.0 / 13.0);
    series = fma(series, square, 1.0 / 11.0);
    series = fma(series, square, 1.0 / 9.0);
    series = fma(series, square, 1.0 / 7.0);
    series = fma(series, square, 1.0 / 5.0);
    series = fma(series, square, 1.0 / 3.0);
    series = fma(series, square, 1.0);
    return fma(2.0 * z, series, max(x, 0.0));
}

// eˣ for x at most 0. Where a state hardly decays, an error is repeated from token to token, so it is half a unit in
// the last place there: Taylor's series.
fn decay_of(x: f32) -> f32 {
    let small = max(x, -0.25);
    var series = 1.0 / 5040.0;
    series = fma(series, small, 1.0 / 720.0);
    series = fma(series, small, 1.0 / 120.0);
    series = fma(series, small, 1.0 / 24.0);
    series = fma(series, small, 1.0 / 6.0);
    series = fma(series, small, 0.5);
    series = fma(series, small, 1.0);
    series = fma(series, small, 1.0);
    return select(exp(x), series, x > -0.25);
}
