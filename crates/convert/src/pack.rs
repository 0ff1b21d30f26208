//! Checkpoint -> store: plan the formats, then read, encode and write unit by unit.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use quant::Format;
use store::{DensePlan, ExpertLayer, ExpertPart, ExpertPlan, Source, StorePlan, StoreWriter};

use crate::checkpoint::{Checkpoint, DenseSource, ExpertSource};
use crate::options::{Kind, PackOptions};
use crate::work::{Piece, Progress, Unit, Work, planes_mut, row_bytes};
use crate::{ConvertError, names};

/// What `pack` did.
#[derive(Clone, Debug, Default)]
pub struct PackReport {
    /// Bytes of weights in the checkpoint that were used.
    pub in_bytes: u64,
    /// Bytes of the store, about.
    pub out_bytes: u64,
    /// Bytes of it that an earlier, unfinished run had written.
    pub resumed_bytes: u64,
    /// Wall time.
    pub seconds: f64,
    /// Things the user should know: what was left out, formats that did not fit, risks.
    pub notes: Vec<String>,
    /// How far the stored weights are from the checkpoint's, worst first. Exact formats are not listed.
    pub errors: Vec<RoleError>,
}

/// Root mean square of (stored - original) relative to that of the original, over a sample of the rows encoded.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleError {
    /// A role, or `expert_gate`, `expert_up`, `expert_down`.
    pub role: String,
    /// What the weights were stored as.
    pub format: Format,
    /// 0.1 is 10 %.
    pub relative_rms: f64,
}

/// Every so many rows are decoded again to measure the error: the cost stays under 1 %.
const ERROR_SAMPLE_ROWS: usize = 64;

/// Experts further off than this answer fluently and break tool calls and JSON.
const EXPERT_ERROR_RISKY: f64 = 0.25;

