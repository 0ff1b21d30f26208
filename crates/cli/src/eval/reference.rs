//! A reference run on disk: what it gave each counted token, and its distribution there.
//!
//! `FMOEREF\n`, the version as u32, the length of the header as u32, the header as JSON, a record for each counted
//! token, and the xxh3-64 of all before it. Numbers are little-endian. A record:
//!
//! | what | type |
//! |---|---|
//! | `-ln p` of the token that follows | f64 |
//! | the likeliest token | u32 |
//! | `ln p` of code 0, and the step from code to code | f32, f32 |
//! | only with `n_top`: probability of all tokens that are not listed | f32 |
//! | only with `n_top`: ids of the listed tokens, rising | u32 × n_top |
//! | `ln p` as a code: of the listed tokens, or of all in order | u16 × n_top or n_vocab |
//!
//! Codes are even steps between the smallest and the largest `ln p`; probabilities below e^-64 count as that. So a
//! step is below 0.001 nats: a run is less than 1e-7 nats from itself, and another divergence is off by a thousandth at
//! most, up or down.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::logprob::{log_sum_exp, top};
use super::windows::WindowRule;
use crate::error::CliError;
use crate::outfile::OutFile;

const MAGIC: &[u8; 8] = b"FMOEREF\n";
const VERSION: u32 = 1;
/// Bytes of the header; real ones have a few hundred.
const HEADER_BYTES_MAX: u32 = 1 << 16;
/// Smaller `ln p` are not told apart.
const LOG_P_MIN: f64 = -64.0;
/// Vocabularies up to this are kept whole.
const N_WHOLE_MAX: usize = 16_384;
/// Likeliest tokens that are kept of larger ones.
const N_TOP_DEFAULT: usize = 512;

/// What the records are of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    /// Where the model was, and the hash that names its weights.
    pub(super) model: String,
    pub(super) fingerprint: String,
    pub(super) n_expert_used: usize,
    pub(super) n_vocab: usize,
    /// Of the tokens.
    pub(super) text_hash: String,
    pub(super) rule: WindowRule,
    /// Records.
    pub(super) n_counted: u64,
    /// Tokens that are listed in each; `None`: all.
    pub(super) n_top: Option<usize>,
}

/// How another distribution lies to that of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distance {
    /// `-ln p` of the token that follows, in the reference.
    pub(super) nll: f64,
    /// `Σ p_ref · ln(p_ref / p)`, in nats, all tokens that are not listed taken as one.
    pub(super) kl: f64,
    pub(super) is_same_top: bool,
    /// Probability of the tokens that are not listed.
    pub(super) rest: f64,
}

/// Tokens to list.
pub(super) fn n_top(asked: Option<usize>, n_vocab: usize) -> Option<usize> {
    match asked {
        Some(n) => (n < n_vocab).then_some(n),
        None => (N_WHOLE_MAX < n_vocab).then_some(N_TOP_DEFAULT),
    }
}

impl Header {
    /// Codes of a record.
    fn n_code(&self) -> usize {
        self.n_top.unwrap_or(self.n_vocab)
    }

    fn record_bytes(&self) -> usize {
        8 + 4 + 4 + 4 + 2 * self.n_code() + self.n_top.map_or(0, |n| 4 + 4 * n)
    }

    /// Whether records of `self` are of the tokens of `run`, in the same windows.
    fn check(&self, run: &Header) -> Result<(), String> {
        if self.n_vocab != run.n_vocab {
            return Err(format!(
                "a reference of another model: {} with {} tokens in its vocabulary, here are {}",
                self.model, self.n_vocab, run.n_vocab
            ));
        }
        if self.text_hash != run.text_hash {
            return Err("a reference of another text, or of another tokenizer".into());
        }
        if self.rule != run.rule {
            let (theirs, ours) = (self.rule.describe(), run.rule.describe());
            return Err(format!("a reference with {theirs}; here are {ours}"));
        }
        if self.n_counted != run.n_counted {
            return Err(format!("{} records, here are {} counted tokens", self.n_counted, run.n_counted));
        }
        if self.n_top.is_some_and(|n| n == 0 || self.n_vocab <= n) {
            return Err("a header that lists no token, or more than all".into());
        }
        Ok(())
    }
}

