//! Sorting the tensors of a checkpoint by role: what the configuration calls for, where each part of it comes from,
//! and what is missing, unknown, doubled or misshapen.
//!
//! Knows roles, layers and experts. What tensors are called and how files store them is dealt with before.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use quant::Format;
use store::{ExpertLayer, ExpertPart, LayerKind, ModelConfig, Role};

use crate::ConvertError;
use crate::error::NAMES_LISTED_MAX;
use crate::names::{Grouped, Skip, Target};
use crate::source::{Place, SourceFile};

/// A tensor that is used: a matrix, or several of them one after the other.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) format: Format,
    /// First bytes of codes, scales and biases; those that the format lacks are not looked at.
    pub(crate) planes: [Place; 3],
}

/// What is done to the numbers of a dense tensor to get those that the store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adjust {
    /// Nothing.
    None,
    /// Norm weights stored as the distance from 1.
    AddOne,
    /// `-exp(A_log)`, the store has `A_log`.
    NegatedExp,
    /// A number for each value head, the first head of each of so many key heads before all second ones.
    Tiled(usize),
    /// Both.
    TiledNegatedExp(usize),
}

impl Adjust {
    pub(crate) fn apply(self, row: &mut [f32]) {
        match self {
            Adjust::None => {}
            Adjust::AddOne => row.iter_mut().for_each(|w| *w += 1.0),
            // A number that is no negated exponential becomes NaN or infinite, which encoding refuses.
            Adjust::NegatedExp => row.iter_mut().for_each(|w| *w = (-*w).ln()),
            Adjust::Tiled(n_head_k) => {
                let tiled = row.to_vec();
                let n_value = row.len() / n_head_k;
                for (head, w) in row.iter_mut().enumerate() {
                    *w = tiled[head % n_value * n_head_k + head / n_value];
                }
            }
            Adjust::TiledNegatedExp(n_head_k) => {
                Adjust::Tiled(n_head_k).apply(row);
                Adjust::NegatedExp.apply(row);
            }
        }
    }
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
    pub(crate) adjust: Adjust,
}

/// Where one matrix of an expert comes from; its shape is [`ExpertLayer::shape`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpertSource {
    pub(crate) tensor: usize,
    /// First of its rows, the tensor seen as a matrix.
    pub(crate) first_row: usize,
}

impl ExpertSource {
    /// Its rows of the tensor, of which there are `n_row`.
    pub(crate) fn rows(self, n_row: usize) -> Range<usize> {
        self.first_row..self.first_row + n_row
    }
}

/// Everything the configuration calls for, found.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) tensors: Vec<Tensor>,
    /// In store order.
    pub(crate) dense: Vec<DenseSource>,
    /// `[n_layer][n_expert]` gate, up and down.
    pub(crate) experts: Vec<Vec<[ExpertSource; 3]>>,
    pub(crate) skipped: BTreeMap<Skip, usize>,
}

/// A dense matrix that the configuration calls for.
type Needed = (Role, Option<usize>);

/// Tensors being sorted into roles.
pub(crate) struct Assembly<'a> {
    /// Folder or file, for messages.
    path: &'a Path,
    config: &'a ModelConfig,
    files: &'a [SourceFile],
    tensors: Vec<Tensor>,
    /// Shapes that the configuration calls for, in store order, and where each comes from.
    needed: Vec<(Needed, (usize, usize), Option<DenseSource>)>,
    place: HashMap<Needed, usize>,
    experts: Vec<Vec<[Option<ExpertSource>; 3]>>,
    skipped: BTreeMap<Skip, usize>,
    unknown: Vec<String>,
}

impl<'a> Assembly<'a> {
    pub(crate) fn new(path: &'a Path, config: &'a ModelConfig, files: &'a [SourceFile]) -> Self {
        let needed: Vec<_> =
            config.dense_shapes().into_iter().map(|d| ((d.role, d.layer), (d.rows, d.cols), None)).collect();
        let place = needed.iter().enumerate().map(|(i, (needed, ..))| (*needed, i)).collect();
        Self {
            path,
            config,
            files,
            tensors: Vec::new(),
            needed,
            place,
            experts: vec![Vec::new(); config.n_layer()],
            skipped: BTreeMap::new(),
            unknown: Vec::new(),
        }
    }

