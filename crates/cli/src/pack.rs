//! `pack` and `synth`: the two ways to make a store.

use std::path::Path;
use std::sync::Arc;

use convert::{Bits, Checkpoint, ConvertError, Imatrix, PackOptions, Quantiser, SynthOptions, WeightSource};

use crate::error::CliError;
use crate::flags::{ChoiceFlags, FormatFlags, PackFlags, SynthFlags};
use crate::output::note;
use crate::progress::Progress;
use crate::size::Size;
use crate::target;

/// Roles whose error the summary names.
const N_ERROR_SHOWN: usize = 3;

pub(crate) fn pack(flags: &PackFlags) -> anyhow::Result<()> {
    let checkpoint = Checkpoint::open(&target::find(&flags.source)?)?;
    pack_checkpoint(&checkpoint, None, &flags.store, &flags.choice)
}

/// Packs what was opened; `source` brings the weights of a checkpoint that has only headers yet.
pub(crate) fn pack_checkpoint(
    checkpoint: &Checkpoint,
    source: Option<&dyn WeightSource>,
    store: &Path,
    choice: &ChoiceFlags,
) -> anyhow::Result<()> {
    let options = chosen_options(checkpoint, choice)?;
    let config = checkpoint.config();
    note(format_args!(
        "{}: {}, {} layers, {} experts, {} of weights",
        checkpoint.name(),
        config.architecture.name(),
        config.n_layer(),
        config.n_expert,
        Size(checkpoint.weight_bytes()),
    ));
    let predicted = convert::predict_bytes(checkpoint, &options).map_err(usage)?;
    note(format_args!("{}: will have {}", store.display(), Size(predicted)));
    let mut shown = Shown::new("pack");
    let report = convert::pack_arriving(checkpoint, source, store, &options, &mut |at| shown.at(&at));
    let report = report.map_err(usage)?;
    shown.finish();
    for text in &report.notes {
        note(format_args!("note: {text}"));
    }
    for error in report.errors.iter().take(N_ERROR_SHOWN) {
        let percent = 100.0 * error.relative_rms;
        note(format_args!(
            "rounding: {} as {}: {percent:.1} % of the weights' own size",
            error.role, error.format
        ));
    }
    let resumed = match report.resumed_bytes {
        0 => String::new(),
        bytes => format!(", {} of it from an earlier run", Size(bytes)),
    };
    let speed = report.in_bytes as f64 / report.seconds.max(1e-9) / 1e6;
    written(
        store,
        report.out_bytes,
        &format!("{resumed} ({:.1} s, {speed:.0} MB/s of input)", report.seconds),
    );
    Ok(())
}

pub(crate) fn synth(flags: &SynthFlags) -> anyhow::Result<()> {
    let options = SynthOptions {
        like: flags.like.clone(),
        n_layer: flags.layers,
        n_vocab: flags.vocab,
        pack: pack_options(&flags.format, PackOptions::default().bits),
        routing: flags.routing,
        seed: flags.seed,
    };
    let mut shown = Shown::new("synth");
    let out_bytes = convert::synth(&flags.out, &options, &mut |at| shown.at(&at)).map_err(usage)?;
    shown.finish();
    written(&flags.out, out_bytes, " of random weights");
    Ok(())
}

fn chosen_options(checkpoint: &Checkpoint, choice: &ChoiceFlags) -> anyhow::Result<PackOptions> {
    let default = if checkpoint.is_quantised() { Bits::Source } else { PackOptions::default().bits };
    let imatrix = choice.imatrix.as_ref().map(|path| Imatrix::read(path)).transpose()?;
    let default_quantiser = if imatrix.is_some() { Quantiser::Search } else { Quantiser::MinMax };
    Ok(PackOptions {
        recipe: choice.recipe,
        quantiser: choice.quantiser.unwrap_or(default_quantiser),
        imatrix: imatrix.map(Arc::new),
        ..pack_options(&choice.format, default)
    })
}

fn pack_options(flags: &FormatFlags, default: Bits) -> PackOptions {
    PackOptions {
        bits: flags.bits.unwrap_or(default),
        group: flags.group,
        roles: flags.role.clone(),
        ..PackOptions::default()
    }
}

/// Options that make no sense are bad usage.
fn usage(error: ConvertError) -> anyhow::Error {
    match error {
        ConvertError::Options(why) => CliError::Usage(why).into(),
        other => other.into(),
    }
}

fn written(path: &Path, out_bytes: u64, more: &str) {
    note(format_args!("{}: {}{more}", path.display(), Size(out_bytes)));
}

/// A bar that starts when the size of the work is known.
struct Shown {
    what: &'static str,
    bar: Option<Progress>,
}

impl Shown {
    fn new(what: &'static str) -> Self {
        Self { what, bar: None }
    }

    fn at(&mut self, at: &convert::Progress) {
        // What was there before is dealt with at once: it is no part of the speed.
        let bar = self.bar.get_or_insert_with(|| Progress::new(self.what, at.total_bytes, at.done_bytes));
        bar.at(at.done_bytes);
    }

    fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish();
        }
    }
}
