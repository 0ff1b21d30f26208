//! How likely a model finds text: perplexity, bits per byte, and how far it is from a reference run.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kernels::DELTA_CHUNK;
use model::Logits;
use serde::{Deserialize, Serialize};
use store::Store;

use super::corpus::Corpus;
use super::estimate::{Blocks, Estimate};
use super::reference::{Distance, Header, ReferenceReader, ReferenceWriter, log_sum_of, n_top};
use super::windows::{Window, WindowRule};
use crate::error::CliError;
use crate::flags::{EngineFlags, TextFlags};
use crate::load::{Loaded, load};
use crate::output::note;
use crate::plan::Work;

/// Between two notes about progress.
const NOTE_INTERVAL: Duration = Duration::from_secs(10);

/// Files that a run writes and reads.
#[derive(Clone, Debug, Default)]
pub(super) struct References {
    pub(super) save: Option<PathBuf>,
    pub(super) compare: Option<PathBuf>,
}

/// What comes out.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TextReport {
    /// Names the tokens.
    pub(super) text_hash: String,
    n_document: usize,
    /// Tokens of all documents.
    n_token: usize,
    /// Of these: what the figures are of, and their bytes as text.
    pub(super) n_counted: usize,
    pub(super) counted_bytes: u64,
    pub(super) rule: WindowRule,
    pub(super) perplexity: Estimate,
    /// `-log2 p` of the counted tokens over their bytes.
    pub(super) bits_per_byte: Estimate,
    /// Tokens that were fed: more than there are, where windows overlap.
    n_fed: usize,
    seconds: f64,
    tok_s: f64,
    pub(super) reference: Option<ReferenceReport>,
}

/// Differences to another run. Intervals are of the differences, token by token: narrower than those of both runs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReferenceReport {
    model: String,
    fingerprint: String,
    n_expert_used: usize,
    perplexity: f64,
    bits_per_byte: f64,
    /// This run's minus the reference's.
    perplexity_change: Estimate,
    pub(super) bits_per_byte_change: Estimate,
    /// `Σ p_ref · ln(p_ref / p)`, in nats.
    pub(super) kl_mean: Estimate,
    kl_median: f64,
    pub(super) kl_p99: f64,
    kl_max: f64,
    /// Share of the tokens whose likeliest successor is the reference's.
    pub(super) same_top: Estimate,
    /// Tokens that the reference lists at each position; `null`: all.
    n_top: Option<usize>,
    /// Mean probability of all others, which count as one: the divergence is at least `kl_mean`.
    rest_mean: f64,
}

/// A model, a text and how the text is cut.
pub(super) struct Task<'a> {
    pub(super) store: &'a Store,
    pub(super) corpus: &'a Corpus,
    pub(super) rule: &'a WindowRule,
    pub(super) n_top: Option<usize>,
}

/// What each counted token gave.
#[derive(Default)]
struct Measured {
    /// `-ln p`
    nll: Vec<f64>,
    bytes: Vec<f64>,
    distances: Vec<Distance>,
    /// Counted tokens of each document.
    n_counted: Vec<usize>,
    n_fed: usize,
    seconds: f64,
}

/// Where rows of logits go besides.
struct Sinks {
    save: Option<(PathBuf, ReferenceWriter)>,
    compare: Option<(PathBuf, ReferenceReader)>,
}

/// `eval --text`
pub(super) fn eval(store: &Store, flags: &TextFlags, engine: &EngineFlags) -> anyhow::Result<TextReport> {
    let (corpus, rule) = prepare(store, flags, engine)?;
    let n_top = n_top(flags.reference_top, store.config().n_vocab);
    let references = References { save: flags.save_reference.clone(), compare: flags.reference.clone() };
    let report = Task { store, corpus: &corpus, rule: &rule, n_top }.run(engine, &references)?;
    note(report.describe());
    if let Some(path) = &references.save {
        let kept = n_top.map_or("all".to_owned(), |n| format!("the {n} likeliest"));
        note(format_args!("{}: {} records of {kept} tokens", path.display(), report.n_counted));
    }
    Ok(report)
}

