//! Affine encoding that looks for the scale, bias and codes with the least error, instead of taking the range.
//!
//! Three costs of an error: the same for all columns, one for each column, or a [`Curvature`], where errors of several
//! columns make up for each other. The result is never worse than [`crate::encode_row`]'s, by the cost asked for and as
//! decoded. It is deterministic, and the work for a row is bounded.

use half::bf16;

use crate::affine::{affine_params, pack_codes, quantise, range};
use crate::curvature::{Block, Curvature};
use crate::{Format, FormatError};

/// What errors of a row's numbers cost.
#[derive(Clone, Copy, Debug)]
pub enum Cost<'a> {
    /// The same in all columns.
    Equal,
    /// So much in each column, `[cols]`; finite and not negative.
    Columns(&'a [f32]),
    /// `eᵀ H e`.
    Curvature(&'a Curvature),
}

/// The largest group that a format has.
const GROUP_MAX: usize = 128;
/// Steps at which each end of the range is tried.
const N_STEP: usize = 5;
/// Ends of the range that are refined.
const N_REFINED: usize = 2;
/// Most times that codes and scale are fitted to each other.
const N_FIT: usize = 8;
/// Most times that a row's codes and scales are changed under a curvature.
const N_SWEEP: usize = 4;

/// Encodes rows; keeps its buffers.
#[derive(Debug, Default)]
pub struct Searcher {
    columns: Vec<f32>,
    /// The row with what earlier errors move.
    moved: Vec<f32>,
    /// Original minus stored.
    error: Vec<f32>,
    /// `H · error`.
    slope: Vec<f32>,
    found: Encoded,
    plain: Encoded,
}

/// Codes, scales and biases of some columns, not packed yet.
#[derive(Clone, Debug, Default)]
struct Encoded {
    codes: Vec<u8>,
    params: Vec<Params>,
}

/// Scale and bias as they are stored, in f32.
#[derive(Clone, Copy, Debug, Default)]
struct Params {
    scale: f32,
    bias: f32,
}

impl Params {
    fn stored(scale: f32, bias: f32) -> Self {
        Self { scale: bf16::from_f32(scale).to_f32(), bias: bf16::from_f32(bias).to_f32() }
    }

    fn value(self, code: u8) -> f32 {
        self.scale * f32::from(code) + self.bias
    }

    /// Can it be divided by, and is nothing decoded with it infinite?
    fn is_usable(self, n: f32) -> bool {
        self.scale != 0.0 && (self.scale.abs() * n + self.bias.abs()).is_finite()
    }

    fn nearest(self, w: f32, n: f32) -> u8 {
        round(((w - self.bias) / self.scale).max(0.0).min(n)) as u8
    }
}

/// Half to even, for 0 to 255.
fn round(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5·2²³
    (x + ROUND) - ROUND
}

impl Searcher {
    /// As [`crate::encode_row`], with the least cost that was found.
    ///
    /// # Errors
    /// As [`crate::encode_row`].
    ///
    /// # Panics
    /// `format` is not affine, or the shapes do not fit each other (program mistake).
    pub fn encode_row(
        &mut self,
        format: Format,
        row: &[f32],
        cost: Cost<'_>,
        codes: &mut [u8],
        scales: &mut [u8],
        biases: &mut [u8],
    ) -> Result<(), FormatError> {
        let Format::Affine { bits, group } = format else { panic!("{format} has no scales to look for") };
        // The plain encoding checks the shapes and the numbers.
        crate::encode_row(format, row, codes, scales, biases)?;
        let (n, group) = (((1u32 << bits) - 1) as f32, usize::from(group));
        match cost {
            Cost::Equal => {
                self.columns.clear();
                self.columns.resize(row.len(), 1.0);
                self.by_columns(row, group, n);
            }
            Cost::Columns(columns) => {
                assert_eq!(columns.len(), row.len(), "a cost for each column");
                self.columns.clear();
                self.columns.extend_from_slice(columns);
                self.by_columns(row, group, n);
            }
            Cost::Curvature(curvature) => {
                assert_eq!(curvature.width(), row.len(), "a curvature of all columns");
                self.by_curvature(row, curvature, group, n);
            }
        }
        for (place, params) in self.found.params.iter().enumerate() {
            scales[place * 2..][..2].copy_from_slice(&bf16::from_f32(params.scale).to_le_bytes());
            biases[place * 2..][..2].copy_from_slice(&bf16::from_f32(params.bias).to_le_bytes());
        }
        pack_codes(bits, &self.found.codes, codes);
        Ok(())
    }

    fn by_columns(&mut self, row: &[f32], group: usize, n: f32) {
        self.found.start(row.len());
        let groups = row.chunks_exact(group).zip(self.columns.chunks_exact(group));
        for ((w, costs), codes) in groups.zip(self.found.codes.chunks_exact_mut(group)) {
            self.found.params.push(search(w, costs, n, codes));
        }
    }

    fn by_curvature(&mut self, row: &[f32], curvature: &Curvature, group: usize, n: f32) {
        self.found.start(row.len());
        let aligned = curvature.block().is_multiple_of(group) || row.len() <= curvature.block();
        assert!(aligned, "blocks of whole groups");
        let mut start = 0;
        for block in curvature.blocks() {
            let w = &row[start..start + block.n];
            self.encode_block(w, block, group, n, start);
            start += block.n;
        }
    }

    /// Columns `start ..` of the row: one after the other with feedback, then again until nothing gets better.
    fn encode_block(&mut self, w: &[f32], block: &Block, group: usize, n: f32, start: usize) {
        self.found.params.truncate(start / group);
        self.moved.clear();
        self.moved.extend_from_slice(w);
        self.error.resize(block.n, 0.0);
        self.slope.resize(block.n, 0.0);
        let codes = &mut self.found.codes[start..start + block.n];
        let params = &mut self.found.params;
        for at in (0..block.n).step_by(group) {
            let columns = at..at + group;
            let chosen = search(
                &self.moved[columns.clone()],
                &block.cost[columns.clone()],
                n,
                &mut codes[columns.clone()],
            );
            params.push(chosen);
            for i in columns {
                codes[i] = chosen.nearest(self.moved[i], n);
                self.error[i] = w[i] - chosen.value(codes[i]);
                let later = i + 1..block.n;
                add_scaled(
                    &mut self.moved[later.clone()],
                    self.error[i],
                    &block.feedback[i * block.n..][later],
                );
            }
        }
        let params = &mut params[start / group..];
        let mut found =
            Descent { w, block, group, n, codes, params, error: &mut self.error, slope: &mut self.slope };
        let mut total = found.start();
        for _ in 0..N_SWEEP {
            let gain = found.change_codes() + found.change_params();
            total -= gain;
            if gain <= 1e-4 * total.abs() {
                break;
            }
        }
        let cost = found.start();
        self.plain.start(block.n);
        for (w, codes) in w.chunks_exact(group).zip(self.plain.codes.chunks_exact_mut(group)) {
            self.plain.params.push(plain(w, n, codes));
        }
        let Encoded { codes, params } = &mut self.plain;
        let (error, slope) = (&mut self.error, &mut self.slope);
        let plain_cost = Descent { w, block, group, n, codes, params, error, slope }.start();
        if plain_cost < cost {
            self.found.codes[start..start + block.n].copy_from_slice(&self.plain.codes);
            self.found.params[start / group..].copy_from_slice(&self.plain.params);
        }
    }
}

impl Encoded {
    fn start(&mut self, cols: usize) {
        self.codes.clear();
        self.codes.resize(cols, 0);
        self.params.clear();
    }
}

/// Goes downhill from an encoding of a block's columns.
struct Descent<'a> {
    w: &'a [f32],
    block: &'a Block,
    group: usize,
    n: f32,
    codes: &'a mut [u8],
    params: &'a mut [Params],
    error: &'a mut [f32],
    slope: &'a mut [f32],
}