/// Packs `checkpoint` into a store at `out`. An unfinished earlier run with the same source and options is resumed.
///
/// Memory is bounded whatever the size of the model; the bytes written do not depend on threads or on resuming.
/// `progress` counts bytes of the checkpoint.
///
/// # Errors
/// Options that do not fit the model, an unreadable source, a weight that is not finite, an output that exists or
/// cannot be written. Nothing is left that looks finished.
pub fn pack(
    checkpoint: &Checkpoint,
    out: &Path,
    options: &PackOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<PackReport, ConvertError> {
    let start = Instant::now();
    let mut notes: Vec<String> = checkpoint.skipped().into_iter().map(|s| format!("left out: {s}")).collect();
    let plan = plan(checkpoint, options, &mut notes)?;
    let out_bytes = plan.total_bytes();
    let work = Work::new(&plan);
    let total_bytes = checkpoint.weight_bytes();
    let mut checking =
        |_| progress(Progress { done_bytes: 0, total_bytes, what: "checking what is there".into() });
    let writer = StoreWriter::create_with_progress(out, plan, &mut checking)?;
    let resumed_bytes = writer.resumed_bytes();
    let sums = Mutex::new(ErrorSums::default());
    let encoder = Encoder { checkpoint, work: &work, sums: &sums };
    let done = work.run(
        writer,
        |unit| encoder.source_bytes(unit),
        |unit, scratch| encoder.encode(unit, scratch),
        progress,
    );
    if let Err(ConvertError::BadWeight { .. }) = done {
        // The same checkpoint will never become a store: there is nothing to go on with.
        StoreWriter::discard(out)?;
    }
    done?;

    let errors = sums.into_inner().expect("a worker that panics ends the run").report();
    if let Some(worst) =
        errors.iter().find(|e| e.role.starts_with("expert_") && e.relative_rms > EXPERT_ERROR_RISKY)
    {
        let percent = worst.relative_rms * 100.0;
        notes.push(format!(
            "{} in {} is {percent:.0} % off: expect broken JSON and tool calls; 4 bits are a safe choice",
            worst.role, worst.format
        ));
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(PackReport { in_bytes: total_bytes, out_bytes, resumed_bytes, seconds, notes, errors })
}

/// Chooses every format.
fn plan(
    checkpoint: &Checkpoint,
    options: &PackOptions,
    notes: &mut Vec<String>,
) -> Result<StorePlan, ConvertError> {
    let dense_kinds = checkpoint.dense().iter().map(|d| Kind::Dense(d.role));
    let kinds: Vec<Kind> = dense_kinds.chain(ExpertPart::ALL.map(Kind::Expert)).collect();
    options.check(&kinds)?;
    let mut misfits: BTreeMap<String, usize> = BTreeMap::new();
    let mut dense = Vec::with_capacity(checkpoint.dense().len());
    for source in checkpoint.dense() {
        let DenseSource { role, layer, rows, cols, tensor, .. } = *source;
        let (format, misfit) = format_of(checkpoint, options, Kind::Dense(role), cols, tensor, None)?;
        if let Some(misfit) = misfit {
            *misfits.entry(format!("{role} {misfit}")).or_default() += 1;
        }
        dense.push(DensePlan { role, layer, format, rows, cols });
    }
    notes.extend(misfits.into_iter().map(|(misfit, n)| format!("{misfit} ({n} tensors)")));
    let n_layer = checkpoint.config().n_layer();
    let experts =
        (0..n_layer).map(|layer| expert_plan(checkpoint, options, layer)).collect::<Result<_, _>>()?;
    let sidecars = checkpoint.sidecars()?;
    if !sidecars.iter().any(|(name, _)| name == "tokenizer.json") {
        notes.push("no tokenizer.json beside the weights: the store will take token ids only".into());
    }
    Ok(StorePlan {
        name: checkpoint.name().to_owned(),
        source: Source {
            kind: "safetensors".into(),
            fingerprint: fingerprint(checkpoint, options),
            skipped: checkpoint.skipped(),
        },
        config: checkpoint.config().clone(),
        dense,
        experts,
        sidecars,
    })
}

fn expert_plan(
    checkpoint: &Checkpoint,
    options: &PackOptions,
    layer: usize,
) -> Result<ExpertPlan, ConvertError> {
    let mut formats = [Format::F32; 3];
    for (i, part) in ExpertPart::ALL.into_iter().enumerate() {
        let (_, cols) = ExpertLayer::shape(checkpoint.config(), part);
        let tensors = (0..checkpoint.config().n_expert).map(|e| checkpoint.expert(layer, e)[i].tensor);
        let widest = tensors.clone().map(|t| checkpoint.tensor(t).format).reduce(common_format);
        let first = checkpoint.expert(layer, 0)[i].tensor;
        (formats[i], _) = format_of(checkpoint, options, Kind::Expert(part), cols, first, widest)?;
    }
    Ok(ExpertPlan { formats })
}

/// A float format that holds the numbers of both exactly: records of a layer share their formats.
fn common_format(a: Format, b: Format) -> Format {
    if a == b { a } else { Format::F32 }
}

fn format_of(
    checkpoint: &Checkpoint,
    options: &PackOptions,
    kind: Kind,
    cols: usize,
    tensor: usize,
    source: Option<Format>,
) -> Result<(Format, Option<String>), ConvertError> {
    let source = source.unwrap_or(checkpoint.tensor(tensor).format);
    options
        .format(kind, cols, source)
        .map_err(|why| ConvertError::Options(format!("{}: {why}", checkpoint.tensor(tensor).name)))
}

fn fingerprint(checkpoint: &Checkpoint, options: &PackOptions) -> String {
    let mut hash = checkpoint.fingerprint();
    let mut choices = format!("{} {}", options.bits, options.group);
    for (selector, bits) in &options.roles {
        write!(choices, " {selector}={bits}").expect("writing to a string");
    }
    hash.update(choices.as_bytes());
    format!("{:016x}", hash.digest())
}

/// Buffers that a worker keeps.
#[derive(Default)]
struct Scratch {
    /// Rows as they are in the file.
    source: Vec<u8>,
    /// One row, original and decoded again.
    row: Vec<f32>,
    stored: Vec<f32>,
}

/// A run of rows on its way into a matrix.
struct Rows<'a> {
    kind: Kind,
    tensor: usize,
    /// Named in errors.
    expert: Option<usize>,
    cols: usize,
    /// Rows of the tensor.
    from: Range<usize>,
    /// Row of the matrix that the first one becomes.
    to: usize,
    format: Format,
    /// Codes, scales and biases of these rows.
    planes: [&'a mut [u8]; 3],
}

/// Makes pieces of the store out of the checkpoint.
struct Encoder<'a> {
    checkpoint: &'a Checkpoint,
    work: &'a Work,
    sums: &'a Mutex<ErrorSums>,
}

impl Encoder<'_> {
    fn source_bytes(&self, unit: &Unit) -> u64 {
        match unit {
            Unit::Dense { idx, rows } => {
                let source = &self.checkpoint.dense()[*idx];
                self.checkpoint.dense_bytes(source) / source.rows as u64 * rows.len() as u64
            }
            Unit::Expert { layer, expert } => {
                self.checkpoint.expert_bytes(self.checkpoint.expert(*layer, *expert))
            }
        }
    }

    fn encode(&self, unit: &Unit, scratch: &mut Scratch) -> Result<Piece, ConvertError> {
        match unit {
            Unit::Dense { idx, rows } => self.encode_dense(*idx, rows.clone(), scratch),
            Unit::Expert { layer, expert } => self.encode_expert(*layer, *expert, scratch),
        }
    }

    fn encode_dense(
        &self,
        idx: usize,
        rows: Range<usize>,
        scratch: &mut Scratch,
    ) -> Result<Piece, ConvertError> {
        let DensePlan { role, format, cols, .. } = self.work.dense[idx];
        let source = &self.checkpoint.dense()[idx];
        let [code_bytes, group_bytes, _] = row_bytes(format, cols);
        let mut codes = vec![0; rows.len() * code_bytes];
        let mut scales = vec![0; rows.len() * group_bytes];
        let mut biases = scales.clone();
        let mut sums = ErrorSums::default();
        let mut piece_start = 0; // Row of the matrix.
        for piece in &source.pieces {
            let piece_rows = piece_start..piece_start + piece.len();
            piece_start = piece_rows.end;
            let (start, end) = (rows.start.max(piece_rows.start), rows.end.min(piece_rows.end));
            if start >= end {
                continue;
            }
            let part = |bytes: usize| (start - rows.start) * bytes..(end - rows.start) * bytes;
            let planes = [
                &mut codes[part(code_bytes)],
                &mut scales[part(group_bytes)],
                &mut biases[part(group_bytes)],
            ];
            let from = piece.start + (start - piece_rows.start)..piece.start + (end - piece_rows.start);
            let (kind, tensor) = (Kind::Dense(role), source.tensor);
            let rows = Rows { kind, tensor, expert: None, cols, from, to: start, format, planes };
            self.encode_rows(rows, scratch, &mut sums)?;
        }
        self.add(sums);
        Ok(Piece::Dense([codes, scales, biases]))
    }

    fn encode_expert(
        &self,
        layer: usize,
        expert: usize,
        scratch: &mut Scratch,
    ) -> Result<Piece, ConvertError> {
        let (config, formats) = (&self.work.config, &self.work.experts[layer].formats);
        let mut record = vec![0; ExpertLayer::stride_bytes(formats, config)];
        let mut sums = ErrorSums::default();
        for (i, range) in ExpertLayer::ranges(formats, config).into_iter().enumerate() {
            let (part, format) = (ExpertPart::ALL[i], formats[i]);
            let (rows, cols) = ExpertLayer::shape(config, part);
            let ExpertSource { tensor, first_row } = self.checkpoint.expert(layer, expert)[i];
            let from = first_row..first_row + rows;
            let planes = planes_mut(format, rows, cols, &mut record[range]);
            let kind = Kind::Expert(part);
            let rows = Rows { kind, tensor, expert: Some(expert), cols, from, to: 0, format, planes };
            self.encode_rows(rows, scratch, &mut sums)?;
        }
        self.add(sums);
        Ok(Piece::Expert(record))
    }

    /// Reads, widens, shifts if need be, and encodes a run of rows.
    fn encode_rows(
        &self,
        rows: Rows<'_>,
        scratch: &mut Scratch,
        sums: &mut ErrorSums,
    ) -> Result<(), ConvertError> {
        let Rows { kind, tensor, cols, format, planes: [codes, scales, biases], .. } = rows;
        let source_format = self.checkpoint.tensor(tensor).format;
        let shift = match kind {
            Kind::Dense(role) => names::is_zero_centred(self.work.config.architecture, role),
            Kind::Expert(_) => false,
        };
        scratch.source.clear();
        self.checkpoint.read_rows(tensor, cols, rows.from.clone(), &mut scratch.source)?;
        scratch.row.resize(cols, 0.0);
        scratch.stored.resize(cols, 0.0);
        let [code_bytes, group_bytes, _] = row_bytes(format, cols);
        for (i, source_row) in scratch.source.chunks_exact(source_format.row_bytes(cols)).enumerate() {
            let row = &mut scratch.row[..];
            quant::decode_row(source_format, source_row, &[], &[], row);
            if shift {
                row.iter_mut().for_each(|w| *w += 1.0);
            }
            let codes = &mut codes[i * code_bytes..][..code_bytes];
            let scales = &mut scales[i * group_bytes..][..group_bytes];
            let biases = &mut biases[i * group_bytes..][..group_bytes];
            quant::encode_row(format, row, codes, scales, biases).map_err(|source| {
                let expert = rows.expert.map_or(String::new(), |e| format!(" of expert {e}"));
                ConvertError::BadWeight {
                    path: self.checkpoint.path_of(tensor).to_owned(),
                    tensor: self.checkpoint.tensor(tensor).name.clone(),
                    matrix: format!("{kind}{expert}"),
                    row: rows.to + i,
                    source,
                }
            })?;
            if matches!(format, Format::Affine { .. }) && (rows.to + i).is_multiple_of(ERROR_SAMPLE_ROWS) {
                quant::decode_row(format, codes, scales, biases, &mut scratch.stored);
                sums.add(kind, format, row, &scratch.stored);
            }
        }
        Ok(())
    }

    fn add(&self, sums: ErrorSums) {
        self.sums.lock().expect("a worker that panics ends the run").merge(sums);
    }
}

