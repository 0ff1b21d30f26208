//! `verify`: every byte of a store against its checksum.

use crate::error::CliError;
use crate::flags::VerifyFlags;
use crate::output::note;
use crate::progress::Progress;
use crate::size::Size;
use crate::target;

pub(crate) fn verify(flags: &VerifyFlags) -> anyhow::Result<()> {
    let store = target::open(flags.model.as_deref())?;
    let mut progress = Progress::new("verify", stored_bytes(&store), 0);
    let report = store.verify(&mut |read_bytes| progress.at(read_bytes))?;
    let speed = progress.finish();
    for problem in &report.problems {
        note(format_args!("problem: {problem}"));
    }
    let found = format!(
        "{} dense tensors, {} expert records, {}",
        report.n_dense,
        report.n_expert,
        Size(report.read_bytes)
    );
    if report.problems.is_empty() {
        note(format_args!("{}: all is well ({found}, {:.0} MB/s)", store.location(), speed / 1e6));
        return Ok(());
    }
    Err(CliError::Damaged {
        model: store.location(),
        n_problem: report.problems.len(),
        is_packed: !store.manifest().is_in_place(),
    }
    .into())
}

/// Bytes that `verify` will read, but for the sidecars, which are small.
fn stored_bytes(store: &store::Store) -> u64 {
    let config = store.config();
    let layers = store.manifest().experts.iter();
    let stride = |layer: &store::ExpertLayer| store::ExpertLayer::stride_bytes(&layer.formats, config) as u64;
    store.dense_bytes() + layers.map(|layer| stride(layer) * config.n_expert as u64).sum::<u64>()
}