impl Descent<'_> {
    /// Computes errors and slopes; the cost.
    fn start(&mut self) -> f64 {
        for (i, (error, &w)) in self.error.iter_mut().zip(self.w).enumerate() {
            *error = w - self.params[i / self.group].value(self.codes[i]);
        }
        self.slope.fill(0.0);
        for (&error, h) in self.error.iter().zip(self.block.h.chunks_exact(self.block.n)) {
            add_scaled(self.slope, error, h);
        }
        self.error.iter().zip(&*self.slope).map(|(&e, &s)| f64::from(e) * f64::from(s)).sum()
    }

    /// Moves each code to where it is best, the others as they are; what is gained.
    fn change_codes(&mut self) -> f64 {
        let (n, mut gain) = (self.block.n, 0.0);
        for i in 0..n {
            let (params, h) = (self.params[i / self.group], &self.block.h[i * n..][..n]);
            let old = params.value(self.codes[i]);
            let code = params.nearest(old + self.slope[i] / h[i], self.n);
            if code == self.codes[i] {
                continue;
            }
            let step = params.value(code) - old;
            let gained =
                f64::from(step) * (2.0 * f64::from(self.slope[i]) - f64::from(step) * f64::from(h[i]));
            if gained > 0.0 {
                gain += gained;
                self.codes[i] = code;
                self.error[i] -= step;
                add_scaled(self.slope, -step, h);
            }
        }
        gain
    }

    /// Fits scale and bias of each group to its codes, the other groups as they are; what is gained.
    fn change_params(&mut self) -> f64 {
        let (n, mut gain) = (self.block.n, 0.0);
        for (place, first) in (0..n).step_by(self.group).enumerate() {
            let columns = first..first + self.group;
            let codes = &self.codes[columns.clone()];
            // `q` are the codes, `1` the bias' direction: qᵀHq, qᵀH1, 1ᵀH1 and the slopes along both.
            let mut hq = [0.0; GROUP_MAX];
            let (mut q1, mut one1) = (0.0, 0.0);
            for (&code, i) in codes.iter().zip(columns.clone()) {
                let h = &self.block.h[i * n..][columns.clone()];
                add_scaled(&mut hq[..self.group], f32::from(code), h);
                let row: f64 = h.iter().map(|&h| f64::from(h)).sum();
                (q1, one1) = (q1 + f64::from(code) * row, one1 + row);
            }
            let dot =
                |a: &[f32]| a.iter().zip(codes).map(|(&a, &q)| f64::from(a) * f64::from(q)).sum::<f64>();
            let qq = dot(&hq[..self.group]);
            let slope = &self.slope[columns.clone()];
            let (along_q, along_1) = (dot(slope), slope.iter().map(|&s| f64::from(s)).sum::<f64>());
            let Some((d_scale, d_bias)) = solve([qq, q1, one1], [along_q, along_1]) else { continue };
            let old = self.params[place];
            let new = Params::stored(old.scale + d_scale as f32, old.bias + d_bias as f32);
            let (ds, db) = (f64::from(new.scale - old.scale), f64::from(new.bias - old.bias));
            let gained =
                2.0 * (ds * along_q + db * along_1) - (ds * ds * qq + 2.0 * ds * db * q1 + db * db * one1);
            if !new.is_usable(self.n) || gained.is_nan() || gained <= 0.0 {
                continue;
            }
            gain += gained;
            self.params[place] = new;
            for (&code, i) in codes.iter().zip(columns) {
                let step = new.value(code) - old.value(code);
                self.error[i] -= step;
                add_scaled(self.slope, -step, &self.block.h[i * n..][..n]);
            }
        }
        gain
    }
}

