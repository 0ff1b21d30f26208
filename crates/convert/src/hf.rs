//! A folder of safetensors: configuration, index, and what each tensor in it is.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use quant::Format;
use store::{ModelConfig, Role};

use crate::assembly::{Adjust, Assembled, Assembly, Tensor};
use crate::checkpoint::{Checkpoint, SourceKind};
use crate::names::{self, Target};
use crate::quantisation::{self, Companions, Quantisation, fp8_format};
use crate::safetensors::{self, HeaderTensor};
use crate::source::{Place, SourceFile};
use crate::{ConvertError, config, folder};

/// Where NVIDIA's tools say how they quantised.
const MODELOPT: &str = "hf_quant_config.json";

/// Opens the checkpoint in `dir`.
pub(crate) fn open(dir: PathBuf) -> Result<Checkpoint, ConvertError> {
    let config_path = dir.join(folder::CONFIG);
    let config_json = folder::read_optional(&config_path)?.ok_or_else(|| ConvertError::NotACheckpoint {
        path: dir.clone(),
        why: "no config.json in this folder".into(),
    })?;
    let json = config::parse(&config_path, &config_json)?;
    let config = config::read(&config_path, &json)?;
    let quantisation = quantisation::read(&config_path, &json)?;
    let modelopt = dir.join(MODELOPT);
    if quantisation == Quantisation::None && modelopt.is_file() {
        let what = quantisation::refusal(MODELOPT, "modelopt");
        return Err(ConvertError::Unsupported { path: modelopt, what });
    }
    let listed = folder::weight_files(&dir)?;
    let mut files = Vec::with_capacity(listed.names.len());
    let mut headers = Vec::new();
    for (file_idx, name) in listed.names.iter().enumerate() {
        let (file, tensors) = safetensors::open(&dir.join(name))?;
        files.push(file);
        headers.extend(tensors.into_iter().map(|t| (file_idx, t)));
    }
    check_index(&files, &listed, &headers)?;
    let weights = Folder::new(&config, &quantisation, &files, &headers)?;
    let (kind, found) = (weights.kind(), weights.assemble(&dir, &headers)?);
    Ok(Checkpoint {
        name: folder::model_name(&dir),
        kind,
        sidecars: folder::sidecars(&dir)?,
        notes: Vec::new(),
        path: dir,
        config,
        files,
        found,
    })
}

/// Every tensor that the index names must be in the file that it names.
fn check_index(
    files: &[SourceFile],
    listed: &folder::WeightFiles,
    headers: &[(usize, HeaderTensor)],
) -> Result<(), ConvertError> {
    let places: HashMap<&str, usize> = headers.iter().map(|(file, t)| (t.name.as_str(), *file)).collect();
    let mut wrong: Vec<(&String, &String)> = listed
        .index
        .iter()
        .filter(|(tensor, name)| places.get(tensor.as_str()).is_none_or(|file| listed.names[*file] != **name))
        .collect();
    wrong.sort();
    let Some((tensor, name)) = wrong.first() else { return Ok(()) };
    let file = listed.names.iter().position(|n| n == *name).expect("all files of the index are listed");
    let others = if wrong.len() > 1 { format!(", like {} others", wrong.len() - 1) } else { String::new() };
    Err(ConvertError::Tensor {
        path: files[file].path.clone(),
        tensor: (*tensor).clone(),
        why: format!("the index says that it is in this file, but it is not{others}"),
    })
}

/// A folder's tensors on their way to their roles.
struct Folder<'a> {
    config: &'a ModelConfig,
    quantisation: &'a Quantisation,
    files: &'a [SourceFile],
    /// File and header of each tensor, by name.
    tensors: HashMap<&'a str, (usize, &'a HeaderTensor)>,
    /// Norms are stored as the distance from 1 where the architecture has that.
    is_raw: bool,
}

impl<'a> Folder<'a> {
    fn new(
        config: &'a ModelConfig,
        quantisation: &'a Quantisation,
        files: &'a [SourceFile],
        headers: &'a [(usize, HeaderTensor)],
    ) -> Result<Self, ConvertError> {
        let mut tensors = HashMap::with_capacity(headers.len());
        for (file, tensor) in headers {
            if let Some((other, _)) = tensors.insert(tensor.name.as_str(), (*file, tensor)) {
                let path = files[*file].path.clone();
                let why = format!("is also in {}", files[other].path.display());
                return Err(ConvertError::Tensor { path, tensor: tensor.name.clone(), why });
            }
        }
        let mut folder = Self { config, quantisation, files, tensors, is_raw: true };
        folder.is_raw = folder.find_out_whether_raw(headers)?;
        Ok(folder)
    }

    fn wrong(&self, file: usize, tensor: &HeaderTensor, why: String) -> ConvertError {
        ConvertError::Tensor { path: self.files[file].path.clone(), tensor: tensor.name.clone(), why }
    }

    fn kind(&self) -> SourceKind {
        match self.quantisation {
            Quantisation::Fp8 => SourceKind::Fp8,
            Quantisation::None if self.is_raw && !self.has_mlx_names() => SourceKind::Safetensors,
            _ => SourceKind::Mlx,
        }
    }

    fn has_mlx_names(&self) -> bool {
        self.tensors.keys().any(|name| names::is_mlx(name))
    }

