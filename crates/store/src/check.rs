//! Does a manifest make sense? Everything that can be said without looking at other files.

use std::collections::{BTreeMap, BTreeSet};

use quant::Format;

use crate::files::{DENSE_NAME, EXPERTS_NAME, JOURNAL_NAME, MANIFEST_NAME};
use crate::role::tensor_name;
use crate::{DenseTensor, ExpertLayer, ExpertPart, Manifest, ModelConfig, Role, Sidecar, hash};

/// Larger than any tokenizer, small enough to read in one piece.
const SIDECAR_BYTES_MAX: u64 = 1 << 30;

impl Manifest {
    /// Checks the configuration's bounds, that it gets exactly the tensors and experts it calls for, that the dense
    /// tensors lie one after the other, and that sidecars have harmless names. Only what is packed has checksums.
    pub(crate) fn check(&self, is_packed: bool) -> Result<(), String> {
        self.config.check().map_err(|why| format!("config: {why}"))?;
        check_dense(&self.config, &self.dense)?;
        check_experts(&self.config, &self.experts)?;
        check_sidecars(&self.sidecars)?;
        if is_packed { self.check_checksums() } else { Ok(()) }
    }

    fn check_checksums(&self) -> Result<(), String> {
        for tensor in &self.dense {
            check_hex(&tensor.xxh3, &tensor_name(tensor.role, tensor.layer))?;
        }
        for (layer, entry) in self.experts.iter().enumerate() {
            if entry.xxh3.len() != self.config.n_expert {
                let (found, n_expert) = (entry.xxh3.len(), self.config.n_expert);
                return Err(format!(
                    "layer {layer} has {found} expert checksums, the configuration {n_expert} experts"
                ));
            }
            for (expert, xxh3) in entry.xxh3.iter().enumerate() {
                check_hex(xxh3, &format_args!("layer {layer}, expert {expert}"))?;
            }
        }
        self.sidecars.iter().try_for_each(|sidecar| check_hex(&sidecar.xxh3, &sidecar.name))
    }
}

fn check_dense(config: &ModelConfig, dense: &[DenseTensor]) -> Result<(), String> {
    let mut wanted: BTreeMap<(Option<usize>, Role), (usize, usize)> =
        config.dense_shapes().into_iter().map(|s| ((s.layer, s.role), (s.rows, s.cols))).collect();
    let mut end = 0;
    for tensor in dense {
        let name = tensor_name(tensor.role, tensor.layer);
        let Some((rows, cols)) = wanted.remove(&(tensor.layer, tensor.role)) else {
            return Err(format!("{name} is there twice or not called for by the configuration"));
        };
        if (tensor.rows, tensor.cols) != (rows, cols) {
            return Err(format!("{name} is {}x{}, expected {rows}x{cols}", tensor.rows, tensor.cols));
        }
        if tensor.role.is_f32() && tensor.format != Format::F32 {
            return Err(format!("{name} is {}, must be f32", tensor.format));
        }
        tensor.format.check(rows, cols).map_err(|e| format!("{name}: {e}"))?;
        if tensor.offset != end {
            return Err(format!("{name} starts at offset {} of {DENSE_NAME}, expected {end}", tensor.offset));
        }
        end += tensor.bytes();
    }
    match wanted.first_key_value() {
        Some((&(layer, role), _)) => Err(format!("{} is missing", tensor_name(role, layer))),
        None => Ok(()),
    }
}

fn check_experts(config: &ModelConfig, experts: &[ExpertLayer]) -> Result<(), String> {
    if experts.len() != config.n_layer() {
        return Err(format!("experts has {} layers, the configuration {}", experts.len(), config.n_layer()));
    }
    for (layer, entry) in experts.iter().enumerate() {
        for (part, format) in ExpertPart::ALL.into_iter().zip(entry.formats) {
            let (rows, cols) = ExpertLayer::shape(config, part);
            format.check(rows, cols).map_err(|e| format!("{part} of the experts of layer {layer}: {e}"))?;
        }
    }
    Ok(())
}

fn check_sidecars(sidecars: &[Sidecar]) -> Result<(), String> {
    let mut taken = BTreeSet::from([MANIFEST_NAME, DENSE_NAME, EXPERTS_NAME, JOURNAL_NAME]);
    for sidecar in sidecars {
        let name = sidecar.name.as_str();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.len() > 100 || name.starts_with('.') || !name.chars().all(plain) {
            return Err(format!("sidecar {name:?} is not a plain file name"));
        }
        if !taken.insert(name) {
            return Err(format!("sidecar {name} has the name of another file"));
        }
        if sidecar.bytes > SIDECAR_BYTES_MAX {
            return Err(format!(
                "sidecar {name} has {} bytes, allowed are {SIDECAR_BYTES_MAX}",
                sidecar.bytes
            ));
        }
    }
    Ok(())
}

fn check_hex(xxh3: &str, of: &dyn std::fmt::Display) -> Result<(), String> {
    if hash::is_hex(xxh3) { Ok(()) } else { Err(format!("checksum {xxh3:?} of {of} is not 16 hex digits")) }
}