/// `x` with `[[a, b], [b, c]] · x = y`, if there is one.
fn solve([a, b, c]: [f64; 3], [y0, y1]: [f64; 2]) -> Option<(f64, f64)> {
    let det = a * c - b * b;
    (det > 1e-9 * a * c).then(|| ((y0 * c - y1 * b) / det, (a * y1 - b * y0) / det))
}

/// `x[i] += a · y[i]`
fn add_scaled(x: &mut [f32], a: f32, y: &[f32]) {
    for (x, &y) in x.iter_mut().zip(y) {
        *x += a * y;
    }
}

/// What the plain quantiser stores for a group.
fn plain(w: &[f32], n: f32, codes: &mut [u8]) -> Params {
    let (lo, hi) = range(w).expect("the plain encoding has seen finite numbers");
    let (scale, bias) = affine_params(lo, hi, n);
    quantise(w, scale, bias, n, codes);
    Params::stored(scale, bias)
}

/// Sums of a group that do not depend on the codes.
struct Group<'a> {
    w: &'a [f32],
    costs: &'a [f32],
    n: f32,
    /// What `w` is relative to in the sums, so that they do not cancel.
    centre: f32,
    /// Σ c, Σ c·x, Σ c·x², with `x = w - centre`
    c: f32,
    cx: f32,
    cxx: f32,
}

/// Scale and bias that fit some codes, and the cost that is left.
#[derive(Clone, Copy)]
struct Fit {
    scale: f32,
    bias: f32,
    cost: f32,
}

impl<'a> Group<'a> {
    fn new(w: &'a [f32], costs: &'a [f32], n: f32) -> Self {
        let c: f32 = costs.iter().sum();
        let centre = w.iter().zip(costs).map(|(w, c)| w * c).sum::<f32>() / c;
        let (mut cx, mut cxx) = (0.0, 0.0);
        for (&w, &c) in w.iter().zip(costs) {
            let x = w - centre;
            (cx, cxx) = (cx + c * x, cxx + c * x * x);
        }
        Self { w, costs, n, centre, c, cx, cxx }
    }

