//! Columns of a matrix: models, opened or packed one at a time.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use convert::Checkpoint;
use quant::Format;
use store::Store;

use super::failed;
use crate::error::CliError;
use crate::flags::{EvalFlags, MatrixFlags, PackFlags};
use crate::{demo, pack, target};

/// Another name for bits `source`, for a checkpoint in that format.
const BF16: &str = "bf16";

/// A model.
pub(super) struct Column {
    /// What it is called in the result.
    pub(super) name: String,
    /// Checkpoint or store; `None`: the demo model.
    pub(super) model: Option<PathBuf>,
    /// What to pack it to.
    bits: Option<String>,
    /// Numbers of experts to use.
    pub(super) experts: Vec<usize>,
}

/// What `pack` is told.
#[derive(Debug, Parser)]
#[command(name = "pack")]
struct PackLine {
    #[command(flatten)]
    flags: PackFlags,
}

/// All columns, in the order that they were asked for. Each model is looked at before any work is done.
///
/// # Errors
/// A model cannot be opened, or two columns would have one name.
pub(super) fn columns(flags: &EvalFlags) -> anyhow::Result<Vec<Column>> {
    let bits: Vec<Option<&String>> = match flags.matrix.bits.is_empty() {
        true => vec![None],
        false => flags.matrix.bits.iter().map(Some).collect(),
    };
    let models: Vec<Option<&PathBuf>> = match flags.model.is_empty() {
        true => vec![None],
        false => flags.model.iter().map(Some).collect(),
    };
    let mut columns: Vec<Column> = Vec::new();
    for model in &models {
        let config = match (model, flags.matrix.bits.is_empty()) {
            (Some(path), false) => Checkpoint::open(path)?.config().clone(),
            (None, false) => {
                let why =
                    "--bits packs a checkpoint, which the demo model in the program is none of: name one";
                return Err(CliError::Usage(why.into()).into());
            }
            (model, true) => target::open(model.map(PathBuf::as_path))?.config().clone(),
        };
        let experts = match flags.engine.experts.is_empty() {
            true => vec![config.n_expert_used],
            false => flags.engine.experts.clone(),
        };
        if let Some(k) = experts.iter().enumerate().find_map(|(i, k)| experts[..i].contains(k).then_some(k)) {
            return Err(CliError::Usage(format!("--experts has {k} twice")).into());
        }
        if let Some(k) = experts.iter().find(|&&k| config.n_expert < k) {
            let why = format!("--experts {k} is more than the {} that the model has", config.n_expert);
            return Err(CliError::Usage(why).into());
        }
        for bits in &bits {
            let name = match (bits, models.len()) {
                (Some(bits), 1) => (*bits).clone(),
                (Some(bits), _) => format!("{} {bits}", name(*model)),
                (None, _) => name(*model),
            };
            if columns.iter().any(|column| column.name == name) {
                return Err(
                    CliError::Usage(format!("two models of the matrix are both called '{name}'")).into()
                );
            }
            let column =
                Column { name, model: model.cloned(), bits: bits.cloned(), experts: experts.clone() };
            if let Some(bits) = &column.bits {
                // Bad flags are found now, not when this column's turn comes.
                column.pack_flags(bits, &column.packed(Path::new("")), &flags.matrix)?;
            }
            columns.push(column);
        }
    }
    Ok(columns)
}

/// Of a model.
fn name(model: Option<&PathBuf>) -> String {
    let last = |path: &PathBuf| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    model.map_or(demo::NAME.to_owned(), last)
}

impl Column {
    /// The model, packed into `work` if it has to be.
    pub(super) fn open(&self, work: &Path, flags: &MatrixFlags) -> anyhow::Result<Store> {
        let Some(bits) = &self.bits else { return target::open(self.model.as_deref()) };
        let path = self.packed(work);
        // A store is finished or absent.
        if !path.exists() {
            pack::pack(&self.pack_flags(bits, &path, flags)?)?;
        }
        let store = Store::open(&path)?;
        let is_bf16 = |store: &Store| store.manifest().experts.iter().all(|e| e.formats == [Format::Bf16; 3]);
        if bits == BF16 && !is_bf16(&store) {
            let why =
                format!("--bits {BF16}: the checkpoint has its experts in another format; 'source' is any");
            return Err(CliError::Usage(why).into());
        }
        Ok(store)
    }

    /// Removes what was packed. The store is not used any more.
    pub(super) fn close(&self, work: &Path) -> Result<(), CliError> {
        let path = self.packed(work);
        if self.bits.is_none() || !path.exists() {
            return Ok(());
        }
        fs::remove_dir_all(&path).map_err(|source| failed(&path, "remove", source))
    }

    fn packed(&self, work: &Path) -> PathBuf {
        let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        work.join(format!("{}.store", self.name.chars().map(plain).collect::<String>()))
    }

    /// As if `pack` had been typed.
    fn pack_flags(&self, bits: &str, path: &Path, flags: &MatrixFlags) -> Result<PackFlags, CliError> {
        let bits = if bits == BF16 { "source" } else { bits };
        let model = self.model.as_deref().unwrap_or(Path::new(""));
        let line: Vec<&OsStr> = [OsStr::new("pack"), "--bits".as_ref(), bits.as_ref()]
            .into_iter()
            .chain(flags.pack_args.iter().map(OsString::as_os_str))
            .chain(["--".as_ref(), model.as_os_str(), path.as_os_str()])
            .collect();
        let parsed = PackLine::try_parse_from(line).map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            CliError::Usage(first.strip_prefix("error: ").unwrap_or(first).to_owned())
        })?;
        Ok(parsed.flags)
    }
}
