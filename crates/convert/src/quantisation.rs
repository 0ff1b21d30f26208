//! How config.json says that a folder's matrices are quantised, and whether their shapes agree.
//!
//! MLX: `quantization`, with settings for single modules beside the general ones. FP8: `quantization_config` of
//! `quant_method` fp8. Everything else is refused by its name.

use std::collections::HashMap;
use std::path::Path;

use quant::Format;
use serde_json::Value;

use crate::config::present;
use crate::safetensors::HeaderTensor;
use crate::{ConvertError, names};

/// What is said of the whole folder.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Quantisation {
    /// Nothing.
    None,
    Mlx(MlxSettings),
    /// E4M3 with a scale for every 128 rows and 128 columns.
    Fp8,
}

/// MLX's settings: general, and of single modules by their name without a prefix (`None`: not quantised).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MlxSettings {
    general: Mlx,
    modules: HashMap<String, Option<Mlx>>,
}

/// How a module is quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mlx {
    mode: Mode,
    bits: u64,
    /// Columns that share a scale.
    group: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Affine,
    Mxfp4,
    Nvfp4,
}

impl Mode {
    const ALL: [(&str, Mode); 3] = [("affine", Mode::Affine), ("mxfp4", Mode::Mxfp4), ("nvfp4", Mode::Nvfp4)];

    /// Bits and group where config.json does not say.
    fn defaults(self) -> (u64, u64) {
        match self {
            Mode::Affine => (4, 64),
            Mode::Mxfp4 => (4, 32),
            Mode::Nvfp4 => (4, 16),
        }
    }
}

/// What other tensors belong to a matrix.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Companions<'a> {
    /// MLX: `X.scales`; FP8: `X.weight_scale_inv`.
    pub(crate) scales: Option<&'a HeaderTensor>,
    /// MLX: `X.biases`.
    pub(crate) biases: Option<&'a HeaderTensor>,
}

/// Reads what config.json (`json`; `path` is for messages) says.
///
/// # Errors
/// A method or setting that is not supported, or makes no sense.
pub(crate) fn read(path: &Path, json: &Value) -> Result<Quantisation, ConvertError> {
    let text = json.get("text_config").filter(|t| t.is_object()).unwrap_or(json);
    let find = |key: &str| present(json, key).or(present(text, key));
    let (key, settings) = match (find("quantization"), find("quantization_config")) {
        (Some(settings), _) => ("quantization", settings),
        (None, Some(settings)) => ("quantization_config", settings),
        (None, None) => return Ok(Quantisation::None),
    };
    let unsupported = |what: String| Err(ConvertError::Unsupported { path: path.to_owned(), what });
    match settings.get("quant_method").and_then(Value::as_str) {
        None if settings.get("group_size").is_some() || settings.get("mode").is_some() => {
            mlx_settings(settings)
                .map(Quantisation::Mlx)
                .map_err(|why| ConvertError::Config { path: path.to_owned(), why: format!("{key}: {why}") })
        }
        None => unsupported(refusal(key, "a method that is not named")),
        Some("fp8") => match fp8_differs(settings) {
            None => Ok(Quantisation::Fp8),
            Some(what) => unsupported(refusal(key, &format!("fp8 with {what}"))),
        },
        Some(method) => unsupported(refusal(key, method)),
    }
}

/// What is said of a method that is not supported.
pub(crate) fn refusal(key: &str, method: &str) -> String {
    format!(
        "the checkpoint is quantised with {method} ({key}), which is not supported; use the original BF16 \
         checkpoint, its FP8 form (e4m3, blocks of 128x128), an MLX conversion or a GGUF file"
    )
}

/// The first setting of FP8 that is not that of the published checkpoints.
fn fp8_differs(settings: &Value) -> Option<String> {
    let differs = |key: &str, expected: Value| {
        let value = present(settings, key)?;
        (*value != expected).then(|| format!("{key} {value}"))
    };
    if present(settings, "weight_block_size").is_none() {
        return Some("no weight_block_size".into());
    }
    let block = || differs("weight_block_size", serde_json::json!([128, 128]));
    block().or_else(|| differs("fmt", "e4m3".into()))
}