/// Text and windows for a model.
pub(super) fn prepare(
    store: &Store,
    flags: &TextFlags,
    engine: &EngineFlags,
) -> anyhow::Result<(Corpus, WindowRule)> {
    let config = store.config();
    let rule = WindowRule::new(flags, engine.ctx.unwrap_or(config.n_ctx_train))?;
    let text = crate::text::load(store)?;
    let corpus = Corpus::read(&flags.text, flags.text_bytes, text.tokenizer(), config.n_vocab)?;
    if 0 < corpus.n_skipped {
        note(format_args!("note: {} documents of less than two tokens are left out", corpus.n_skipped));
    }
    if rule.windows_of(&corpus).all(|(_, windows)| windows.is_empty()) {
        let why =
            format!("no document fills a window of {} tokens, as --counting llama.cpp wants", rule.window);
        return Err(CliError::Usage(why).into());
    }
    Ok((corpus, rule))
}

impl WindowRule {
    /// The windows of each document.
    fn windows_of<'a>(&self, corpus: &'a Corpus) -> impl Iterator<Item = (&'a [u32], Vec<Window>)> {
        corpus.documents.iter().map(|document| (document.as_slice(), self.windows(document.len())))
    }
}

impl Task<'_> {
    /// Loads the model and feeds all windows.
    pub(super) fn run(&self, engine: &EngineFlags, references: &References) -> anyhow::Result<TextReport> {
        let config = self.store.config();
        let longest = self.corpus.documents.iter().map(Vec::len).max().unwrap_or(0).min(self.rule.window);
        let header = self.header(engine.experts.first().copied().unwrap_or(config.n_expert_used));
        // Files of the user are looked at before the work, not after it.
        let mut sinks = Sinks::open(references, &header)?;
        let work = Work { n_ctx: Some(longest), n_feed: Some(longest), keeps_prefixes: false, n_session: 1 };
        let mut loaded = load(self.store, engine, work)?;
        let mut measured = Measured::default();
        let start = Instant::now();
        let mut pace = Pace::new(self.rule.windows_of(self.corpus).flat_map(|(_, w)| w));
        for (document, windows) in self.rule.windows_of(self.corpus) {
            measured.n_counted.push(windows.iter().map(Window::n_counted).sum());
            for window in windows {
                measured.window(&mut loaded, document, &window, self.corpus, &mut sinks)?;
                pace.at(&window, &measured);
            }
        }
        measured.seconds = start.elapsed().as_secs_f64();
        let reference = sinks.finish()?;
        Ok(measured.report(self, reference.as_ref()))
    }

    fn header(&self, n_expert_used: usize) -> Header {
        let windows = self.rule.windows_of(self.corpus).flat_map(|(_, windows)| windows);
        Header {
            model: self.store.location(),
            fingerprint: format!("{:016x}", self.store.fingerprint()),
            n_expert_used,
            n_vocab: self.store.config().n_vocab,
            text_hash: self.corpus.hash(),
            rule: self.rule.clone(),
            n_counted: windows.map(|window| window.n_counted() as u64).sum(),
            n_top: self.n_top,
        }
    }
}

impl Sinks {
    fn open(references: &References, header: &Header) -> Result<Self, CliError> {
        let compare = match &references.compare {
            Some(path) => Some((path.clone(), ReferenceReader::open(path, header)?)),
            None => None,
        };
        let save = match &references.save {
            Some(path) => {
                let writer = ReferenceWriter::create(path, header);
                Some((path.clone(), writer.map_err(|source| failed(path, "write", source))?))
            }
            None => None,
        };
        Ok(Self { save, compare })
    }

    fn row(&mut self, logits: &[f32], log_sum: f64, next: u32) -> Result<Option<Distance>, CliError> {
        if let Some((path, writer)) = &mut self.save {
            writer.row(logits, log_sum, next).map_err(|source| failed(path, "write", source))?;
        }
        let Some((path, reader)) = &mut self.compare else { return Ok(None) };
        reader.distance(logits, log_sum).map(Some).map_err(|source| failed(path, "read", source))
    }

