//! What errors of a matrix' numbers cost, column against column, as the inputs of the matrix tell.
//!
//! A row `w` that is stored as `ŵ` changes the outputs by `(w - ŵ) · x`, whose mean square is `eᵀ H e` with
//! `e = w - ŵ` and `H` the mean of `x xᵀ`. Only blocks along the diagonal of `H` are kept, so that memory grows with
//! the width and not with its square.

/// Share of the mean of the diagonal that is added to it: what was not seen costs something too.
const DAMPING: f64 = 0.01;

/// Mean products of the inputs, and the factors that tell how to make up for an error in later columns.
#[derive(Clone, Debug)]
pub struct Curvature {
    block: usize,
    blocks: Vec<Block>,
}

/// A square of `H` on its diagonal.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Columns.
    pub(crate) n: usize,
    /// `H`, `[n, n]`.
    pub(crate) h: Vec<f32>,
    /// Row `i`: by how much an error of 1 in column `i` moves what is best in each later column, `[n, n]`.
    pub(crate) feedback: Vec<f32>,
    /// What a squared error of a column costs once the later ones have made up for it, `[n]`.
    pub(crate) cost: Vec<f32>,
}

impl Curvature {
    /// Floats that the blocks of `width` columns take.
    pub fn products_len(width: usize, block: usize) -> usize {
        (width / block) * block * block + (width % block) * (width % block)
    }

    /// From mean squares and mean products of the inputs, `squares` `[width]` and `products`
    /// `[products_len(width, block)]`, block after block.
    ///
    /// The diagonal is that of `squares`; of `products` only the correlations are used, times `trust`: fewer rows than
    /// columns were seen, say.
    ///
    /// # Panics
    /// The shapes do not fit each other, or `block` is 0 (program mistake).
    pub fn new(squares: &[f32], products: &[f32], block: usize, trust: f32) -> Self {
        assert_eq!(products.len(), Self::products_len(squares.len(), block), "products of such blocks");
        let mut rest = products;
        let blocks = squares.chunks(block).map(|squares| {
            let (products, after) = rest.split_at(squares.len() * squares.len());
            rest = after;
            Block::new(squares, products, f64::from(trust))
        });
        Self { block, blocks: blocks.collect() }
    }

    /// Columns of a block; the last one may be narrower.
    pub fn block(&self) -> usize {
        self.block
    }

    /// Columns.
    pub fn width(&self) -> usize {
        self.blocks.iter().map(|block| block.n).sum()
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }
}

impl Block {
    fn new(squares: &[f32], products: &[f32], trust: f64) -> Self {
        let n = squares.len();
        let mut h = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..n {
                let own = f64::from(products[i * n + i]) * f64::from(products[j * n + j]);
                let scale = (f64::from(squares[i]) * f64::from(squares[j]) / own).sqrt();
                let product = trust * f64::from(products[i * n + j]) * scale;
                h[i * n + j] = match (i == j, product.is_finite()) {
                    (true, _) => f64::from(squares[i]),
                    (false, true) => product,
                    // A column that was always zero is correlated with none.
                    (false, false) => 0.0,
                };
            }
        }
        let mean = squares.iter().map(|&s| f64::from(s)).sum::<f64>() / n as f64;
        // Of inputs that were never seen all columns cost the same.
        let floor = if mean > 0.0 { DAMPING * mean } else { 1.0 };
        (0..n).for_each(|i| h[i * n + i] += floor);
        let (feedback, cost) = factors(&h, n, floor);
        let narrow = |wide: Vec<f64>| wide.into_iter().map(|x| x as f32).collect();
        Self { n, h: narrow(h), feedback: narrow(feedback), cost: narrow(cost) }
    }
}

/// `H = R Rᵀ` with `R` upper triangular, so `eᵀ H e = Σ_j (R_jj e_j + Σ_{i<j} R_ij e_i)²`: an error `e_i` moves the
/// best value of a later column by `e_i R_ij / R_jj`. These factors, and `R_jj²`. Pivots are at least `floor / 2`.
fn factors(h: &[f64], n: usize, floor: f64) -> (Vec<f64>, Vec<f64>) {
    let (mut r, mut cost) = (vec![0.0; n * n], vec![0.0; n]);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for j in (0..n).rev() {
        let tail = j + 1..n;
        let row_j = r[j * n..][tail.clone()].to_vec();
        cost[j] = (h[j * n + j] - dot(&row_j, &row_j)).max(floor / 2.0);
        let pivot = cost[j].sqrt();
        r[j * n + j] = pivot;
        for i in 0..j {
            r[i * n + j] = (h[i * n + j] - dot(&r[i * n..][tail.clone()], &row_j)) / pivot;
        }
    }
    for i in 0..n {
        for j in 0..n {
            r[i * n + j] = if j > i { r[i * n + j] / cost[j].sqrt() } else { 0.0 };
        }
    }
    (r, cost)
}
