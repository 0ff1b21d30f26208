//! Runs a text through the model and takes note of what goes into its matrices: for `pack --imatrix`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use convert::ImatrixCollector;
use model::Logits;

use super::logits::read_ids;
use super::text;
use crate::error::CliError;
use crate::flags::{Device, EngineFlags, EvalFlags};
use crate::load::load;
use crate::outfile::OutFile;
use crate::output::note;
use crate::plan::Work;
use crate::progress::TokenBar;
use crate::size::Size;
use crate::target;

/// Tokens that are fed from nothing: long enough for context, short enough that keys and values take little.
const WINDOW: usize = 1024;
/// Products of the inputs of routed experts' down are kept if they take no more than this in all.
const EXPERT_BYTES_MAX: u128 = 1 << 30;

pub(super) fn collect(flags: &EvalFlags, out: &Path) -> anyhow::Result<()> {
    if let Device::Gpu(_) = flags.engine.device {
        let why = "--collect-imatrix computes on the CPU, which sees what goes into each expert";
        return Err(CliError::Usage(why.into()).into());
    }
    let engine = EngineFlags { device: Device::Cpu, ..flags.engine.clone() };
    let store = target::open(flags.model.first().map(PathBuf::as_path))?;
    let documents = match &flags.ids {
        Some(ids) => vec![read_ids(ids)?],
        None => text::prepare(&store, &flags.text, &engine)?.0.documents,
    };
    let n_token: usize = documents.iter().map(Vec::len).sum();
    let config = store.config().clone();
    let bytes = |expert_down| ImatrixCollector::bytes(&config, flags.imatrix_block, expert_down);
    let usage = |error: convert::ConvertError| CliError::Usage(error.to_string());
    let (without, with) = (bytes(false).map_err(usage)?, bytes(true).map_err(usage)?);
    let expert_down = with - without <= EXPERT_BYTES_MAX;
    let taken = if expert_down { with } else { without };
    note(format_args!("moments take {} of memory, and of the file", Size(taken as u64)));
    if !expert_down && flags.imatrix_block > 0 {
        note(format_args!(
            "products of the inputs of routed experts' down would take {}: only their squares are kept",
            Size((with - without) as u64)
        ));
    }
    let collector = ImatrixCollector::new(&config, flags.imatrix_block, expert_down).map_err(usage)?;
    let n_ctx = documents.iter().map(Vec::len).max().unwrap_or(1).min(WINDOW);
    let work = Work { n_ctx: Some(n_ctx), n_feed: Some(n_ctx), keeps_prefixes: false, n_session: 1 };
    let mut loaded = load(&store, &engine, work)?;
    let collector = Arc::new(Mutex::new(Some(collector)));
    let shared = Arc::clone(&collector);
    loaded.engine.set_observer(move |layer, input, rows| {
        if let Some(collector) = &mut *shared.lock().unwrap_or_else(PoisonError::into_inner) {
            collector.add(layer, input, rows);
        }
    });
    let bar = TokenBar::new(n_token);
    let mut n_left = n_token;
    for window in documents.iter().flat_map(|ids| ids.chunks(WINDOW)) {
        let mut session = loaded.engine.session(n_ctx);
        let ignore = &mut |_: usize, _: &[f32]| {};
        loaded
            .engine
            .forward(&mut session, window, Logits::All(ignore), &mut |_| ControlFlow::Continue(()))?;
        n_left -= window.len();
        bar.at_left(n_left);
    }
    let collector = collector.lock().unwrap_or_else(PoisonError::into_inner).take();
    let imatrix = collector.expect("put there above").finish(n_token as u64);
    let failed = |source| CliError::Io { path: out.to_owned(), action: "write", source };
    let mut file = OutFile::create(out).map_err(failed)?;
    imatrix.write(&mut file).and_then(|()| file.finish()).map_err(failed)?;
    let (none, few) = imatrix.n_unseen();
    note(format_args!(
        "{}: {} tokens; {none} experts never chosen, {few} rarely",
        out.display(),
        imatrix.n_token()
    ));
    Ok(())
}