    /// Conversions for MLX swap the last two axes of convolutions and add 1 to norms, both or neither. Only the
    /// axes show it.
    fn find_out_whether_raw(&self, headers: &[(usize, HeaderTensor)]) -> Result<bool, ConvertError> {
        let mut seen: Option<(bool, &str)> = None;
        for (file, tensor) in headers {
            let target = names::classify(self.config.architecture, &tensor.name);
            if !matches!(target, Some(Target::Dense { role: Role::LinearConv, .. })) {
                continue;
            }
            let is_raw = match *tensor.shape {
                [_, 1, taps] if taps > 1 => true,
                [_, taps, 1] if taps > 1 => false,
                _ => continue,
            };
            if let Some((_, other)) = seen.filter(|(other, _)| *other != is_raw) {
                let why = format!(
                    "has shape {:?}, but {other} has its axes the other way round: whether norms are shifted is \
                     not known; one of the two was converted wrongly",
                    tensor.shape
                );
                return Err(self.wrong(*file, tensor, why));
            }
            seen = Some((is_raw, &tensor.name));
        }
        if let Some((is_raw, _)) = seen {
            return Ok(is_raw);
        }
        let is_shifted = names::is_zero_centred(self.config.architecture, Role::FinalNorm);
        if is_shifted && (matches!(self.quantisation, Quantisation::Mlx(_)) || self.has_mlx_names()) {
            let what = "no convolution shows whether the norms of this MLX conversion are shifted; use the original \
                        checkpoint";
            return Err(ConvertError::Unsupported { path: self.files[0].path.clone(), what: what.into() });
        }
        Ok(true)
    }

    /// Gives every tensor its role.
    fn assemble(&self, dir: &Path, headers: &[(usize, HeaderTensor)]) -> Result<Assembled, ConvertError> {
        let mut assembly = Assembly::new(dir, self.config, self.files);
        for (file, tensor) in headers {
            if self.owner(&tensor.name).is_some() {
                continue; // Read with the matrix that it belongs to.
            }
            let Some(target) = names::classify(self.config.architecture, &tensor.name) else {
                assembly.unknown(tensor.name.clone());
                continue;
            };
            if assembly.is_skipped(target) {
                continue;
            }
            let Some(shape) = assembly.shape(target) else {
                assembly.not_called_for(&tensor.name);
                continue;
            };
            let adjust = match target {
                Target::Dense { role, .. } if self.is_raw => zero_centred(self.config, role),
                _ => Adjust::None,
            };
            let cols = *shape.last().expect("a shape has columns") as u64;
            let (tensor, shape) = self.stored(*file, tensor, cols)?;
            assembly.put(target, &shape, tensor, adjust)?;
        }
        assembly.finish()
    }

    /// The tensor that `name` holds scales or biases of, if there is such a one.
    fn owner(&self, name: &str) -> Option<&'a HeaderTensor> {
        let fp8 = name.strip_suffix("_scale_inv").map(str::to_owned);
        let mlx =
            || Some(format!("{}.weight", name.strip_suffix(".scales").or(name.strip_suffix(".biases"))?));
        self.tensors.get(fp8.or_else(mlx)?.as_str()).map(|(_, tensor)| *tensor)
    }

    /// How a matrix with rows of `cols` numbers is stored, and its shape in numbers.
    fn stored(
        &self,
        file: usize,
        tensor: &HeaderTensor,
        cols: u64,
    ) -> Result<(Tensor, Vec<u64>), ConvertError> {
        let module = tensor.name.strip_suffix(".weight").unwrap_or(&tensor.name);
        let find = |name: String| self.tensors.get(name.as_str()).copied();
        let [mlx_scales, biases] = ["scales", "biases"].map(|plane| find(format!("{module}.{plane}")));
        let fp8_scales = find(format!("{}_scale_inv", tensor.name));
        let scales = mlx_scales.or(fp8_scales);
        let header = |found: Option<(usize, &'a HeaderTensor)>| found.map(|(_, tensor)| tensor);
        let (format, shape) = match (tensor.dtype.as_str(), self.quantisation) {
            ("U32", Quantisation::Mlx(settings)) => {
                let companions = Companions { scales: header(mlx_scales), biases: header(biases) };
                settings.format(module, tensor, companions, cols)
            }
            ("F8_E4M3", Quantisation::Fp8) => {
                fp8_format(tensor, header(fp8_scales)).map(|format| (format, tensor.shape.clone()))
            }
            (dtype, _) => {
                self.plain(module, dtype, scales.or(biases)).map(|format| (format, tensor.shape.clone()))
            }
        }
        .map_err(|why| self.wrong(file, tensor, why))?;
        let place = |(file, tensor): (usize, &HeaderTensor)| Place { file, offset: tensor.offset };
        let codes = place((file, tensor));
        let planes = [codes, scales.map_or(codes, place), biases.map_or(codes, place)];
        Ok((Tensor { name: tensor.name.clone(), format, planes }, shape))
    }

    /// The format of a tensor that is not quantised; `companion` would be one of a tensor that is.
    fn plain(
        &self,
        module: &str,
        dtype: &str,
        companion: Option<(usize, &HeaderTensor)>,
    ) -> Result<Format, String> {
        let format = match dtype {
            "BF16" => Format::Bf16,
            "F16" => Format::F16,
            "F32" => Format::F32,
            "F8_E4M3" | "U32" => {
                return Err(format!("has dtype {dtype}, but config.json does not say how it is quantised"));
            }
            other => return Err(format!("has dtype {other}, only BF16, F16 and F32 are supported")),
        };
        if let Some((_, companion)) = companion {
            return Err(format!("has dtype {dtype}, but there is {} beside it", companion.name));
        }
        match self.quantisation {
            Quantisation::Mlx(settings) if settings.is_named(module) => {
                Err(format!("has dtype {dtype}, but config.json says that it is quantised"))
            }
            _ => Ok(format),
        }
    }
}

fn zero_centred(config: &ModelConfig, role: Role) -> Adjust {
    if names::is_zero_centred(config.architecture, role) { Adjust::AddOne } else { Adjust::None }
}
