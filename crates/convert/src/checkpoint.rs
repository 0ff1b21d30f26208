//! An opened checkpoint: every weight that the model needs, found, checked and given a role.
//!
//! Owns the open files and the map from roles to rows of tensors. Reads headers only; [`crate::pack()`] reads
//! weights through it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use quant::Format;
use store::{ExpertLayer, ExpertPart, LayerKind, ModelConfig, Role};
use xxhash_rust::xxh3::Xxh3;

use crate::error::NAMES_LISTED_MAX;
use crate::folder;
use crate::names::{self, Grouped, Skip, Stack, Target};
use crate::safetensors::{HeaderTensor, Shard};
use crate::{ConvertError, config};

/// A checkpoint in Hugging Face's safetensors layout, ready to be packed.
#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    name: String,
    config: ModelConfig,
    config_json: Vec<u8>,
    shards: Vec<Shard>,
    tensors: Vec<Tensor>,
    dense: Vec<DenseSource>,
    experts: Vec<Vec<[ExpertSource; 3]>>, // [n_layer, n_expert]
    skipped: BTreeMap<Skip, usize>,
}

/// A tensor that is used.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shard: usize,
    /// One of the plain floats.
    pub(crate) format: Format,
    pub(crate) offset: u64,
}

/// Where the rows of a dense matrix come from.
#[derive(Debug)]
pub(crate) struct DenseSource {
    pub(crate) role: Role,
    pub(crate) layer: Option<usize>,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Index into the tensors.
    pub(crate) tensor: usize,
    /// Rows of the tensor that make up the matrix, in its order.
    pub(crate) pieces: Vec<Range<usize>>,
}

/// Where one matrix of an expert comes from; its shape is [`ExpertLayer::shape`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpertSource {
    pub(crate) tensor: usize,
    /// First of its rows, the tensor seen as a matrix.
    pub(crate) first_row: usize,
}