    /// What the run was compared with.
    fn finish(self) -> Result<Option<Header>, CliError> {
        if let Some((path, writer)) = self.save {
            writer.finish().map_err(|source| failed(&path, "write", source))?;
        }
        let Some((path, reader)) = self.compare else { return Ok(None) };
        let header = reader.header.clone();
        reader.finish().map_err(|source| failed(&path, "read", source))?;
        Ok(Some(header))
    }
}

fn failed(path: &Path, action: &'static str, source: std::io::Error) -> CliError {
    CliError::Io { path: path.to_owned(), action, source }
}

impl Measured {
    /// Feeds one window of a document.
    fn window(
        &mut self,
        loaded: &mut Loaded,
        document: &[u32],
        window: &Window,
        corpus: &Corpus,
        sinks: &mut Sinks,
    ) -> anyhow::Result<()> {
        let ids = &document[window.start..window.end];
        let first_row = window.first_counted - window.start - 1;
        let mut session = loaded.engine.session(loaded.plan.n_ctx);
        let go_on = &mut |_| ControlFlow::Continue(());
        // What only gives context needs no logits. Fed in whole chunks it changes no bit of what follows.
        let n_context = first_row / DELTA_CHUNK * DELTA_CHUNK;
        if 0 < n_context {
            loaded.engine.forward(&mut session, &ids[..n_context], Logits::Last, go_on)?;
        }
        let mut result = Ok(());
        let mut use_row = |pos: usize, logits: &[f32]| {
            if let (true, true, Some(&next)) = (result.is_ok(), first_row <= pos, ids.get(pos + 1)) {
                result = self.row(logits, next, sinks).map_err(|error| {
                    error.context(format!("after token {} of a document", window.start + pos))
                });
                self.bytes.push(f64::from(corpus.bytes_of(next)));
            }
        };
        loaded.engine.forward(&mut session, &ids[n_context..], Logits::All(&mut use_row), go_on)?;
        self.n_fed += ids.len();
        result
    }

    /// The logits before the counted token `next`.
    fn row(&mut self, logits: &[f32], next: u32, sinks: &mut Sinks) -> anyhow::Result<()> {
        let log_sum = log_sum_of(logits)?;
        self.nll.push(log_sum - logits[next as usize] as f64);
        self.distances.extend(sinks.row(logits, log_sum, next)?);
        Ok(())
    }

    fn report(&self, task: &Task<'_>, reference: Option<&Header>) -> TextReport {
        let blocks = Blocks::of(&self.n_counted);
        TextReport {
            text_hash: task.corpus.hash(),
            n_document: task.corpus.documents.len(),
            n_token: task.corpus.documents.iter().map(Vec::len).sum(),
            n_counted: self.nll.len(),
            counted_bytes: self.bytes.iter().sum::<f64>() as u64,
            rule: task.rule.clone(),
            perplexity: blocks.mean(&self.nll).map(f64::exp),
            bits_per_byte: blocks.ratio(&bits(&self.nll), &self.bytes),
            n_fed: self.n_fed,
            seconds: self.seconds,
            tok_s: self.n_fed as f64 / self.seconds.max(1e-9),
            reference: reference.map(|header| self.compared(header, &blocks)),
        }
    }