    /// The best scale and bias for the codes that `scale` and `bias` give.
    fn fit(&self, scale: f32, bias: f32) -> Option<Fit> {
        const LANES: usize = 8;
        let (mut cq, mut cqq, mut cqx) = ([0.0f32; LANES], [0.0f32; LANES], [0.0f32; LANES]);
        let (inverse, n, centre) = (1.0 / scale, self.n, self.centre);
        for (w, c) in self.w.chunks_exact(LANES).zip(self.costs.chunks_exact(LANES)) {
            for lane in 0..LANES {
                let t = (w[lane] - bias) * inverse;
                let t = if t > 0.0 { t } else { 0.0 };
                let q = round(if t < n { t } else { n });
                let weighted = c[lane] * q;
                cq[lane] += weighted;
                cqq[lane] += weighted * q;
                cqx[lane] += weighted * (w[lane] - centre);
            }
        }
        let sum = |lanes: [f32; LANES]| lanes.iter().sum::<f32>();
        let (cq, cqq, cqx) = (sum(cq), sum(cqq), sum(cqx));
        let det = self.c * cqq - cq * cq;
        // All codes are the same.
        if det.is_nan() || det <= 1e-6 * self.c * cqq {
            return None;
        }
        let scale = (self.c * cqx - cq * self.cx) / det;
        let bias = (self.cx - scale * cq) / self.c;
        let cost = self.cxx - scale * cqx - bias * self.cx;
        Some(Fit { scale, bias: bias + self.centre, cost })
    }

    /// The cost of what is stored, as decoding computes it, with the nearest codes.
    fn cost(&self, params: Params) -> f32 {
        const LANES: usize = 8;
        let mut cost = [0.0f32; LANES];
        for (w, c) in self.w.chunks_exact(LANES).zip(self.costs.chunks_exact(LANES)) {
            for lane in 0..LANES {
                let t = (w[lane] - params.bias) / params.scale;
                let t = if t > 0.0 { t } else { 0.0 };
                let q = round(if t < self.n { t } else { self.n });
                let error = w[lane] - (params.scale * q + params.bias);
                cost[lane] += c[lane] * error * error;
            }
        }
        cost.iter().sum()
    }
}

/// Codes, scale and bias of a group with the least `Σ costs · (w - stored)²` that was found; the plain ones if none is
/// better, or if no column costs anything.
fn search(w: &[f32], costs: &[f32], n: f32, codes: &mut [u8]) -> Params {
    let plain = plain(w, n, codes);
    let group = Group::new(w, costs, n);
    let plain_cost: f32 =
        w.iter().zip(costs).zip(&*codes).map(|((w, c), &q)| c * (w - plain.value(q)).powi(2)).sum();
    let mut best = (plain, plain_cost);
    for fit in starts(&group) {
        refine(&group, fit, &mut best);
    }
    if best.1 < plain_cost {
        w.iter().zip(codes).for_each(|(&w, code)| *code = best.0.nearest(w, n));
    }
    best.0
}

/// The best fits of codes that come from cutting off either end of the range.
fn starts(group: &Group<'_>) -> impl Iterator<Item = Fit> {
    let (lo, hi) = range(group.w).expect("the plain encoding has seen finite numbers");
    // With more codes there is less to gain from cutting off.
    let step = (hi - lo) * (0.5 / (group.n + 1.0).sqrt() / (N_STEP - 1) as f32);
    let mut best: [Option<Fit>; N_REFINED] = [None; N_REFINED];
    for low in 0..N_STEP {
        for high in 0..N_STEP {
            let (lo, hi) = (lo + step * low as f32, hi - step * high as f32);
            let scale = (hi - lo) / group.n;
            let Some(fit) = (scale > 0.0).then(|| group.fit(scale, lo)).flatten() else { continue };
            let mut fit = Some(fit);
            for place in &mut best {
                if place.is_none_or(|place| fit.is_some_and(|fit| fit.cost < place.cost)) {
                    std::mem::swap(place, &mut fit);
                }
            }
        }
    }
    best.into_iter().flatten()
}

/// Codes for a scale and a bias, scale and bias for these codes, and so on; `best` takes what is better.
fn refine(group: &Group<'_>, mut fit: Fit, best: &mut (Params, f32)) {
    let mut last = f32::INFINITY;
    for _ in 0..N_FIT {
        let params = Params::stored(fit.scale, fit.bias);
        if !params.is_usable(group.n) {
            return;
        }
        let cost = group.cost(params);
        if cost < best.1 {
            *best = (params, cost);
        }
        if cost >= last {
            return;
        }
        last = cost;
        match group.fit(params.scale, params.bias) {
            Some(next) => fit = next,
            None => return,
        }
    }
}