impl Checkpoint {
    /// Opens the checkpoint in folder `path` (or in the folder of the weight file `path`, or in a hub cache).
    ///
    /// # Errors
    /// Anything that would keep it from being packed, found before a weight is read: files missing, damaged or
    /// truncated; an architecture, switch or dtype that is not supported; tensors missing, unknown or misshapen.
    pub fn open(path: &Path) -> Result<Self, ConvertError> {
        let dir = folder::resolve(path)?;
        let config_path = dir.join(folder::CONFIG);
        let config_json = folder::read_optional(&config_path)?.ok_or_else(|| {
            ConvertError::NotACheckpoint { path: dir.clone(), why: "no config.json in this folder".into() }
        })?;
        let config = config::read(&config_path, &config_json)?;
        let files = folder::weight_files(&dir)?;
        let mut shards = Vec::with_capacity(files.names.len());
        let mut headers = Vec::new();
        for (shard_idx, name) in files.names.iter().enumerate() {
            let (shard, tensors) = Shard::open(&dir.join(name))?;
            shards.push(shard);
            headers.extend(tensors.into_iter().map(|t| (shard_idx, t)));
        }
        check_index(&shards, &files, &headers)?;
        let found = Assembly::new(&dir, &config, &shards).assemble(headers)?;
        let Found { tensors, dense, experts, skipped } = found;
        Ok(Self {
            name: folder::model_name(&dir),
            dir,
            config,
            config_json,
            shards,
            tensors,
            dense,
            experts,
            skipped,
        })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the model is called: the folder's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Shapes.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Bytes of all weights that are used.
    pub fn weight_bytes(&self) -> u64 {
        let dense: u64 = self.dense.iter().map(|d| self.dense_bytes(d)).sum();
        let experts = self.experts.iter().flatten();
        dense + experts.map(|e| self.expert_bytes(e)).sum::<u64>()
    }

    /// What was recognised and left out, as "KIND: N tensors".
    pub fn skipped(&self) -> Vec<String> {
        self.skipped.iter().map(|(kind, n)| format!("{}: {n} tensors", kind.name())).collect()
    }

    /// Files to keep beside the weights: name and contents.
    pub(crate) fn sidecars(&self) -> Result<Vec<(String, Vec<u8>)>, ConvertError> {
        folder::sidecars(&self.dir)
    }

    /// Hash of configuration, headers, sizes and times of change; a different source has a different one.
    pub(crate) fn fingerprint(&self) -> Xxh3 {
        let mut hash = Xxh3::new();
        hash.update(&self.config_json);
        for shard in &self.shards {
            hash.update(shard.path.file_name().map_or(&[], |n| n.as_encoded_bytes()));
            hash.update(&shard.bytes.to_le_bytes());
            hash.update(&shard.modified_ns.to_le_bytes());
            hash.update(&shard.header_hash.to_le_bytes());
        }
        hash
    }

    pub(crate) fn dense(&self) -> &[DenseSource] {
        &self.dense
    }

    /// Gate, up and down of an expert.
    pub(crate) fn expert(&self, layer: usize, expert: usize) -> &[ExpertSource; 3] {
        &self.experts[layer][expert]
    }

    pub(crate) fn tensor(&self, idx: usize) -> &Tensor {
        &self.tensors[idx]
    }

    /// The file that tensor `idx` is in.
    pub(crate) fn path_of(&self, idx: usize) -> &Path {
        &self.shards[self.tensors[idx].shard].path
    }

    pub(crate) fn dense_bytes(&self, source: &DenseSource) -> u64 {
        source.rows as u64 * self.tensors[source.tensor].format.row_bytes(source.cols) as u64
    }

    pub(crate) fn expert_bytes(&self, parts: &[ExpertSource; 3]) -> u64 {
        let bytes = |i: usize| {
            let (rows, cols) = ExpertLayer::shape(&self.config, ExpertPart::ALL[i]);
            rows as u64 * self.tensors[parts[i].tensor].format.row_bytes(cols) as u64
        };
        (0..3).map(bytes).sum()
    }

    /// Reads rows of tensor `idx`, seen as a matrix of rows of `cols`, as they are in the file.
    pub(crate) fn read_rows(
        &self,
        idx: usize,
        cols: usize,
        rows: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<(), ConvertError> {
        let tensor = &self.tensors[idx];
        let row_bytes = tensor.format.row_bytes(cols);
        let start = out.len();
        out.resize(start + rows.len() * row_bytes, 0);
        let offset = tensor.offset + (rows.start * row_bytes) as u64;
        self.shards[tensor.shard].read(&tensor.name, offset, &mut out[start..])
    }
}

/// Every tensor that the index names must be in the file that it names.
fn check_index(
    shards: &[Shard],
    files: &folder::WeightFiles,
    headers: &[(usize, HeaderTensor)],
) -> Result<(), ConvertError> {
    let places: HashMap<&str, usize> = headers.iter().map(|(shard, t)| (t.name.as_str(), *shard)).collect();
    let mut wrong: Vec<(&String, &String)> = files
        .index
        .iter()
        .filter(|(tensor, file)| {
            places.get(tensor.as_str()).is_none_or(|shard| files.names[*shard] != **file)
        })
        .collect();
    wrong.sort();
    let Some((tensor, file)) = wrong.first() else { return Ok(()) };
    let shard = files.names.iter().position(|n| n == *file).expect("all files of the index are listed");
    let others = if wrong.len() > 1 { format!(", like {} others", wrong.len() - 1) } else { String::new() };
    Err(ConvertError::Tensor {
        path: shards[shard].path.clone(),
        tensor: (*tensor).clone(),
        why: format!("the index says that it is in this file, but it is not{others}"),
    })
}

/// A dense matrix that the configuration calls for.
type Needed = (Role, Option<usize>);

/// What [`Assembly`] makes.
struct Found {
    tensors: Vec<Tensor>,
    dense: Vec<DenseSource>,
    experts: Vec<Vec<[ExpertSource; 3]>>,
    skipped: BTreeMap<Skip, usize>,
}

/// Tensors being sorted into roles.
struct Assembly<'a> {
    dir: &'a Path,
    config: &'a ModelConfig,
    shards: &'a [Shard],
    tensors: Vec<Tensor>,
    /// Shapes that the configuration calls for, in store order, and where each comes from.
    needed: Vec<(Needed, (usize, usize), Option<DenseSource>)>,
    place: HashMap<Needed, usize>,
    experts: Vec<Vec<[Option<ExpertSource>; 3]>>,
    skipped: BTreeMap<Skip, usize>,
    unknown: Vec<String>,
}

impl<'a> Assembly<'a> {
    fn new(dir: &'a Path, config: &'a ModelConfig, shards: &'a [Shard]) -> Self {
        let needed: Vec<_> =
            config.dense_shapes().into_iter().map(|d| ((d.role, d.layer), (d.rows, d.cols), None)).collect();
        let place = needed.iter().enumerate().map(|(i, (needed, ..))| (*needed, i)).collect();
        Self {
            dir,
            config,
            shards,
            tensors: Vec::new(),
            needed,
            place,
            experts: vec![Vec::new(); config.n_layer()],
            skipped: BTreeMap::new(),
            unknown: Vec::new(),
        }
    }

