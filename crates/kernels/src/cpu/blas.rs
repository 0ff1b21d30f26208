//! Three calls of the system's BLAS (OpenBLAS): what a delta-net step is compared with in `benches/delta_net.rs`.
//! Matrices are row-major.

const ROW_MAJOR: i32 = 101;
const TRANSPOSED: i32 = 112;

#[link(name = "openblas")]
unsafe extern "C" {
    fn cblas_sscal(n: i32, alpha: f32, x: *mut f32, inc_x: i32);
    fn cblas_sgemv(
        layout: i32,
        trans: i32,
        m: i32,
        n: i32,
        alpha: f32,
        a: *const f32,
        lda: i32,
        x: *const f32,
        inc_x: i32,
        beta: f32,
        y: *mut f32,
        inc_y: i32,
    );
    fn cblas_sger(
        layout: i32,
        m: i32,
        n: i32,
        alpha: f32,
        x: *const f32,
        inc_x: i32,
        y: *const f32,
        inc_y: i32,
        a: *mut f32,
        lda: i32,
    );
    fn openblas_set_num_threads(n_thread: i32);
}

/// Threads that each later call of any thread may use.
pub fn set_threads(n_thread: i32) {
    // SAFETY: takes any number.
    unsafe { openblas_set_num_threads(n_thread) }
}

/// `a ← factor · a`
pub fn scale(factor: f32, a: &mut [f32]) {
    // SAFETY: `a` is as long as it says.
    unsafe { cblas_sscal(size(a.len()), factor, a.as_mut_ptr(), 1) }
}

/// `y ← aᵀ x`, `a` is `[x.len(), y.len()]`.
pub fn transposed_product(a: &[f32], x: &[f32], y: &mut [f32]) {
    assert_eq!(a.len(), x.len() * y.len());
    let (m, n) = (size(x.len()), size(y.len()));
    // SAFETY: the lengths fit (checked above).
    unsafe {
        cblas_sgemv(ROW_MAJOR, TRANSPOSED, m, n, 1.0, a.as_ptr(), n, x.as_ptr(), 1, 0.0, y.as_mut_ptr(), 1);
    }
}

/// `a ← a + x yᵀ`, `a` is `[x.len(), y.len()]`.
pub fn add_outer_product(a: &mut [f32], x: &[f32], y: &[f32]) {
    assert_eq!(a.len(), x.len() * y.len());
    let (m, n) = (size(x.len()), size(y.len()));
    // SAFETY: the lengths fit (checked above).
    unsafe { cblas_sger(ROW_MAJOR, m, n, 1.0, x.as_ptr(), 1, y.as_ptr(), 1, a.as_mut_ptr(), n) }
}

fn size(n: usize) -> i32 {
    i32::try_from(n).expect("a length that BLAS can count")
}
