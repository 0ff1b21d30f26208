//! N02: what is small and sensitive (norms, decay, convolution, gates), however the large matrices are stored.

#[path = "common/forms.rs"]
mod checkpoints;
mod common;

use std::path::Path;

use checkpoints::*;
use common::gguf::Golden;
use common::*;
use convert::{
    Bits, Checkpoint, PackOptions, Recipe, Routing, SYNTH_PRESETS, SynthOptions, pack, synth_plan,
};
use quant::Format;
use store::{Architecture, Role, Store};

/// Never rounded, with the end of their names, and what is added to the numbers of the norms that are centred on zero.
const EXACT: [(Role, &str, f32); 9] = [
    (Role::FinalNorm, "norm.weight", 1.0),
    (Role::InputNorm, "input_layernorm.weight", 1.0),
    (Role::PostAttentionNorm, "post_attention_layernorm.weight", 1.0),
    (Role::AttnQNorm, "self_attn.q_norm.weight", 1.0),
    (Role::AttnKNorm, "self_attn.k_norm.weight", 1.0),
    (Role::LinearConv, "linear_attn.conv1d.weight", 0.0),
    (Role::LinearALog, "linear_attn.A_log", 0.0),
    (Role::LinearDtBias, "linear_attn.dt_bias", 0.0),
    (Role::LinearNorm, "linear_attn.norm.weight", 0.0),
];

/// 8 bits at least, unless they are asked for by name.
const CAREFUL: [Role; 4] = [Role::Router, Role::SharedExpertGate, Role::LinearA, Role::LinearB];

/// The ways to ask for few bits that do not name what is small.
fn wishes() -> Vec<PackOptions> {
    let bits = ["2", "3", "4", "8", "fp8", "source"].map(|bits| bits.parse::<Bits>().unwrap());
    let plain = bits.into_iter().map(|bits| PackOptions { bits, ..PackOptions::default() });
    let recipes = Recipe::ALL.map(|recipe| PackOptions { recipe: Some(recipe), ..PackOptions::default() });
    let roles = ["experts=2", "attention=2", "linear=2", "shared=2", "embed=2", "lm_head=2"];
    let roles = roles.iter().map(|role| PackOptions::parse_role(role).unwrap()).collect();
    plain.chain(recipes).chain([PackOptions { roles, ..PackOptions::default() }]).collect()
}

fn has_8_bits(format: Format) -> bool {
    256 <= format.row_bytes(256)
}

/// The store has what is never rounded as F32, with the numbers of the checkpoint.
fn check_exact(tiny: &Tiny, store: &Store, what: &str) {
    let dense = store.load_dense(&mut |_| ()).unwrap();
    let mut n_seen = 0;
    for shape in store.config().dense_shapes() {
        let Some((_, name, shift)) = EXACT.iter().find(|(role, ..)| *role == shape.role) else { continue };
        let layer = shape.layer.map_or_else(String::new, |layer| format!("layers.{layer}."));
        let tensor = tiny.tensor(&format!("{}{layer}{name}", tiny.layout.prefix));
        let expected: Vec<f32> = tensor.values.iter().map(|w| w + shift).collect();
        assert_eq!(dense.vector(shape.role, shape.layer), expected, "{what}: {name} of {:?}", shape.layer);
        n_seen += 1;
    }
    assert_eq!(n_seen, 1 + N_LAYER * 2 + 2 + (N_LAYER - 1) * 4, "{what}");
}

