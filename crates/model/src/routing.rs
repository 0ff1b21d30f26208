//! Which experts each token uses, and which tokens each expert gets.

use stream::RoutingTrace;

use crate::ModelError;

/// The router's choice for a batch.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// `[n_token · k]`, the best first.
    pub(crate) experts: Vec<u32>,
    /// `[n_token · k]`, weights of the sum.
    pub(crate) weights: Vec<f32>,
}

/// A non-finite router logit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NonFinite;

impl Routes {
    /// The `k` largest of each row of `logits [n_token, n_expert]`, ties to the lowest index; weights are a softmax
    /// over all experts, renormalised over the selected when `renormalise` (spec 2.6 steps 1 and 2).
    /// `forced` are the experts to take instead of the largest, `[n_token · k]` (a replay).
    pub(crate) fn choose(
        &mut self,
        logits: &[f32],
        n_expert: usize,
        k: usize,
        renormalise: bool,
        forced: Option<Forced<'_>>,
    ) -> Result<(), NonFinite> {
        self.experts.clear();
        self.weights.clear();
        for (token, row) in logits.chunks_exact(n_expert).enumerate() {
            if row.iter().any(|l| !l.is_finite()) {
                return Err(NonFinite);
            }
            let start = self.experts.len();
            match forced {
                Some(forced) => self.experts.extend_from_slice(forced.of(token)),
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

/// Tokens by expert.
#[derive(Debug, Default)]
pub(crate) struct Grouped {
    /// Experts that have tokens, ascending: file order.
    pub(crate) experts: Vec<usize>,
    /// `rows[starts[i] .. starts[i + 1]]` belong to `experts[i]`.
    pub(crate) starts: Vec<usize>,
    /// Row of the token, and row of the (token, choice) pair.
    pub(crate) rows: Vec<(u32, u32)>,
    counts: Vec<u32>,
}

impl Grouped {
    /// Sorts the (token, choice) pairs of `[n_token · k]` chosen experts by expert.
    pub(crate) fn group(&mut self, chosen: &[u32], k: usize, n_expert: usize) {
        self.counts.clear();
        self.counts.resize(n_expert, 0);
        for &e in chosen {
            self.counts[e as usize] += 1;
        }
        self.experts.clear();
        self.starts.clear();
        let mut start = 0;
        for e in 0..n_expert {
            let count = self.counts[e] as usize;
            self.counts[e] = start as u32;
            if count > 0 {
                self.experts.push(e);
                self.starts.push(start);
                start += count;
            }
        }
        self.starts.push(start);
        self.rows.clear();
        self.rows.resize(start, (0, 0));
        for (pair, &e) in chosen.iter().enumerate() {
            let at = &mut self.counts[e as usize];
            self.rows[*at as usize] = ((pair / k) as u32, pair as u32);
            *at += 1;
        }
    }

    /// Writes the experts that are chosen at all to `out`, those chosen most often first.
    pub(crate) fn likeliest(&mut self, chosen: &[u32], k: usize, n_expert: usize, out: &mut Vec<usize>) {
        self.group(chosen, k, n_expert);
        out.clear();
        out.extend(0..self.experts.len());
        out.sort_unstable_by_key(|&i| (std::cmp::Reverse(self.rows_of(i).len()), i));
        out.iter_mut().for_each(|i| *i = self.experts[*i]);
    }

    /// Rows of `experts[i]`.
    pub(crate) fn rows_of(&self, i: usize) -> &[(u32, u32)] {
        &self.rows[self.starts[i]..self.starts[i + 1]]
    }
}

/// Where a batch's experts come from, and who is told.
#[derive(Debug, Default)]
pub(crate) enum Routing {
    /// The router.
    #[default]
    Own,
    /// The router, and a trace gets a copy.
    Record(RoutingTrace),
    /// A trace; the batch starts at its token `at`.
    Replay { trace: RoutingTrace, at: usize },
}

/// The experts of a batch in one layer, from a trace.
#[derive(Clone, Copy)]
pub(crate) struct Forced<'a> {
    trace: &'a RoutingTrace,
    first: usize,
    layer: usize,
}

impl Forced<'_> {
    fn of(&self, token: usize) -> &[u32] {
        self.trace.at(self.first + token, self.layer)
    }
}

impl Routing {
    /// A batch of `n_token` is about to run.
    ///
    /// # Errors
    /// The trace has fewer tokens left.
    pub(crate) fn start(&mut self, n_token: usize) -> Result<(), ModelError> {
        match self {
            Self::Own => {}
            Self::Record(trace) => {
                let n = trace.experts.len() + n_token * trace.n_layer * trace.n_expert_used;
                trace.experts.resize(n, 0);
            }
            Self::Replay { trace, at } if trace.n_token() < *at + n_token => {
                return Err(ModelError::TraceEnd { n_token: trace.n_token() });
            }
            Self::Replay { .. } => {}
        }
        Ok(())
    }

    /// It has run.
    pub(crate) fn finish(&mut self, n_token: usize) {
        if let Self::Replay { at, .. } = self {
            *at += n_token;
        }
    }

    /// The experts to take, for the batch's tokens from `first_row` on.
    pub(crate) fn forced(&self, layer: usize, first_row: usize) -> Option<Forced<'_>> {
        match self {
            Self::Replay { trace, at } => Some(Forced { trace, first: at + first_row, layer }),
            _ => None,
        }
    }

    /// Does every token's choice in every layer matter?
    pub(crate) fn wants_all(&self) -> bool {
        matches!(self, Self::Record(_))
    }

    /// Takes note of what the tokens of the batch chose, `[n_token · k]`.
    pub(crate) fn record(&mut self, layer: usize, k: usize, chosen: &[u32]) {
        if let Self::Record(trace) = self {
            let n_batch = chosen.len() / k;
            let first = trace.n_token() - n_batch;
            let n_layer = trace.n_layer;
            for (token, experts) in chosen.chunks_exact(k).enumerate() {
                trace.experts[((first + token) * n_layer + layer) * k..][..k].copy_from_slice(experts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        routes.choose(&logits, 4, 2, true, None).unwrap();
        assert_eq!(routes.experts, [3, 1]);
        assert!((routes.weights[0] - 2.0 / 3.0).abs() < 1e-6 && (routes.weights[1] - 1.0 / 3.0).abs() < 1e-6);
        routes.choose(&logits, 4, 2, false, None).unwrap();
        assert!((routes.weights[0] - 4.0 / 7.0).abs() < 1e-6 && (routes.weights[1] - 2.0 / 7.0).abs() < 1e-6);
    }

    #[test]
    fn a_router_that_overflowed_is_an_error() {
        // Would break: endless token 0 after an overflow instead of a message.
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(Routes::default().choose(&[0.0, bad], 2, 1, true, None), Err(NonFinite));
        }
    }

    #[test]
    fn grouping_keeps_every_pair_once() {
        // Would break: a token's expert computed twice or never in a batch.
        let mut grouped = Grouped::default();
        grouped.group(&[5, 0, 2, 5, 0, 2], 2, 6);
        assert_eq!(grouped.experts, [0, 2, 5]);
        assert_eq!(grouped.rows_of(0), [(0, 1), (2, 4)]);
        assert_eq!(grouped.rows_of(1), [(1, 2), (2, 5)]);
        assert_eq!(grouped.rows_of(2), [(0, 0), (1, 3)]);
    }
}