    /// The shape that `target` calls for, outermost axis first, rows and columns last; `None` if the configuration
    /// has no such layer, expert or part, or the tensor is one to leave out.
    pub(crate) fn shape(&self, target: Target) -> Option<Vec<usize>> {
        match target {
            Target::Skip(_) => None,
            Target::Dense { role, layer } => {
                let (rows, cols) = self.needed[*self.place.get(&(role, layer))?].1;
                Some(vec![rows, cols])
            }
            Target::Grouped { group, layer } => {
                let is_linear = self.config.layers.get(layer) == Some(&LayerKind::LinearAttention);
                let linear = self.config.linear.filter(|_| is_linear)?;
                let rows = group.rows(&linear).iter().flat_map(|(_, pieces)| pieces).map(Range::len).sum();
                Some(vec![rows, self.config.d_model])
            }
            Target::Expert { part, layer, expert } => {
                let (rows, cols) = ExpertLayer::shape(self.config, part);
                self.is_inside(layer, expert).then(|| vec![rows, cols])
            }
            Target::Experts { parts, layer } => {
                let (rows, cols) = ExpertLayer::shape(self.config, parts[0]);
                self.is_inside(layer, 0).then(|| vec![self.config.n_expert, parts.len() * rows, cols])
            }
        }
    }

    fn is_inside(&self, layer: usize, expert: usize) -> bool {
        layer < self.config.n_layer() && expert < self.config.n_expert
    }

    /// Is this one left out? Counts it if so.
    pub(crate) fn is_skipped(&mut self, target: Target) -> bool {
        let skip = match target {
            Target::Skip(skip) => skip,
            Target::Dense { role: Role::LmHead, .. } if self.config.tie_word_embeddings => Skip::TiedHead,
            _ => return false,
        };
        *self.skipped.entry(skip).or_default() += 1;
        true
    }

    /// Remembers a tensor whose name means nothing, to be refused with all others of the kind.
    pub(crate) fn unknown(&mut self, name: String) {
        self.unknown.push(name);
    }

    /// Remembers a tensor that the configuration has no room for, to be refused with the unknown ones.
    pub(crate) fn not_called_for(&mut self, name: &str) {
        self.unknown(format!("{name} (the config has no such layer, expert or part)"));
    }

    /// Gives `tensor`, of `shape`, the role `target`. Axes of length 1 do not matter: they move no byte.
    ///
    /// # Errors
    /// Another shape is called for, the format cannot have it, or another tensor has the role already.
    pub(crate) fn put(
        &mut self,
        target: Target,
        shape: &[u64],
        tensor: Tensor,
        adjust: Adjust,
    ) -> Result<(), ConvertError> {
        if self.is_skipped(target) {
            return Ok(());
        }
        let Some(needed) = self.shape(target) else {
            self.not_called_for(&tensor.name);
            return Ok(());
        };
        let (tensor, rows) = self.keep(tensor, shape, &needed)?;
        match target {
            Target::Skip(_) => unreachable!("has no shape"),
            Target::Dense { role, layer } => {
                self.fill((role, layer), tensor, std::iter::once(0..rows).collect(), adjust)
            }
            Target::Grouped { group, layer } => self.put_grouped(tensor, group, layer),
            Target::Expert { part, layer, expert } => {
                self.put_expert(layer, expert, part, ExpertSource { tensor, first_row: 0 })
            }
            Target::Experts { parts, layer } => self.put_experts(tensor, parts, layer),
        }
    }