    fn assemble(mut self, headers: Vec<(usize, HeaderTensor)>) -> Result<Found, ConvertError> {
        let mut seen = HashMap::new();
        for (shard, tensor) in &headers {
            if let Some(other) = seen.insert(&tensor.name, *shard) {
                let why = format!("is also in {}", self.shards[other].path.display());
                return Err(self.wrong(*shard, tensor, why));
            }
            if names::is_mlx(&tensor.name) {
                return Err(self.mlx(*shard, tensor));
            }
        }
        for (shard, tensor) in headers {
            self.sort(shard, tensor)?;
        }
        self.finish()
    }

    /// Gives one tensor its role.
    fn sort(&mut self, shard: usize, tensor: HeaderTensor) -> Result<(), ConvertError> {
        let Some(target) = names::classify(self.config.architecture, &tensor.name) else {
            self.unknown.push(tensor.name);
            return Ok(());
        };
        match target {
            Target::Skip(kind) => *self.skipped.entry(kind).or_default() += 1,
            Target::Dense { role: Role::LmHead, .. } if self.config.tie_word_embeddings => {
                *self.skipped.entry(Skip::TiedHead).or_default() += 1;
            }
            Target::Dense { role, layer } => self.put_dense(shard, tensor, role, layer)?,
            Target::Grouped { group, layer } => self.put_grouped(shard, tensor, group, layer)?,
            Target::Expert { part, layer, expert } => {
                let (rows, cols) = ExpertLayer::shape(self.config, part);
                if self.is_outside(layer, expert) {
                    self.not_called_for(&tensor);
                } else {
                    let tensor = self.take(shard, tensor, &[rows, cols])?;
                    self.put_expert(layer, expert, part, ExpertSource { tensor, first_row: 0 })?;
                }
            }
            Target::Experts { stack, layer } => self.put_experts(shard, tensor, stack, layer)?,
        }
        Ok(())
    }

    fn put_dense(
        &mut self,
        shard: usize,
        tensor: HeaderTensor,
        role: Role,
        layer: Option<usize>,
    ) -> Result<(), ConvertError> {
        let Some(&at) = self.place.get(&(role, layer)) else {
            self.not_called_for(&tensor);
            return Ok(());
        };
        let (rows, cols) = self.needed[at].1;
        if role == Role::LinearConv && rows > 1 && cols > 1 && tensor.shape == [rows as u64, cols as u64, 1] {
            return Err(self.mlx(shard, &tensor));
        }
        let idx = match role {
            Role::LinearConv => self.take(shard, tensor, &[rows, 1, cols])?,
            _ if role.is_f32() => self.take(shard, tensor, &[cols])?,
            _ => self.take(shard, tensor, &[rows, cols])?,
        };
        self.fill(at, idx, std::iter::once(0..rows).collect())
    }

    /// Qwen3-Next's fused projections: picks the rows of each role out of every key head's group.
    fn put_grouped(
        &mut self,
        shard: usize,
        tensor: HeaderTensor,
        group: Grouped,
        layer: usize,
    ) -> Result<(), ConvertError> {
        let is_linear = self.config.layers.get(layer) == Some(&LayerKind::LinearAttention);
        let Some(linear) = self.config.linear.filter(|_| is_linear) else {
            self.not_called_for(&tensor);
            return Ok(());
        };
        let by_role = group.rows(&linear);
        let n_row = by_role.iter().flat_map(|(_, pieces)| pieces).map(Range::len).sum();
        let idx = self.take(shard, tensor, &[n_row, self.config.d_model])?;
        for (role, pieces) in by_role {
            let at = self.place[&(role, Some(layer))];
            self.fill(at, idx, pieces)?;
        }
        Ok(())
    }

    fn put_experts(
        &mut self,
        shard: usize,
        tensor: HeaderTensor,
        stack: Stack,
        layer: usize,
    ) -> Result<(), ConvertError> {
        if self.is_outside(layer, 0) {
            self.not_called_for(&tensor);
            return Ok(());
        }
        let parts: &[ExpertPart] = match stack {
            Stack::GateUp => &[ExpertPart::Gate, ExpertPart::Up],
            Stack::Down => &[ExpertPart::Down],
        };
        let (part_rows, cols) = ExpertLayer::shape(self.config, parts[0]);
        let (n_expert, rows) = (self.config.n_expert, parts.len() * part_rows);
        let tensor = self.take(shard, tensor, &[n_expert, rows, cols])?;
        for expert in 0..n_expert {
            for (i, &part) in parts.iter().enumerate() {
                let first_row = expert * rows + i * part_rows;
                self.put_expert(layer, expert, part, ExpertSource { tensor, first_row })?;
            }
        }
        Ok(())
    }

    fn put_expert(
        &mut self,
        layer: usize,
        expert: usize,
        part: ExpertPart,
        source: ExpertSource,
    ) -> Result<(), ConvertError> {
        let experts = &mut self.experts[layer];
        // Made on first sight: a hostile configuration costs nothing until tensors back it.
        experts.resize(self.config.n_expert, [None; 3]);
        match experts[expert][part as usize].replace(source) {
            None => Ok(()),
            Some(other) => Err(self.given_twice(source.tensor, other.tensor)),
        }
    }

