//! Which experts each token uses, and how much each counts.

/// How experts are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteShape {
    /// Experts there are.
    pub n_expert: usize,
    /// Experts that a token uses.
    pub k: usize,
    /// Is the softmax over the chosen experts, rather than over all?
    pub renormalise: bool,
}

/// The router's choice for a batch.
#[derive(Debug, Default)]
pub struct Routes {
    /// `[n_token · k]`, the best first.
    pub experts: Vec<u32>,
    /// `[n_token · k]`, weights of the sum.
    pub weights: Vec<f32>,
    /// `[n_token, n_expert]`, on their way to a choice on the host.
    pub(crate) logits: Vec<f32>,
}

/// A router logit that is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonFinite {
    /// The first token that has one.
    pub row: usize,
}

impl Routes {
    /// The `k` largest of each row of `logits [n_token, n_expert]`, ties to the lowest index; weights are a softmax
    /// over all experts, renormalised over the selected when `renormalise` (spec 2.6 steps 1 and 2).
    /// `forced` are the experts to take instead of the largest, `[n_token · k]` (a replay).
    ///
    /// # Errors
    /// A logit is not finite.
    pub fn choose(
        &mut self,
        logits: &[f32],
        shape: RouteShape,
        forced: Option<&[u32]>,
    ) -> Result<(), NonFinite> {
        let RouteShape { n_expert, k, renormalise } = shape;
        self.experts.clear();
        self.weights.clear();
        for (token, row) in logits.chunks_exact(n_expert).enumerate() {
            if row.iter().any(|l| !l.is_finite()) {
                return Err(NonFinite { row: token });
            }
            let start = self.experts.len();
            match forced {
                Some(forced) => self.experts.extend_from_slice(&forced[token * k..][..k]),
                None => top_k(row, k, &mut self.experts),
            }
            let chosen = &self.experts[start..];
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exp = |l: f32| (l - max).exp();
            let sum: f32 = if renormalise {
                chosen.iter().map(|&e| exp(row[e as usize])).sum()
            } else {
                row.iter().map(|&l| exp(l)).sum()
            };
            self.weights.extend(chosen.iter().map(|&e| exp(row[e as usize]) / sum));
        }
        Ok(())
    }
}

/// Appends the indices of the `k` largest, best first, ties to the lowest index.
fn top_k(row: &[f32], k: usize, out: &mut Vec<u32>) {
    let start = out.len();
    for (i, &value) in row.iter().enumerate() {
        let full = out.len() - start == k;
        if full && value <= row[out[out.len() - 1] as usize] {
            continue;
        }
        if full {
            out.pop();
        }
        let place = start + out[start..].partition_point(|&j| row[j as usize] >= value);
        out.insert(place, i as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(n_expert: usize, k: usize, renormalise: bool) -> RouteShape {
        RouteShape { n_expert, k, renormalise }
    }

    fn check(row: &[f32], k: usize, expected: &[u32]) {
        let mut got = Vec::new();
        top_k(row, k, &mut got);
        assert_eq!(got, expected, "{row:?}");
    }

    #[test]
    fn ties_go_to_the_lowest_index() {
        // Would break: the choice of experts when two logits are equal.
        check(&[1.0, 3.0, 3.0, 2.0], 2, &[1, 2]);
        check(&[3.0, 1.0, 3.0, 3.0], 2, &[0, 2]);
        check(&[0.0; 5], 3, &[0, 1, 2]);
        check(&[-5.0, -1.0, -3.0], 3, &[1, 2, 0]);
        check(&[1.0, 2.0, 3.0, 4.0], 1, &[3]);
    }

    #[test]
    fn weights_sum_to_one_only_when_renormalised() {
        // Would break: the scale of the experts' sum (spec 2.6 step 2).
        let logits = [0.0, (2.0f32).ln(), f32::MIN, (4.0f32).ln()];
        let mut routes = Routes::default();
        routes.choose(&logits, shape(4, 2, true), None).unwrap();
        assert_eq!(routes.experts, [3, 1]);
        assert!((routes.weights[0] - 2.0 / 3.0).abs() < 1e-6 && (routes.weights[1] - 1.0 / 3.0).abs() < 1e-6);
        routes.choose(&logits, shape(4, 2, false), None).unwrap();
        assert!((routes.weights[0] - 4.0 / 7.0).abs() < 1e-6 && (routes.weights[1] - 2.0 / 7.0).abs() < 1e-6);
    }

    #[test]
    fn a_router_that_overflowed_is_an_error() {
        // Would break: endless token 0 after an overflow instead of a message.
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let logits = [0.0, 1.0, 0.0, bad];
            let chosen = Routes::default().choose(&logits, shape(2, 1, true), None);
            assert_eq!(chosen, Err(NonFinite { row: 1 }));
        }
    }
}