/// Sums of squares by kind and format: (stored - original, original).
#[derive(Default)]
struct ErrorSums(Vec<(Kind, Format, [f64; 2])>);

impl ErrorSums {
    fn add(&mut self, kind: Kind, format: Format, original: &[f32], stored: &[f32]) {
        let square = |x: f32| f64::from(x) * f64::from(x);
        let error = original.iter().zip(stored).map(|(a, b)| square(b - a)).sum();
        let norm = original.iter().map(|&a| square(a)).sum();
        self.merge(ErrorSums(vec![(kind, format, [error, norm])]));
    }

    fn merge(&mut self, other: ErrorSums) {
        for (kind, format, [error, norm]) in other.0 {
            match self.0.iter_mut().find(|(k, f, _)| (*k, *f) == (kind, format)) {
                Some((.., sums)) => *sums = [sums[0] + error, sums[1] + norm],
                None => self.0.push((kind, format, [error, norm])),
            }
        }
    }

    fn report(self) -> Vec<RoleError> {
        let relative = |[error, norm]: [f64; 2]| if norm > 0.0 { (error / norm).sqrt() } else { 0.0 };
        let report = self.0.into_iter().map(|(kind, format, sums)| RoleError {
            role: kind.to_string(),
            format,
            relative_rms: relative(sums),
        });
        let mut report: Vec<_> = report.collect();
        report.sort_by(|a, b| b.relative_rms.total_cmp(&a.relative_rms).then_with(|| a.role.cmp(&b.role)));
        report
    }
}