/// The decay of a recurrent state would be off in every token, for some wish about the large matrices.
#[test]
fn packing_never_rounds_them() {
    let dir = tempfile::tempdir().unwrap();
    for layout in [Layout { dtype: "F32", ..QWEN35 }, Layout { dtype: "F32", ..NEXT }, QWEN35] {
        let source = dir.path().join(format!("{} {}", layout.dtype, layout.architecture.name()));
        let tiny = Tiny::new(layout, 5);
        tiny.write(&source);
        let checkpoint = Checkpoint::open(&source).unwrap();
        for (i, options) in wishes().iter().enumerate() {
            let what = format!("{layout:?}, {options:?}");
            let out = source.join(i.to_string());
            pack(&checkpoint, &out, options, &mut |_| ()).unwrap_or_else(|e| panic!("{what}: {e}"));
            let store = Store::open(&out).unwrap();
            check_exact(&tiny, &store, &what);
            let careful = store.manifest().dense.iter().filter(|tensor| CAREFUL.contains(&tensor.role));
            let formats: Vec<(Role, Format)> = careful.map(|tensor| (tensor.role, tensor.format)).collect();
            assert!(formats.iter().all(|(_, format)| has_8_bits(*format)), "{what}: {formats:?}");
            assert_eq!(formats.len(), N_LAYER * 2 + (N_LAYER - 1) * 2, "{what}");
        }
        assert!(layout.dtype != "F32" || is_finer_than_bf16(&tiny), "else a cast would not be seen");
    }
    for (role, ..) in EXACT {
        let error = PackOptions::parse_role(&format!("{role}=4")).unwrap_err().to_string();
        assert!(error.contains("always stored as F32"), "{error}");
    }
}

fn is_finer_than_bf16(tiny: &Tiny) -> bool {
    let is_fine = |end: &str| {
        let tensor = tiny.tensors.iter().find(|tensor| tensor.name.ends_with(end)).unwrap();
        tensor.values.iter().any(|&w| round("BF16", w) != w)
    };
    EXACT.iter().all(|(_, name, _)| is_fine(name))
}

/// A checkpoint that is used where it is would lose what its packed form keeps.
#[test]
fn reading_in_place_never_rounds_them() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path| Checkpoint::open(path).unwrap().in_place().unwrap();
    for (i, layout) in [Layout { dtype: "F32", ..QWEN35 }, QWEN35, NEXT].into_iter().enumerate() {
        let tiny = Tiny::new(layout, 6);
        let at = |form: &str| dir.path().join(format!("{form} {i}"));
        tiny.write(&at("original"));
        check_exact(&tiny, &open(&at("original")), &format!("{layout:?}"));
        let fp8 = Tiny::new(Layout { is_fused: false, ..layout }, 6).to_fp8("BF16");
        fp8.write(&at("fp8"));
        check_exact(&fp8, &open(&at("fp8")), &format!("FP8 of {layout:?}"));
        usual_mlx(layout).write(&at("mlx"));
        check_exact(&with_even_norms(Tiny::new(layout, 7)), &open(&at("mlx")), &format!("MLX of {layout:?}"));
    }
    for name in ["q2_k", "q4_k_m", "iq", "legacy", "mxfp4", "next", "moe"] {
        let folder = dir.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let store = open(&Golden::read(name).write(&folder));
        for tensor in &store.manifest().dense {
            let is_exact = EXACT.iter().any(|(role, ..)| *role == tensor.role);
            assert!(!is_exact || tensor.format == Format::F32, "{name}: {tensor:?}");
            assert!(!CAREFUL.contains(&tensor.role) || has_8_bits(tensor.format), "{name}: {tensor:?}");
        }
    }
}

/// Measurements on synthetic stores would be of another model than the real ones.
#[test]
fn synthetic_stores_have_them_as_real_ones() {
    for like in SYNTH_PRESETS {
        for pack in wishes() {
            let what = format!("{like}, {pack:?}");
            let options = SynthOptions {
                like: like.into(),
                n_layer: Some(4),
                n_vocab: Some(256),
                pack,
                routing: Routing::Uniform,
                seed: 1,
            };
            let has_shared = !like.starts_with("qwen3-30b") && !like.starts_with("qwen3-235b");
            let plan = match synth_plan(&options) {
                Err(error) if !has_shared => {
                    assert!(error.to_string().contains("this model has none"), "{what}: {error}");
                    continue;
                }
                plan => plan.unwrap_or_else(|e| panic!("{what}: {e}")),
            };
            assert_eq!(has_shared, plan.config.architecture != Architecture::Qwen3Moe, "{what}");
            for tensor in &plan.dense {
                let is_exact = EXACT.iter().any(|(role, ..)| *role == tensor.role);
                assert!(!is_exact || tensor.format == Format::F32, "{what}: {}", tensor.role);
                assert!(
                    !CAREFUL.contains(&tensor.role) || has_8_bits(tensor.format),
                    "{what}: {}",
                    tensor.role
                );
            }
        }
    }
}
