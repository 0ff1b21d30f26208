//! Checkpoint -> store: plan the formats, then read, encode and write unit by unit.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::slice::from_ref;
use std::sync::Mutex;
use std::time::Instant;

use quant::{Cost, Format};
use store::{DensePlan, ExpertLayer, ExpertPart, ExpertPlan, Input, Source, StorePlan, StoreWriter};

use crate::ConvertError;
use crate::arrival::{Arrivals, WeightSource};
use crate::assembly::{Adjust, DenseSource};
use crate::checkpoint::Checkpoint;
use crate::imatrix::Weighting;
use crate::options::{Kind, PackOptions, Quantiser};
use crate::rows::{Matrix, Scratch};
use crate::work::{Piece, Progress, Unit, Work, plane_bytes, planes_mut};

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
    pack_arriving(checkpoint, None, out, options, progress)
}

/// The same for a checkpoint whose weight files have nothing but headers yet: `source` brings them, and may delete each
/// when it has been used. The bytes written are the same.
///
/// # Errors
/// Those of [`pack`], and those of `source`.
pub fn pack_arriving(
    checkpoint: &Checkpoint,
    source: Option<&dyn WeightSource>,
    out: &Path,
    options: &PackOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<PackReport, ConvertError> {
    let start = Instant::now();
    let mut notes: Vec<String> = checkpoint.skipped().into_iter().map(|s| format!("left out: {s}")).collect();
    notes.extend_from_slice(checkpoint.notes());
    let plan = plan(checkpoint, options, &mut notes)?;
    let out_bytes = plan.total_bytes();
    let work = Work::new(&plan);
    let total_bytes = checkpoint.weight_bytes();
    let mut checking =
        |_| progress(Progress { done_bytes: 0, total_bytes, what: "checking what is there".into() });
    let writer = StoreWriter::create_with_progress(out, plan, &mut checking)?;
    let resumed_bytes = writer.resumed_bytes();
    let sums = Mutex::new(ErrorSums::default());
    let encoder = Encoder { checkpoint, options, work: &work, sums: &sums };
    let done = work.run(
        writer,
        |unit| encoder.source_bytes(unit),
        |unit, scratch| encoder.encode(unit, scratch),
        |units| {
            let names = checkpoint.file_names();
            source.map(|source| Arrivals::new(source, &names, units, &|unit| encoder.files(unit))).transpose()
        },
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

/// Bytes that the store will have, about.
///
/// # Errors
/// Options that do not fit the model.
pub fn predict_bytes(checkpoint: &Checkpoint, options: &PackOptions) -> Result<u64, ConvertError> {
    Ok(plan(checkpoint, options, &mut Vec::new())?.total_bytes())
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
    check_imatrix(checkpoint, options, notes)?;
    let mut misfits: BTreeMap<String, usize> = BTreeMap::new();
    let mut dense = Vec::with_capacity(checkpoint.dense().len());
    for source in checkpoint.dense() {
        let DenseSource { role, layer, rows, cols, tensor, .. } = *source;
        let stored = checkpoint.dense_format(source);
        let (format, misfit) =
            format_of(checkpoint, options, (Kind::Dense(role), layer), cols, tensor, stored)?;
        if let Some(misfit) = misfit {
            *misfits.entry(format!("{role} {misfit}")).or_default() += 1;
        }
        dense.push(DensePlan { role, layer, format, rows, cols });
    }
    notes.extend(misfits.into_iter().map(|(misfit, n)| format!("{misfit} ({n} tensors)")));
    let mut misfits = BTreeMap::new();
    let n_layer = checkpoint.config().n_layer();
    let experts = (0..n_layer)
        .map(|layer| expert_plan(checkpoint, options, layer, &mut misfits))
        .collect::<Result<_, _>>()?;
    notes.extend(misfits.into_iter().map(|(misfit, n)| format!("{misfit} ({n} layers)")));
    let sidecars = checkpoint.sidecars.clone();
    if !sidecars.iter().any(|(name, _)| name == "tokenizer.json") {
        notes.push("no tokenizer.json beside the weights: the store will take token ids only".into());
    }
    Ok(StorePlan {
        name: checkpoint.name().to_owned(),
        source: Source {
            kind: checkpoint.kind().to_string(),
            fingerprint: fingerprint(checkpoint, options),
            skipped: checkpoint.skipped(),
        },
        config: checkpoint.config().clone(),
        dense,
        experts,
        sidecars,
    })
}

/// Is the importance matrix of this model? Notes what it does not know.
fn check_imatrix(
    checkpoint: &Checkpoint,
    options: &PackOptions,
    notes: &mut Vec<String>,
) -> Result<(), ConvertError> {
    let Some(imatrix) = &options.imatrix else { return Ok(()) };
    if !imatrix.is_of(checkpoint.config()) {
        return Err(ConvertError::Options("the importance matrix is of a model with other shapes".into()));
    }
    let (none, few) = imatrix.n_unseen();
    if none + few > 0 {
        notes.push(format!(
            "importance matrix: {none} experts were never chosen, {few} rarely; their layer's mean stands in for them"
        ));
    }
    Ok(())
}

fn expert_plan(
    checkpoint: &Checkpoint,
    options: &PackOptions,
    layer: usize,
    misfits: &mut BTreeMap<String, usize>,
) -> Result<ExpertPlan, ConvertError> {
    let mut formats = [Format::F32; 3];
    for (i, part) in ExpertPart::ALL.into_iter().enumerate() {
        let (rows, cols) = ExpertLayer::shape(checkpoint.config(), part);
        let stored = (0..checkpoint.config().n_expert).map(|expert| {
            let source = checkpoint.expert(layer, expert)[i];
            checkpoint.whole_format(source.tensor, from_ref(&source.rows(rows)))
        });
        let (kind, first) = (Kind::Expert(part), checkpoint.expert(layer, 0)[i].tensor);
        let is_mixed = stored.clone().any(|format| format != checkpoint.tensor(first).format);
        let widest = stored.reduce(common_format).expect("a layer has experts");
        let (format, misfit) = format_of(checkpoint, options, (kind, Some(layer)), cols, first, widest)?;
        formats[i] = format;
        if let Some(misfit) = misfit {
            *misfits.entry(format!("{kind} {misfit}")).or_default() += 1;
        }
        if format == Format::F32 && is_mixed {
            let text =
                format!("{kind} stored as f32, which is large: experts have several formats or share scales");
            *misfits.entry(text).or_default() += 1;
        }
    }
    Ok(ExpertPlan { formats })
}

/// A format that holds the numbers of both exactly: records of a layer share their formats.
fn common_format(a: Format, b: Format) -> Format {
    if a == b { a } else { Format::F32 }
}

fn format_of(
    checkpoint: &Checkpoint,
    options: &PackOptions,
    (kind, layer): (Kind, Option<usize>),
    cols: usize,
    tensor: usize,
    source: Format,
) -> Result<(Format, Option<String>), ConvertError> {
    let is_edge = layer.is_some_and(|layer| layer == 0 || layer + 1 == checkpoint.config().n_layer());
    options
        .format_at(kind, is_edge, cols, source)
        .map_err(|why| ConvertError::Options(format!("{}: {why}", checkpoint.tensor(tensor).name)))
}

fn fingerprint(checkpoint: &Checkpoint, options: &PackOptions) -> String {
    let mut hash = checkpoint.fingerprint();
    let mut choices = format!("{} {}", options.bits, options.group);
    for (selector, bits) in &options.roles {
        write!(choices, " {selector}={bits}").expect("writing to a string");
    }
    if let Some(recipe) = options.recipe {
        write!(choices, " {recipe}").expect("writing to a string");
    }
    if options.quantiser != Quantiser::MinMax {
        write!(choices, " {}", options.quantiser).expect("writing to a string");
    }
    if let Some(imatrix) = &options.imatrix {
        write!(choices, " {:016x}", imatrix.hash()).expect("writing to a string");
    }
    hash.update(choices.as_bytes());
    format!("{:016x}", hash.digest())
}

/// Makes pieces of the store out of the checkpoint.
struct Encoder<'a> {
    checkpoint: &'a Checkpoint,
    options: &'a PackOptions,
    work: &'a Work,
    sums: &'a Mutex<ErrorSums>,
}

impl Encoder<'_> {
    /// Indices of the files that a unit is read from.
    fn files(&self, unit: &Unit) -> Vec<usize> {
        let mut files = match unit {
            Unit::Dense { idx, .. } => {
                let source = &self.checkpoint.dense()[*idx];
                self.checkpoint.files_of(source.tensor, source.cols)
            }
            Unit::Expert { layer, expert } => {
                let parts = self.checkpoint.expert(*layer, *expert).iter().zip(ExpertPart::ALL);
                let cols = |part| ExpertLayer::shape(&self.work.config, part).1;
                parts.flat_map(|(from, part)| self.checkpoint.files_of(from.tensor, cols(part))).collect()
            }
        };
        files.sort_unstable();
        files.dedup();
        files
    }

    fn source_bytes(&self, unit: &Unit) -> u64 {
        match unit {
            Unit::Dense { idx, rows } => {
                let source = &self.checkpoint.dense()[*idx];
                let format = self.checkpoint.tensor(source.tensor).format;
                plane_bytes(format, source.cols, rows.len()).iter().sum::<usize>() as u64
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
        let DensePlan { role, layer, format, cols, .. } = self.work.dense[idx];
        let weighting = Input::of_role(role).and_then(|input| self.weighting(format, layer, input));
        let source = &self.checkpoint.dense()[idx];
        let mut planes = plane_bytes(format, cols, rows.len()).map(|bytes| vec![0; bytes]);
        let cost = self.cost(format, weighting.as_ref());
        let matrix = Matrix { cost, ..Matrix::dense(source, format) };
        self.rows(&matrix, rows, planes.each_mut().map(|p| &mut p[..]), scratch)?;
        Ok(Piece::Dense(planes))
    }

    fn encode_expert(
        &self,
        layer: usize,
        expert: usize,
        scratch: &mut Scratch,
    ) -> Result<Piece, ConvertError> {
        let (config, formats) = (&self.work.config, &self.work.experts[layer].formats);
        let mut record = vec![0; ExpertLayer::stride_bytes(formats, config)];
        // Gate and up have the same input.
        let mut weighting = (None, None);
        for (i, range) in ExpertLayer::ranges(formats, config).into_iter().enumerate() {
            let (part, format) = (ExpertPart::ALL[i], formats[i]);
            let (rows, cols) = ExpertLayer::shape(config, part);
            let source = self.checkpoint.expert(layer, expert)[i];
            let piece = source.rows(rows);
            let input = Input::of_expert(part, expert);
            if weighting.0 != Some((input, format)) {
                weighting = (Some((input, format)), self.weighting(format, Some(layer), input));
            }
            let matrix = Matrix {
                kind: Kind::Expert(part),
                expert: Some(expert),
                tensor: source.tensor,
                cols,
                pieces: from_ref(&piece),
                adjust: Adjust::None,
                format,
                cost: self.cost(format, weighting.1.as_ref()),
            };
            let planes = planes_mut(format, rows, cols, &mut record[range]);
            self.rows(&matrix, 0..rows, planes, scratch)?;
        }
        Ok(Piece::Expert(record))
    }

    /// What is known of the input of a matrix whose codes are searched for.
    fn weighting(&self, format: Format, layer: Option<usize>, input: Input) -> Option<Weighting> {
        let imatrix = self.options.imatrix.as_ref().filter(|_| self.options.searches(format));
        imatrix.map(|imatrix| imatrix.weighting(layer, input))
    }

    fn cost<'w>(&self, format: Format, weighting: Option<&'w Weighting>) -> Option<Cost<'w>> {
        self.options.searches(format).then(|| match weighting {
            Some(Weighting::Curvature(curvature)) => Cost::Curvature(curvature),
            Some(Weighting::Columns(columns)) => Cost::Columns(columns),
            None => Cost::Equal,
        })
    }

    fn rows(
        &self,
        matrix: &Matrix<'_>,
        rows: Range<usize>,
        planes: [&mut [u8]; 3],
        scratch: &mut Scratch,
    ) -> Result<(), ConvertError> {
        let mut sums = ErrorSums::default();
        let mut measure =
            |original: &[f32], stored: &[f32]| sums.add(matrix.kind, matrix.format, original, stored);
        self.checkpoint.rows(matrix, rows, planes, scratch, &mut measure)?;
        self.sums.lock().expect("a worker that panics ends the run").merge(sums);
        Ok(())
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