fn mlx_settings(settings: &Value) -> Result<MlxSettings, String> {
    let object = settings.as_object().ok_or("is not an object")?;
    let general = Mlx::read(settings)?;
    let mut modules = HashMap::new();
    for (name, value) in object {
        let module = match value {
            Value::Bool(false) => None,
            Value::Bool(true) => Some(general),
            Value::Object(_) => Some(Mlx::read(value).map_err(|why| format!("{name}: {why}"))?),
            _ => continue, // A general setting.
        };
        if let Some(other) = modules.insert(names::module(name).to_owned(), module)
            && other != module
        {
            return Err(format!("{name} is there twice with different settings"));
        }
    }
    Ok(MlxSettings { general, modules })
}

impl Mlx {
    fn read(settings: &Value) -> Result<Self, String> {
        let mode = match present(settings, "mode") {
            None => Mode::Affine,
            Some(mode) => {
                let known = Mode::ALL.iter().find(|(name, _)| *mode == **name);
                known.ok_or_else(|| format!("mode {mode} is not supported (affine, mxfp4 and nvfp4 are)"))?.1
            }
        };
        let number = |key: &str, default: u64| match present(settings, key) {
            None => Ok(default),
            Some(value) => value
                .as_u64()
                .filter(|n| (1..=1024).contains(n))
                .ok_or_else(|| format!("{key} is {value}, expected a small positive integer")),
        };
        let (bits, group) = mode.defaults();
        Ok(Self { mode, bits: number("bits", bits)?, group: number("group_size", group)? })
    }

    /// The format, if there is such a one; `is_f16`: scales and biases are F16.
    fn format(self, is_f16: bool) -> Result<Format, String> {
        let format = match self {
            Mlx { mode: Mode::Affine, bits, group } => {
                let (bits, group) = (bits as u8, group as u8);
                let is_known = Format::AFFINE_BITS.contains(&bits) && Format::AFFINE_GROUPS.contains(&group);
                match is_f16 {
                    _ if !is_known || [u64::from(bits), u64::from(group)] != [self.bits, self.group] => None,
                    true => Some(Format::AffineF16 { bits, group }),
                    false => Some(Format::Affine { bits, group }),
                }
            }
            Mlx { mode: Mode::Mxfp4, bits: 4, group: 32 } => Some(Format::Mxfp4),
            Mlx { mode: Mode::Nvfp4, bits: 4, group: 16 } => Some(Format::Nvfp4),
            _ => None,
        };
        format.ok_or_else(|| {
            format!(
                "{} is not supported (affine: 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128)",
                self.name()
            )
        })
    }

    fn name(self) -> String {
        let (mode, _) = Mode::ALL.iter().find(|(_, mode)| *mode == self.mode).expect("all modes have names");
        format!("{mode}, {} bits in groups of {}", self.bits, self.group)
    }
}

impl MlxSettings {
    /// Does config.json name this module with settings of its own? Then its tensors have to be quantised.
    pub(crate) fn is_named(&self, module: &str) -> bool {
        matches!(self.modules.get(names::module(module)), Some(Some(_)))
    }