/// A reference that is being written; it appears when all records are there.
pub(super) struct ReferenceWriter {
    file: OutFile,
    hash: Xxh3,
    header: Header,
    n_left: u64,
    record: Vec<u8>,
    order: Vec<u32>,
}

impl ReferenceWriter {
    pub(super) fn create(path: &Path, header: &Header) -> io::Result<Self> {
        let json = serde_json::to_vec(header)?;
        let n_json = u32::try_from(json.len()).map_err(io::Error::other)?;
        let mut writer = Self {
            file: OutFile::create(path)?,
            hash: Xxh3::new(),
            header: header.clone(),
            n_left: header.n_counted,
            record: Vec::with_capacity(header.record_bytes()),
            order: (0..header.n_vocab as u32).collect(),
        };
        writer.put(&[&MAGIC[..], &VERSION.to_le_bytes(), &n_json.to_le_bytes(), &json].concat())?;
        Ok(writer)
    }

    /// The next record: the logits `[n_vocab]` before the token `next`.
    ///
    /// # Panics
    /// There are more than announced.
    pub(super) fn row(&mut self, logits: &[f32], log_sum: f64, next: u32) -> io::Result<()> {
        assert!(0 < self.n_left, "a record that the header does not announce");
        self.n_left -= 1;
        let log_p = |id: u32| (logits[id as usize] as f64 - log_sum).max(LOG_P_MIN);
        if let Some(n) = self.header.n_top {
            // Any order that is the same each time.
            let likelier =
                |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
            self.order.select_nth_unstable_by(n - 1, likelier);
            self.order[..n].sort_unstable();
        }
        let listed = &self.order[..self.header.n_code()];
        let bounds = |(low, high): (f64, f64), &id: &u32| (low.min(log_p(id)), high.max(log_p(id)));
        let (low, high) = listed.iter().fold((f64::INFINITY, f64::NEG_INFINITY), bounds);
        let (low, step) = (low as f32, ((high - low) / f64::from(u16::MAX)) as f32);
        let code = |id: u32| {
            let code = (log_p(id) - f64::from(low)) / f64::from(step).max(f64::MIN_POSITIVE);
            (code.round().clamp(0.0, f64::from(u16::MAX)) as u16).to_le_bytes()
        };
        let record = &mut self.record;
        record.clear();
        record.extend((log_sum - logits[next as usize] as f64).to_le_bytes());
        record.extend((top(logits) as u32).to_le_bytes());
        record.extend(low.to_le_bytes().into_iter().chain(step.to_le_bytes()));
        if self.header.n_top.is_some() {
            let rest = self.order[listed.len()..].iter().map(|&id| log_p(id).exp()).sum::<f64>() as f32;
            record.extend(rest.to_le_bytes());
            record.extend(listed.iter().flat_map(|id| id.to_le_bytes()));
        }
        record.extend(listed.iter().flat_map(|&id| code(id)));
        let record = std::mem::take(&mut self.record);
        self.put(&record)?;
        self.record = record;
        Ok(())
    }

    /// Puts the finished file into place.
    ///
    /// # Panics
    /// Records are missing.
    pub(super) fn finish(mut self) -> io::Result<()> {
        assert!(self.n_left == 0, "{} records are missing", self.n_left);
        self.file.write_all(&self.hash.digest().to_le_bytes())?;
        self.file.finish()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.file.write_all(bytes)
    }
}

/// A reference that is being read, record by record.
pub(super) struct ReferenceReader {
    file: BufReader<File>,
    hash: Xxh3,
    pub(super) header: Header,
    n_done: u64,
    record: Vec<u8>,
    log_p: Vec<f64>,
    ids: Vec<u32>,
}