    /// Gives rows of `tensor`, of `shape`, to roles of a layer: for each the rows that make it up, in its order.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub(crate) fn put_rows(
        &mut self,
        layer: usize,
        parts: Vec<(Role, Vec<Range<usize>>)>,
        shape: &[u64],
        tensor: Tensor,
    ) -> Result<(), ConvertError> {
        let Some(&at) = self.place.get(&(parts[0].0, Some(layer))) else {
            self.unknown(format!("{} (the config has no such part of this layer)", tensor.name));
            return Ok(());
        };
        let rows = parts.iter().flat_map(|(_, pieces)| pieces).map(Range::len).sum();
        let cols = self.needed[at].1.1;
        let (tensor, _) = self.keep(tensor, shape, &[rows, cols])?;
        for (role, pieces) in parts {
            self.fill((role, Some(layer)), tensor, pieces, Adjust::None)?;
        }
        Ok(())
    }

    /// Checks `shape` against the one needed; the tensor's number, and its rows seen as a matrix.
    fn keep(
        &mut self,
        tensor: Tensor,
        shape: &[u64],
        needed: &[usize],
    ) -> Result<(usize, usize), ConvertError> {
        let wide = |shape: &[u64]| shape.iter().copied().filter(|&d| d != 1).collect::<Vec<_>>();
        if wide(shape) != wide(&needed.iter().map(|&d| d as u64).collect::<Vec<_>>()) {
            let why = format!("has shape {shape:?}, the config calls for {needed:?}");
            return Err(self.wrong(&tensor, why));
        }
        let [stack @ .., rows, cols] = needed else { unreachable!("a shape has rows and columns") };
        let rows = stack.iter().product::<usize>() * rows;
        tensor.format.check(rows, *cols).map_err(|e| self.wrong(&tensor, e.to_string()))?;
        self.tensors.push(tensor);
        Ok((self.tensors.len() - 1, rows))
    }

    /// Qwen3-Next's fused projections: picks the rows of each role out of every key head's group.
    fn put_grouped(&mut self, tensor: usize, group: Grouped, layer: usize) -> Result<(), ConvertError> {
        let linear = self.config.linear.expect("has a shape");
        for (role, pieces) in group.rows(&linear) {
            self.fill((role, Some(layer)), tensor, pieces, Adjust::None)?;
        }
        Ok(())
    }

    fn put_experts(&mut self, tensor: usize, parts: &[ExpertPart], layer: usize) -> Result<(), ConvertError> {
        let (rows, _) = ExpertLayer::shape(self.config, parts[0]);
        for expert in 0..self.config.n_expert {
            for (i, &part) in parts.iter().enumerate() {
                let first_row = (expert * parts.len() + i) * rows;
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

    fn fill(
        &mut self,
        needed: Needed,
        tensor: usize,
        pieces: Vec<Range<usize>>,
        adjust: Adjust,
    ) -> Result<(), ConvertError> {
        let ((role, layer), (rows, cols), slot) = &mut self.needed[self.place[&needed]];
        let source =
            DenseSource { role: *role, layer: *layer, rows: *rows, cols: *cols, tensor, pieces, adjust };
        match slot.replace(source) {
            None => Ok(()),
            Some(other) => Err(self.given_twice(tensor, other.tensor)),
        }
    }

    /// All that was put, if it is all that the configuration calls for.
    ///
    /// # Errors
    /// Tensors whose names are unknown, and what no tensor holds.
    pub(crate) fn finish(self) -> Result<Assembled, ConvertError> {
        if !self.unknown.is_empty() {
            let count = self.unknown.len();
            let first = self.unknown.into_iter().take(NAMES_LISTED_MAX).collect();
            let architecture = self.config.architecture.name();
            return Err(ConvertError::UnknownTensors {
                path: self.path.to_owned(),
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
            return Ok(Assembled { tensors: self.tensors, dense, experts, skipped: self.skipped });
        }
        let count = missing.len();
        missing.truncate(NAMES_LISTED_MAX);
        Err(ConvertError::MissingTensors { path: self.path.to_owned(), count, first: missing })
    }

    /// What is wrong with a tensor.
    pub(crate) fn wrong(&self, tensor: &Tensor, why: String) -> ConvertError {
        let path = self.files[tensor.planes[0].file].path.clone();
        ConvertError::Tensor { path, tensor: tensor.name.clone(), why }
    }

    fn given_twice(&self, tensor: usize, other: usize) -> ConvertError {
        let why = format!("holds the same weights as tensor {}", self.tensors[other].name);
        self.wrong(&self.tensors[tensor], why)
    }
}

/// "attn_q of layer 3", "embed".
pub(crate) fn role_in_layer(role: Role, layer: Option<usize>) -> String {
    layer.map_or_else(|| role.to_string(), |layer| format!("{role} of layer {layer}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_adjusted() {
        // A decay read as its logarithm, or a norm shifted the other way.
        let adjusted = |adjust: Adjust, w: f32| {
            let mut row = [w];
            adjust.apply(&mut row);
            row[0]
        };
        assert_eq!(adjusted(Adjust::None, -0.25), -0.25);
        assert_eq!(adjusted(Adjust::AddOne, -0.25), 0.75);
        for a_log in [-3.5f32, 0.0, 0.69] {
            let got = adjusted(Adjust::NegatedExp, -a_log.exp());
            assert!((got - a_log).abs() < 1e-6, "{a_log}: {got}");
        }
        assert!(adjusted(Adjust::NegatedExp, 0.5).is_nan());
    }
}