    /// The format of matrix `weight` of `module` whose rows have `cols` numbers, and its shape in numbers.
    ///
    /// # Errors
    /// What does not fit together: shapes and dtypes say one thing and config.json another, or there is no such
    /// format.
    pub(crate) fn format(
        &self,
        module: &str,
        weight: &HeaderTensor,
        companions: Companions<'_>,
        cols: u64,
    ) -> Result<(Format, Vec<u64>), String> {
        let said = match self.modules.get(names::module(module)) {
            None => self.general,
            Some(Some(said)) => *said,
            Some(None) => return Err("is quantised, config.json says that it is not".into()),
        };
        let scales =
            companions.scales.ok_or_else(|| format!("is quantised, but there is no {module}.scales"))?;
        let ([stack @ .., n_word], [scale_stack @ .., n_scale]) = (&weight.shape[..], &scales.shape[..])
        else {
            return Err("has no columns".into());
        };
        if stack != scale_stack {
            return Err(format!("has shape {:?} and scales of shape {:?}", weight.shape, scales.shape));
        }
        let word_bits = n_word.saturating_mul(32);
        if word_bits != cols.saturating_mul(said.bits) || n_scale.saturating_mul(said.group) != cols {
            return Err(format!(
                "config.json says {}, the shapes {:?} of its codes and {:?} of its scales say {} in groups of {} for \
                 rows of {cols} numbers",
                said.name(),
                weight.shape,
                scales.shape,
                ratio(word_bits, cols, "bits"),
                ratio(cols, *n_scale, "numbers"),
            ));
        }
        let is_f16 = check_companions(module, said.mode, scales, companions.biases)?;
        let shape = stack.iter().copied().chain([cols]).collect();
        Ok((said.format(is_f16)?, shape))
    }
}

/// Do scales and biases have the dtypes of the mode? True if F16.
fn check_companions(
    module: &str,
    mode: Mode,
    scales: &HeaderTensor,
    biases: Option<&HeaderTensor>,
) -> Result<bool, String> {
    let dtypes: &[&str] = if mode == Mode::Affine { &["BF16", "F16"] } else { &["U8"] };
    if !dtypes.contains(&scales.dtype.as_str()) {
        let mode = Mode::ALL.iter().find(|(_, m)| *m == mode).expect("all modes have names").0;
        return Err(format!(
            "has scales of dtype {}, of mode {mode} only {}",
            scales.dtype,
            dtypes.join(" and ")
        ));
    }
    match (mode, biases) {
        (Mode::Affine, None) => Err(format!("is quantised, but there is no {module}.biases")),
        (Mode::Affine, Some(biases)) if (&biases.dtype, &biases.shape) != (&scales.dtype, &scales.shape) => {
            Err(format!(
                "has scales {} {:?} and biases {} {:?}, which are not the same",
                scales.dtype, scales.shape, biases.dtype, biases.shape
            ))
        }
        (Mode::Affine, Some(_)) | (_, None) => Ok(scales.dtype == "F16"),
        (_, Some(_)) => Err(format!("has {module}.biases, which its mode does not")),
    }
}

/// "8 bits", or "8.5 bits" of what is no whole number.
fn ratio(a: u64, b: u64, unit: &str) -> String {
    if b == 0 {
        return format!("no {unit}");
    }
    format!("{} {unit}", a as f64 / b as f64)
}

/// The format of an FP8 matrix of `cols` columns, and its shape.
///
/// # Errors
/// The scales are missing, or their shape or dtype does not fit.
pub(crate) fn fp8_format(weight: &HeaderTensor, scales: Option<&HeaderTensor>) -> Result<Format, String> {
    let scales = scales.ok_or_else(|| format!("is FP8, but there is no {}_scale_inv", weight.name))?;
    let format = match scales.dtype.as_str() {
        "BF16" => Format::Fp8,
        "F32" => Format::Fp8F32,
        other => return Err(format!("has scales of dtype {other}, only BF16 and F32 are supported")),
    };
    let block = format.scale_rows() as u64;
    let [stack @ .., rows, cols] = weight.shape.as_slice() else {
        return Err(format!("is FP8 of shape {:?}, which is no matrix", weight.shape));
    };
    let blocks = [rows.div_ceil(block), cols.div_ceil(block)];
    let expected: Vec<u64> = stack.iter().copied().chain(blocks).collect();
    if scales.shape != expected {
        return Err(format!(
            "FP8 of shape {:?} has scales of shape {:?}, expected {expected:?}",
            weight.shape, scales.shape
        ));
    }
    if !stack.is_empty() && !rows.is_multiple_of(block) {
        return Err(format!(
            "is FP8 of shape {:?}: stacked matrices need a multiple of {block} rows",
            weight.shape
        ));
    }
    Ok(format)
}