impl ReferenceReader {
    /// Opens a reference for a run with the header `run`.
    ///
    /// # Errors
    /// It cannot be read, is none or damaged, or of other tokens, windows or another vocabulary.
    pub(super) fn open(path: &Path, run: &Header) -> Result<Self, CliError> {
        let failed = |source| CliError::Io { path: path.to_owned(), action: "read", source };
        let bad = |why| CliError::Input { path: path.to_owned(), why };
        let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed)?);
        let mut start = [0; 16];
        let n_file = file.get_ref().metadata().map_err(failed)?.len();
        file.read_exact(&mut start).map_err(|_| bad("not a reference made by --save-reference".into()))?;
        let [a, b, c, d, e, f, g, h] = *start.last_chunk().expect("16 bytes have a last 8");
        let (version, n_json) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        if start[..8] != *MAGIC {
            return Err(bad("not a reference made by --save-reference".into()));
        }
        if version != VERSION {
            return Err(bad(format!("a reference of version {version}, this program reads {VERSION}")));
        }
        if HEADER_BYTES_MAX < n_json {
            return Err(bad(format!("a header of {n_json} bytes")));
        }
        let mut json = vec![0; n_json as usize];
        file.read_exact(&mut json).map_err(failed)?;
        let header: Header =
            serde_json::from_slice(&json).map_err(|error| bad(format!("its header is damaged: {error}")))?;
        header.check(run).map_err(bad)?;
        let n_records = header.n_counted.checked_mul(header.record_bytes() as u64);
        if n_records.and_then(|n| n.checked_add(16 + u64::from(n_json) + 8)) != Some(n_file) {
            return Err(bad(format!("{n_file} bytes, which is not what {} records take", header.n_counted)));
        }
        let mut hash = Xxh3::new();
        hash.update(&start);
        hash.update(&json);
        let (record, log_p) = (vec![0; header.record_bytes()], Vec::with_capacity(header.n_code()));
        let ids = (0..header.n_vocab as u32).collect();
        Ok(Self { file, hash, header, n_done: 0, record, log_p, ids })
    }

    /// How these logits `[n_vocab]`, `log_sum` being their `ln Σ eˣ`, lie to the next record.
    ///
    /// # Errors
    /// The file cannot be read, or the record has what no run can have given.
    pub(super) fn distance(&mut self, logits: &[f32], log_sum: f64) -> io::Result<Distance> {
        self.file.read_exact(&mut self.record)?;
        self.hash.update(&self.record);
        let n_done = self.n_done;
        let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("record {n_done}: {why}"));
        self.n_done += 1;
        let mut fields = Fields(&self.record);
        let (nll, top_id) = (f64::from_le_bytes(fields.take()), u32::from_le_bytes(fields.take()));
        let (low, step) = (f32::from_le_bytes(fields.take()), f32::from_le_bytes(fields.take()));
        let (low, step) = (f64::from(low), f64::from(step));
        let is_range = LOG_P_MIN - 1.0 <= low && 0.0 <= step && low + step * f64::from(u16::MAX) <= 1.0;
        if !(is_range && nll.is_finite()) {
            return Err(bad("numbers that are none"));
        }
        let mut rest = 0.0;
        if let Some(n) = self.header.n_top {
            rest = f64::from(f32::from_le_bytes(fields.take()));
            self.ids.clear();
            self.ids.extend((0..n).map(|_| u32::from_le_bytes(fields.take())));
            let is_rising = self.ids.is_sorted_by(|a, b| a < b);
            let is_known = self.ids.last().is_some_and(|&id| (id as usize) < self.header.n_vocab);
            if !(is_rising && is_known && (0.0..=1.0).contains(&rest)) {
                return Err(bad("tokens that no run can have listed"));
            }
        }
        self.log_p.clear();
        let codes = fields.0.as_chunks::<2>().0.iter();
        self.log_p.extend(codes.map(|code| low + step * f64::from(u16::from_le_bytes(*code))));
        let (kl, rest) = self.divergence(rest, logits, log_sum);
        Ok(Distance { nll, kl, is_same_top: top(logits) == top_id as usize, rest })
    }

    /// The divergence, and the probability of tokens that are not listed.
    fn divergence(&self, rest: f64, logits: &[f32], log_sum: f64) -> (f64, f64) {
        // Codes are rounded: their probabilities are made to be one together again.
        let sum = rest + self.log_p.iter().map(|x| x.exp()).sum::<f64>();
        let log_of_sum = sum.ln();
        let (mut kl, mut listed) = (0.0, 0.0);
        for (&id, &log_p) in self.ids.iter().zip(&self.log_p) {
            let (theirs, ours) = (log_p - log_of_sum, logits[id as usize] as f64 - log_sum);
            let p = theirs.exp();
            // What never happens is no surprise, whatever its logarithm.
            kl += if p == 0.0 { 0.0 } else { p * (theirs - ours) };
            listed += if self.header.n_top.is_some() { ours.exp() } else { 0.0 };
        }
        let rest = rest / sum;
        if 0.0 < rest {
            // A difference of sums is no better than this.
            kl += rest * (rest / (1.0 - listed).max(f64::EPSILON)).ln();
        }
        (kl, rest)
    }

    /// After the last record.
    ///
    /// # Errors
    /// The file is not what was written.
    pub(super) fn finish(mut self) -> io::Result<()> {
        assert_eq!(self.n_done, self.header.n_counted, "records of a reference that were not read");
        let mut written = [0; 8];
        self.file.read_exact(&mut written)?;
        if u64::from_le_bytes(written) != self.hash.digest() {
            let why = "its checksum is wrong: the file is damaged";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(())
    }
}

