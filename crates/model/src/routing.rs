//! Which experts each token uses, and which tokens each expert gets.

use stream::RoutingTrace;

use crate::ModelError;

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

/// Tokens of an expert.
type TokensOf<'a> = std::iter::Map<std::slice::Iter<'a, (u32, u32)>, fn(&(u32, u32)) -> usize>;

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

    /// The tokens of `experts[i]`.
    pub(crate) fn tokens_of<'a>(&'a self) -> impl Fn(usize) -> TokensOf<'a> {
        |i| self.rows_of(i).iter().map(token_of as fn(&(u32, u32)) -> usize)
    }

    /// Rows of `experts[i]`.
    pub(crate) fn rows_of(&self, i: usize) -> &[(u32, u32)] {
        &self.rows[self.starts[i]..self.starts[i + 1]]
    }
}

fn token_of(&(token, _): &(u32, u32)) -> usize {
    token as usize
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

    /// Writes the experts to take for `n_token` of the batch's tokens from `first_row` on to `forced`, `[n_token · k]`,
    /// if the router has no say.
    pub(crate) fn forced(
        &self,
        layer: usize,
        (first_row, n_token): (usize, usize),
        forced: &mut Vec<u32>,
    ) -> bool {
        forced.clear();
        let Self::Replay { trace, at } = self else { return false };
        (0..n_token).for_each(|token| forced.extend_from_slice(trace.at(at + first_row + token, layer)));
        true
    }

    /// Is it the router's choice alone, and nobody else's business?
    pub(crate) fn is_own(&self) -> bool {
        matches!(self, Self::Own)
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