    fn fill(&mut self, at: usize, tensor: usize, pieces: Vec<Range<usize>>) -> Result<(), ConvertError> {
        let ((role, layer), (rows, cols), slot) = &mut self.needed[at];
        let source = DenseSource { role: *role, layer: *layer, rows: *rows, cols: *cols, tensor, pieces };
        match slot.replace(source) {
            None => Ok(()),
            Some(other) => Err(self.given_twice(tensor, other.tensor)),
        }
    }

    /// Checks shape and dtype of a tensor that is used, and keeps it.
    fn take(&mut self, shard: usize, tensor: HeaderTensor, shape: &[usize]) -> Result<usize, ConvertError> {
        if !tensor.shape.iter().copied().eq(shape.iter().map(|&d| d as u64)) {
            let why = format!("has shape {:?}, the config calls for {shape:?}", tensor.shape);
            return Err(self.wrong(shard, &tensor, why));
        }
        let format = match tensor.dtype.as_str() {
            "BF16" => Format::Bf16,
            "F16" => Format::F16,
            "F32" => Format::F32,
            other => {
                let why = format!("has dtype {other}, only BF16, F16 and F32 are supported");
                return Err(self.wrong(shard, &tensor, why));
            }
        };
        self.tensors.push(Tensor { name: tensor.name, shard, format, offset: tensor.offset });
        Ok(self.tensors.len() - 1)
    }

    fn finish(self) -> Result<Found, ConvertError> {
        if !self.unknown.is_empty() {
            let count = self.unknown.len();
            let first = self.unknown.into_iter().take(NAMES_LISTED_MAX).collect();
            let architecture = self.config.architecture.name();
            return Err(ConvertError::UnknownTensors {
                path: self.dir.to_owned(),
                architecture,
                count,
                first,
            });
        }
        let mut missing = Vec::new();
        let mut dense = Vec::with_capacity(self.needed.len());
        for ((role, layer), _, source) in self.needed {
            match source {
                Some(source) => dense.push(source),
                None => missing.push(role_in_layer(role, layer)),
            }
        }
        let mut experts = Vec::with_capacity(self.experts.len());
        for (layer, found) in self.experts.into_iter().enumerate() {
            if found.is_empty() {
                missing.push(format!("all experts of layer {layer}"));
            }
            let complete = |(expert, parts): (usize, [Option<ExpertSource>; 3])| match parts {
                [Some(gate), Some(up), Some(down)] => Some([gate, up, down]),
                _ => {
                    missing.push(format!("part of expert {expert} of layer {layer}"));
                    None
                }
            };
            experts.push(found.into_iter().enumerate().filter_map(complete).collect());
        }
        if missing.is_empty() {
            return Ok(Found { tensors: self.tensors, dense, experts, skipped: self.skipped });
        }
        let count = missing.len();
        missing.truncate(NAMES_LISTED_MAX);
        Err(ConvertError::MissingTensors { path: self.dir.to_owned(), count, first: missing })
    }

    fn is_outside(&self, layer: usize, expert: usize) -> bool {
        layer >= self.config.n_layer() || expert >= self.config.n_expert
    }

    fn not_called_for(&mut self, tensor: &HeaderTensor) {
        self.unknown.push(format!("{} (the config has no such layer, expert or part)", tensor.name));
    }

    fn wrong(&self, shard: usize, tensor: &HeaderTensor, why: String) -> ConvertError {
        ConvertError::Tensor { path: self.shards[shard].path.clone(), tensor: tensor.name.clone(), why }
    }

    fn given_twice(&self, tensor: usize, other: usize) -> ConvertError {
        let [tensor, other] = [tensor, other].map(|idx| &self.tensors[idx]);
        ConvertError::Tensor {
            path: self.shards[tensor.shard].path.clone(),
            tensor: tensor.name.clone(),
            why: format!("holds the same weights as tensor {}", other.name),
        }
    }

    fn mlx(&self, shard: usize, tensor: &HeaderTensor) -> ConvertError {
        ConvertError::Unsupported {
            path: self.shards[shard].path.clone(),
            what: format!(
                "this checkpoint was converted for MLX (see tensor {}): its norms are shifted already, which is not \
                 supported yet; use the original checkpoint",
                tensor.name
            ),
        }
    }
}

/// "attn_q of layer 3", "embed".
pub(crate) fn role_in_layer(role: Role, layer: Option<usize>) -> String {
    layer.map_or_else(|| role.to_string(), |layer| format!("{role} of layer {layer}"))
}