/// What is left of a record.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("the record's length comes from its fields");
        self.0 = rest;
        *field
    }
}

/// `ln Σ eˣ` of logits that are numbers.
///
/// # Errors
/// They are not.
pub(super) fn log_sum_of(logits: &[f32]) -> anyhow::Result<f64> {
    let log_sum = log_sum_exp(logits);
    anyhow::ensure!(log_sum.is_finite(), "logits that are not finite numbers");
    Ok(log_sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const N_VOCAB: usize = 40;

    fn header(n_top: Option<usize>) -> Header {
        Header {
            model: "m".into(),
            fingerprint: "f".into(),
            n_expert_used: 6,
            n_vocab: N_VOCAB,
            text_hash: "t".into(),
            rule: WindowRule { window: 8, stride: 4, second_halves: false },
            n_counted: 3,
            n_top,
        }
    }

    /// Logits of row `i`: some likely, some that never happen.
    fn row(i: usize, sharp: f32) -> Vec<f32> {
        (0..N_VOCAB).map(|j| sharp * (((j * 37 + i * 11) % 97) as f32 / 10.0 - 5.0)).collect()
    }

    fn write(path: &Path, n_top: Option<usize>) {
        let mut writer = ReferenceWriter::create(path, &header(n_top)).unwrap();
        for i in 0..3 {
            let logits = row(i, 1.0);
            writer.row(&logits, log_sum_exp(&logits), i as u32).unwrap();
        }
        assert!(!path.exists());
        writer.finish().unwrap();
    }

    /// `Σ p ln(p/q)` over groups of tokens, from the definition.
    fn divergence(p: &[f32], q: &[f32], groups: &[Vec<usize>]) -> f64 {
        let (p_sum, q_sum) = (log_sum_exp(p), log_sum_exp(q));
        let sum = |x: &[f32], x_sum: f64, group: &[usize]| {
            group.iter().map(|&j| (f64::from(x[j]) - x_sum).exp()).sum::<f64>()
        };
        let term = |group: &Vec<usize>| {
            let (p, q) = (sum(p, p_sum, group), sum(q, q_sum, group));
            p * (p / q).ln()
        };
        groups.iter().map(term).sum()
    }

    /// The distance would not be the one between the two runs, with all tokens kept or with some.
    #[test]
    fn distances_are_those_of_the_definition() {
        let folder = tempfile::tempdir().unwrap();
        for n_top in [None, Some(1), Some(7), Some(N_VOCAB - 1)] {
            let path = folder.path().join(format!("{n_top:?}"));
            write(&path, n_top);
            let mut reader = ReferenceReader::open(&path, &header(None)).unwrap();
            for i in 0..3 {
                let (theirs, ours) = (row(i, 1.0), row(i, 0.8));
                let mut order: Vec<usize> = (0..N_VOCAB).collect();
                order.sort_by(|&a, &b| theirs[b].total_cmp(&theirs[a]).then(a.cmp(&b)));
                let listed = order[..n_top.unwrap_or(N_VOCAB)].iter().map(|&j| vec![j]);
                let rest = n_top.map(|n| order[n..].to_vec());
                let groups: Vec<Vec<usize>> = listed.chain(rest).collect();
                let expected = divergence(&theirs, &ours, &groups);
                let got = reader.distance(&ours, log_sum_exp(&ours)).unwrap();
                let error = (got.kl - expected).abs();
                assert!(error < 1e-3 * expected + 1e-7, "{n_top:?}, {i}: {} {expected}", got.kl);
                let nll = log_sum_exp(&theirs) - f64::from(theirs[i]);
                assert!(got.nll == nll && got.is_same_top, "{got:?}");
                assert_eq!(0.0 < got.rest, n_top.is_some());
            }
            reader.finish().unwrap();
            // A run lies nowhere but at itself.
            let mut reader = ReferenceReader::open(&path, &header(None)).unwrap();
            let same = row(0, 1.0);
            assert!(reader.distance(&same, log_sum_exp(&same)).unwrap().kl.abs() < 1e-7);
            let other: Vec<f32> = row(1, -1.0);
            assert!(!reader.distance(&other, log_sum_exp(&other)).unwrap().is_same_top);
        }
    }

    /// A reference of other tokens, or a damaged one, would be compared with.
    #[test]
    fn what_is_not_the_reference_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ref");
        write(&path, Some(7));
        let good = std::fs::read(&path).unwrap();
        let read = |bytes: &[u8], run: &Header| -> Result<(), String> {
            std::fs::write(&path, bytes).unwrap();
            let mut reader = ReferenceReader::open(&path, run).map_err(|error| error.to_string())?;
            let logits = row(0, 1.0);
            for _ in 0..3 {
                reader.distance(&logits, log_sum_exp(&logits)).map_err(|error| error.to_string())?;
            }
            reader.finish().map_err(|error| error.to_string())
        };
        read(&good, &header(None)).unwrap();
        let run = header(None);
        let rule = WindowRule { stride: 8, ..run.rule.clone() };
        for (run, error) in [
            (Header { n_vocab: 41, ..run.clone() }, "a reference of another model: m with 40 tokens"),
            (Header { text_hash: "u".into(), ..run.clone() }, "another text"),
            (
                Header { rule, ..run.clone() },
                "windows of 8 tokens every 4; here are windows of 8 tokens every 8",
            ),
            (Header { n_counted: 4, ..run }, "3 records, here are 4"),
        ] {
            let got = read(&good, &run).unwrap_err();
            assert!(got.contains(error), "{got}");
        }
        let replaced = |from: &str, to: &str| {
            let at = good.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            [&good[..at], to.as_bytes(), &good[at + from.len()..]].concat()
        };
        let changed = |at: usize, to: &[u8]| [&good[..at], to, &good[at + to.len()..]].concat();
        let first = good.len() - 8 - 3 * header(Some(7)).record_bytes();
        for (bytes, error) in [
            (vec![], "not a reference"),
            (vec![b'x'; 100], "not a reference"),
            (changed(8, &[2]), "version 2"),
            (changed(12, &[0xff; 4]), "a header of"),
            (replaced("\"n_vocab\":40", "\"n_vocab\":-4"), "damaged"),
            (replaced("\"n_top\":7", "\"n_top\":0"), "lists no token"),
            (replaced("\"n_top\":7", "\"n_top\":8"), "is not what"),
            (good[..good.len() - 1].to_vec(), "is not what"),
            (changed(first, &[0xff; 8]), "numbers that are none"),
            (changed(first + 16, &[0, 0, 0x80, 0x3f]), "numbers that are none"),
            (changed(first + 24, &[0xff; 4]), "listed"),
            (changed(good.len() - 9, &[!good[good.len() - 9]]), "checksum"),
            (changed(good.len() - 1, &[!good[good.len() - 1]]), "checksum"),
        ] {
            let got = read(&bytes, &header(None)).unwrap_err();
            assert!(got.contains(error), "{error}: {got}");
        }
    }

    /// A large vocabulary would fill the disk, or a small one lose its rare tokens.
    #[test]
    fn large_vocabularies_are_cut() {
        assert_eq!((n_top(None, 8256), n_top(None, 248_320)), (None, Some(512)));
        assert_eq!((n_top(Some(100), 8256), n_top(Some(9000), 8256)), (Some(100), None));
    }
}
