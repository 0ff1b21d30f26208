//! How far the logits of two runs lie apart.

use std::path::Path;

use serde::Serialize;

use super::logprob::{log_sum_exp, top};
use crate::error::CliError;
use crate::npy::NpyReader;

/// The reference's rows, and what was seen of their differences.
pub(super) struct Comparison {
    reference: NpyReader,
    row: Vec<f32>,
    kl: Vec<f64>,
    n_same_top: usize,
    /// `Σ -ln p(next token)` of this run and of the reference, over the tokens that have a next one.
    nll: [f64; 2],
}

/// What it comes to.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    n_token: usize,
    /// `Σ p_ref · ln(p_ref / p)`, in nats: mean, 99th percentile and largest of all tokens.
    kl_mean: f64,
    kl_p99: f64,
    kl_max: f64,
    /// Share of the tokens whose likeliest successor is the reference's.
    same_top: f64,
    perplexity: Option<f64>,
    reference_perplexity: Option<f64>,
}

impl Comparison {
    /// With `n_row` rows of `n_vocab` logits.
    ///
    /// # Errors
    /// The file has others.
    pub(super) fn open(path: &Path, n_row: usize, n_vocab: usize) -> Result<Self, CliError> {
        let reference = NpyReader::open(path, n_vocab).map_err(|source| failed(path, source))?;
        if reference.n_row != n_row {
            let why = format!("logits of {} tokens, but {n_row} token ids are given", reference.n_row);
            return Err(CliError::Input { path: path.to_owned(), why });
        }
        let row = vec![0.0; n_vocab];
        Ok(Self { reference, row, kl: Vec::with_capacity(n_row), n_same_top: 0, nll: [0.0; 2] })
    }

    /// The logits after the next token, and the token that really follows.
    pub(super) fn row(&mut self, path: &Path, logits: &[f32], next: Option<u32>) -> Result<(), CliError> {
        self.reference.row(&mut self.row).map_err(|source| failed(path, source))?;
        let (ours, theirs) = (log_sum_exp(logits), log_sum_exp(&self.row));
        let kl = self.row.iter().zip(logits).map(|(&theirs_i, &ours_i)| {
            let log_p = theirs_i as f64 - theirs;
            // What never happens is no surprise, whatever its logarithm.
            if log_p.exp() == 0.0 { 0.0 } else { log_p.exp() * (log_p - (ours_i as f64 - ours)) }
        });
        self.kl.push(kl.sum());
        self.n_same_top += usize::from(top(logits) == top(&self.row));
        if let Some(next) = next {
            self.nll[0] += ours - logits[next as usize] as f64;
            self.nll[1] += theirs - self.row[next as usize] as f64;
        }
        Ok(())
    }

    /// After all rows.
    pub(super) fn report(mut self) -> Report {
        let n = self.kl.len();
        let kl_mean = self.kl.iter().sum::<f64>() / n as f64;
        self.kl.sort_by(f64::total_cmp);
        let perplexity = |nll: f64| (1 < n).then(|| (nll / (n - 1) as f64).exp());
        Report {
            n_token: n,
            kl_mean,
            kl_p99: self.kl[(n - 1) * 99 / 100],
            kl_max: self.kl[n - 1],
            same_top: self.n_same_top as f64 / n as f64,
            perplexity: perplexity(self.nll[0]),
            reference_perplexity: perplexity(self.nll[1]),
        }
    }
}

impl Report {
    /// For people.
    pub(super) fn describe(&self) -> String {
        let Self { n_token, kl_mean, kl_p99, kl_max, same_top, .. } = self;
        let mut text = format!(
            "{n_token} tokens: KL from the reference {kl_mean:.3e} nats (99 % below {kl_p99:.3e}, largest {kl_max:.3e}), \
             same likeliest token {:.2} %",
            100.0 * same_top
        );
        if let (Some(ours), Some(theirs)) = (self.perplexity, self.reference_perplexity) {
            text += &format!(", perplexity {ours:.4} (reference {theirs:.4})");
        }
        text
    }
}

fn failed(path: &Path, source: std::io::Error) -> CliError {
    CliError::Io { path: path.to_owned(), action: "read", source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::npy::NpyWriter;

    /// A distance would be reported that is not the one between the distributions.
    #[test]
    fn two_known_distributions_have_their_known_distance() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ref.npy");
        let mut writer = NpyWriter::create(&path, 2, 2).unwrap();
        // Probabilities 1/4 and 3/4, and any shift.
        writer.row(&[7.0, 7.0 + 3f32.ln()]).unwrap();
        writer.row(&[7.0, 7.0 + 3f32.ln()]).unwrap();
        writer.finish().unwrap();
        let mut comparison = Comparison::open(&path, 2, 2).unwrap();
        comparison.row(&path, &[1.0, 1.0], Some(1)).unwrap();
        comparison.row(&path, &[0.0, 3f32.ln()], None).unwrap();
        let report = comparison.report();
        let far = 0.25 * (0.25f64 / 0.5).ln() + 0.75 * (0.75f64 / 0.5).ln();
        assert!(
            (report.kl_max - far).abs() < 1e-7 && (report.kl_mean - far / 2.0).abs() < 1e-7,
            "{report:?}"
        );
        assert_eq!(report.same_top, 0.5);
        assert!((report.perplexity.unwrap() - 2.0).abs() < 1e-6, "{report:?}");
        assert!((report.reference_perplexity.unwrap() - 4.0 / 3.0).abs() < 1e-6, "{report:?}");
        assert!(Comparison::open(&path, 3, 2).is_err() && Comparison::open(&path, 2, 3).is_err());
    }
}