    fn compared(&self, header: &Header, blocks: &Blocks) -> ReferenceReport {
        let column = |f: &dyn Fn(&Distance) -> f64| self.distances.iter().map(f).collect::<Vec<f64>>();
        let theirs = column(&|d| d.nll);
        let ppl = |nll: &[f64]| blocks.mean(nll).value.exp();
        let (our_ppl, their_ppl) = (ppl(&self.nll), ppl(&theirs));
        let pairs = || self.nll.iter().zip(&theirs);
        // To first order a perplexity moves with the mean of `-ln p` by itself times that.
        let ppl_moves: Vec<f64> = pairs().map(|(ours, theirs)| our_ppl * ours - their_ppl * theirs).collect();
        let error = blocks.mean(&ppl_moves);
        let shift = our_ppl - their_ppl - error.value;
        let changes: Vec<f64> = pairs().map(|(ours, theirs)| ours - theirs).collect();
        let kl = column(&|d| d.kl);
        let mut sorted = kl.clone();
        sorted.sort_by(f64::total_cmp);
        let quantile = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
        ReferenceReport {
            model: header.model.clone(),
            fingerprint: header.fingerprint.clone(),
            n_expert_used: header.n_expert_used,
            perplexity: their_ppl,
            bits_per_byte: blocks.ratio(&bits(&theirs), &self.bytes).value,
            perplexity_change: error.map(|value| value + shift),
            bits_per_byte_change: blocks.ratio(&bits(&changes), &self.bytes),
            kl_mean: blocks.mean(&kl),
            kl_median: quantile(0.5),
            kl_p99: quantile(0.99),
            kl_max: quantile(1.0),
            same_top: blocks.mean(&column(&|d| f64::from(u8::from(d.is_same_top)))),
            n_top: header.n_top,
            rest_mean: blocks.mean(&column(&|d| d.rest)).value,
        }
    }
}

/// Nats to bits.
fn bits(nats: &[f64]) -> Vec<f64> {
    nats.iter().map(|x| x / std::f64::consts::LN_2).collect()
}

impl TextReport {
    /// For people.
    fn describe(&self) -> String {
        let mut text = format!(
            "{} tokens in {} documents, {} counted ({} bytes) in {}\nperplexity {}, bits per byte {}; {:.0} tok/s",
            self.n_token,
            self.n_document,
            self.n_counted,
            self.counted_bytes,
            self.rule.describe(),
            self.perplexity.show_ends(4),
            self.bits_per_byte.show(4),
            self.tok_s,
        );
        if let Some(reference) = &self.reference {
            text += &reference.describe();
        }
        text
    }
}

impl ReferenceReport {
    fn describe(&self) -> String {
        let percent = self.same_top.map(|share| 100.0 * share).show(2);
        let Self { model, n_expert_used, perplexity, bits_per_byte, .. } = self;
        let mut text = format!(
            "\nreference: {model}, {n_expert_used} experts: perplexity {perplexity:.4}, bits per byte {bits_per_byte:.4}\n\
             change: perplexity {}, bits per byte {}\n\
             KL from the reference {:.3e} ±{:.1e} nats (median {:.3e}, 99 % below {:.3e}, largest {:.3e}), same likeliest \
             token {percent} %",
            self.perplexity_change.show(4),
            self.bits_per_byte_change.show(4),
            self.kl_mean.value,
            self.kl_mean.half_width().unwrap_or(0.0),
            self.kl_median,
            self.kl_p99,
            self.kl_max,
        );
        if let Some(n) = self.n_top {
            let percent = 100.0 * self.rest_mean;
            text += &format!(
                "\nthe reference lists the {n} likeliest tokens; the others ({percent:.2} %) count as one, so KL is at least this"
            );
        }
        text
    }
}

/// How far the work is.
struct Pace {
    total: usize,
    done: usize,
    start: Instant,
    last: Instant,
}

impl Pace {
    fn new(windows: impl Iterator<Item = Window>) -> Self {
        let now = Instant::now();
        let total = windows.map(|window| window.end - window.start).sum();
        Self { total, done: 0, start: now, last: now }
    }

    fn at(&mut self, window: &Window, measured: &Measured) {
        self.done += window.end - window.start;
        if self.last.elapsed() < NOTE_INTERVAL || self.done == self.total {
            return;
        }
        self.last = Instant::now();
        let tok_s = self.done as f64 / self.start.elapsed().as_secs_f64().max(1e-9);
        let left_s = (self.total - self.done) as f64 / tok_s;
        let mean = measured.nll.iter().sum::<f64>() / measured.nll.len() as f64;
        note(format_args!(
            "{} of {} tokens, {tok_s:.0} tok/s, {left_s:.0} s left; perplexity {:.3} so far",
            self.done,
            self.total,
            mean.exp()
        ));
    }
}
