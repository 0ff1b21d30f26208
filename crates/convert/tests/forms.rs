//! Checkpoints that others have quantised: MLX conversions and FP8, told apart, cross-checked, and packed as they are.

#[path = "common/forms.rs"]
mod checkpoints;
mod common;

use std::fs;
use std::path::Path;

use checkpoints::*;
use common::*;
use convert::{Checkpoint, PackOptions, PackReport, SourceKind, pack};
use half::bf16;
use quant::Format;
use serde_json::{Value, json};
use store::{Architecture, Blob, ExpertLayer, Role, Store, read_exact_at};

fn pack_quietly(source: &Path, out: &Path, bits: &str, roles: &[&str]) -> PackReport {
    let roles = roles.iter().map(|r| PackOptions::parse_role(r).unwrap()).collect();
    let options = PackOptions { bits: bits.parse().unwrap(), roles, ..PackOptions::default() };
    pack(&Checkpoint::open(source).unwrap(), out, &options, &mut |_| ()).unwrap()
}

/// The weights of a store: every file but manifest and sidecars.
fn weights(store: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    tree(store).into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "bin")).collect()
}

fn assert_same_weights(got: &Path, expected: &Path, what: &str) {
    for ((name, got), (expected_name, expected)) in weights(got).into_iter().zip(weights(expected)) {
        assert!(name == expected_name && got == expected, "{what}: {} differs", name.display());
    }
    assert_eq!(weights(got).len(), weights(expected).len(), "{what}");
    let verified = Store::open(got).unwrap().verify(&mut |_| ()).unwrap();
    assert!(verified.problems.is_empty(), "{what}: {:?}", verified.problems);
}

/// The checkpoint used where it is has the weights of its store `packed`, bit for bit.
fn assert_same_in_place(source: &Path, packed: &Path, what: &str) {
    let (in_place, packed) =
        (Checkpoint::open(source).unwrap().in_place().unwrap(), Store::open(packed).unwrap());
    assert!(in_place.manifest().is_in_place() && !packed.manifest().is_in_place(), "{what}");
    assert_eq!(in_place.config(), packed.config(), "{what}");
    let verified = in_place.verify(&mut |_| ()).unwrap();
    assert!(verified.problems.is_empty(), "{what}: {:?}", verified.problems);
    let [got, expected] = [&in_place, &packed].map(|store| store.load_dense(&mut |_| ()).unwrap());
    for shape in packed.config().dense_shapes() {
        let [got, expected] = [&got, &expected].map(|dense| dense.matrix(shape.role, shape.layer));
        let planes =
            |m: &quant::Matrix| [m.view().codes, m.view().scales, m.view().biases].map(<[u8]>::to_vec);
        assert_eq!(got.format(), expected.format(), "{what}: {}", shape.role);
        assert!(planes(&got) == planes(&expected), "{what}: {} of {:?}", shape.role, shape.layer);
    }
    for layer in 0..packed.config().n_layer() {
        let (Blob::Pieces(pieces), Blob::File(path)) =
            (in_place.expert_blob(layer), packed.expert_blob(layer))
        else {
            panic!("records in pieces, and a file")
        };
        let expected = fs::read(path).unwrap();
        let mut got = vec![0; pieces.bytes() as usize];
        for piece in pieces.pieces() {
            let file = fs::File::open(&pieces.files()[piece.file]).unwrap();
            let out = &mut got[piece.start as usize..][..piece.bytes as usize];
            read_exact_at(&file, out, piece.offset).unwrap();
        }
        assert!(got == expected, "{what}: experts of layer {layer}");
    }
    for name in ["config.json", "tokenizer.json"] {
        assert_eq!(in_place.sidecar(name).unwrap(), packed.sidecar(name).unwrap(), "{what}: {name}");
    }
}

/// Opening the checkpoint fails with all of `says`.
fn check_refused(what: &str, tiny: &Tiny, says: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    tiny.write(dir.path());
    let error = Checkpoint::open(dir.path()).expect_err(what).to_string();
    for part in says {
        assert!(error.contains(part), "{what}: no '{part}' in: {error}");
    }
    assert!(!error.contains('\n') && error.len() < 1000, "{what}: {error}");
}

#[test]
fn mlx_folders_are_the_store_that_packing_the_original_makes() {
    // Norms shifted twice or not at all, swapped axes, experts stacked in another order, codes requantised: MLX's own
    // quantiser made the same bytes, so the stores have to be the same.
    let dir = tempfile::tempdir().unwrap();
    for layout in [QWEN35, NEXT, QWEN3, Layout { is_tied: true, n_shard: 5, ..QWEN35 }] {
        let what = format!("{layout:?}");
        let name =
            |kind: &str| dir.path().join(format!("{kind} {} {}", layout.n_shard, layout.architecture.name()));
        let mut tiny = with_even_norms(Tiny::new(layout, 7));
        tiny.write(&name("original"));
        let mut roles = vec!["embed=4", "shared_expert_gate=8", "linear_a=4", "linear_b=4"];
        if !layout.is_tied {
            roles.push("lm_head=4");
        }
        if layout.architecture == Architecture::Qwen3Moe {
            roles.retain(|role| !role.starts_with("shared") && !role.starts_with("linear"));
        }
        pack_quietly(&name("original"), &name("expected"), "4", &roles);

        usual_mlx(layout).write(&name("mlx"));
        let checkpoint = Checkpoint::open(&name("mlx")).unwrap();
        assert_eq!(checkpoint.kind(), SourceKind::Mlx, "{what}");
        assert!(checkpoint.is_quantised());
        // Packing to the bits that are there, or asking for nothing, copies.
        for (bits, out) in [("source", name("copied")), ("4", name("asked"))] {
            let report = pack_quietly(&name("mlx"), &out, bits, &[]);
            assert_same_weights(&out, &name("expected"), &what);
            assert!(report.errors.is_empty(), "{what}: {:?}", report.errors);
            assert_same_in_place(&name("mlx"), &out, &what);
        }

        // The conversion without quantising.
        tiny = tiny.to_mlx(|_| None);
        tiny.write(&name("floats"));
        let checkpoint = Checkpoint::open(&name("floats")).unwrap();
        assert_eq!((checkpoint.kind(), checkpoint.is_quantised()), (SourceKind::Mlx, false), "{what}");
        pack_quietly(&name("floats"), &name("packed"), "4", &roles);
        assert_same_weights(&name("packed"), &name("expected"), &what);
    }
}

#[test]
fn norms_are_told_by_the_convolution_and_by_nothing_else() {
    // MLX names with raw weights, or a draft head that is taken as a sign: norms shifted by one too much or too little.
    let dir = tempfile::tempdir().unwrap();
    let final_norm = |name: &str, tiny: &Tiny| {
        let (source, out) = (dir.path().join(name), dir.path().join(format!("{name} store")));
        tiny.write(&source);
        pack_quietly(&source, &out, "source", &[]);
        Store::open(&out).unwrap().load_dense(&mut |_| ()).unwrap().vector(Role::FinalNorm, None)
    };
    let original = with_even_norms(Tiny::new(QWEN35, 7));
    let expected = final_norm("original", &original);
    let converted = original.to_mlx(|_| None);
    assert!(converted.tensors.iter().any(|t| t.name.starts_with("mtp.")));
    assert_eq!(final_norm("converted", &converted), expected);
    let mut draft_in_the_model = converted.clone();
    for tensor in draft_in_the_model.tensors.iter_mut().filter(|t| t.name.starts_with("mtp.")) {
        tensor.name = format!("language_model.{}", tensor.name);
    }
    assert_eq!(final_norm("draft in the model", &draft_in_the_model), expected);
    let mut none = converted.clone();
    none.tensors.retain(|t| !t.name.starts_with("mtp."));
    assert_eq!(final_norm("no draft", &none), expected);

    // Raw weights under MLX's names.
    let mut raw = converted.clone();
    for tensor in &mut raw.tensors {
        if tensor.name.ends_with("conv1d.weight") {
            tensor.shape.swap(1, 2);
        }
        if tensor.name.ends_with("norm.weight")
            && !tensor.name.contains("linear_attn")
            && !tensor.name.contains("mtp.")
        {
            tensor.values.iter_mut().for_each(|w| *w -= 1.0);
        }
    }
    assert_eq!(final_norm("raw", &raw), expected);

    // No convolution to look at.
    let mut full = QWEN35;
    full.n_shard = 1;
    let mut tiny = Tiny::new(full, 7).to_mlx(|_| None);
    tiny.text_config()["layer_types"] = json!(vec!["full_attention"; 4]);
    tiny.tensors.retain(|t| !t.name.contains("linear_attn"));
    check_refused("no convolution", &tiny, &["no convolution shows whether the norms"]);
}

#[test]
fn settings_of_modules_are_found_under_any_prefix() {
    // An override that is looked for under the name of the tensor only: a router of 8 bits read as 4.
    let dir = tempfile::tempdir().unwrap();
    for (i, prefix) in
        ["language_model.model.", "model.language_model.", "model.", ""].into_iter().enumerate()
    {
        let mut mlx = usual_mlx(QWEN35);
        mlx.config["quantization"] = usual_settings(prefix);
        let source = dir.path().join(i.to_string());
        mlx.write(&source);
        let checkpoint = Checkpoint::open(&source).unwrap();
        assert!(checkpoint.is_quantised(), "{prefix}");
    }
    // Settings beside the text fields, or under the other key only.
    let mut mlx = usual_mlx(QWEN35);
    let settings = mlx.config.as_object_mut().unwrap().remove("quantization").unwrap();
    mlx.write(&dir.path().join("config"));
    Checkpoint::open(&dir.path().join("config")).unwrap();
    mlx.config.as_object_mut().unwrap().remove("quantization_config");
    mlx.text_config()["quantization"] = settings;
    mlx.write(&dir.path().join("text"));
    Checkpoint::open(&dir.path().join("text")).unwrap();
    mlx.text_config().as_object_mut().unwrap().remove("quantization");
    check_refused(
        "no settings",
        &mlx,
        &["embed_tokens.weight: has dtype U32, but config.json does not say how"],
    );
}

#[test]
fn planes_of_every_mode_arrive_as_they_are() {
    // Bytes swapped between planes, experts or parts, or a mode that is read as another, for anything that MLX writes.
    let affine = |bits, group| Format::Affine { bits, group };
    let affine_f16 = |bits, group| Format::AffineF16 { bits, group };
    let mut formats = vec![Format::Mxfp4, Format::Nvfp4, affine_f16(4, 64), affine_f16(3, 32)];
    formats.extend([2, 3, 5, 6, 8].map(|bits| affine(bits, 32)));
    formats.extend([affine(4, 32), affine(2, 64)]);
    for format in formats {
        let (mode, bits, group) = match format {
            Format::Affine { bits, group } | Format::AffineF16 { bits, group } => ("affine", bits, group),
            Format::Mxfp4 => ("mxfp4", 4, 32),
            _ => ("nvfp4", 4, 16),
        };
        let dir = tempfile::tempdir().unwrap();
        let (source, out) = (dir.path().join("in"), dir.path().join("out"));
        // The router is left as it was, in both ways in which that can be said.
        let mut mlx = Tiny::new(QWEN35, 5).to_mlx(|module| Some(format).filter(|_| !is_gate(module)));
        mlx.config["quantization"] = json!({"mode": mode, "bits": bits, "group_size": group});
        mlx.config["quantization"]["model.layers.0.mlp.gate"] = json!(false);
        mlx.write(&source);
        pack_quietly(&source, &out, "source", &[]);
        assert_same_in_place(&source, &out, &format.to_string());
        let store = Store::open(&out).unwrap();
        assert_eq!(store.manifest().experts[1].formats, [format; 3]);
        let router = store.manifest().dense.iter().find(|d| d.role == Role::Router).unwrap();
        assert_eq!(router.format, Format::Bf16, "{format}");
        let records = fs::read(out.join("experts/layer-001.bin")).unwrap();
        let stride = records.len() / N_EXPERT;
        for expert in 0..N_EXPERT {
            let mut at = expert * stride;
            for (part, rows, cols) in
                [("gate", D_FF, D_MODEL), ("up", D_FF, D_MODEL), ("down", D_MODEL, D_FF)]
            {
                let p = format!("language_model.model.layers.1.mlp.switch_mlp.{part}_proj");
                for (plane, name) in format.planes(rows, cols).into_iter().zip(["weight", "scales", "biases"])
                {
                    let got = &records[at + plane.start..at + plane.end];
                    if !plane.is_empty() {
                        let bytes = &mlx.tensor(&format!("{p}.{name}")).bytes;
                        let expected = &bytes[expert * plane.len()..][..plane.len()];
                        assert!(got == expected, "{format}: {name} of {part} of expert {expert}");
                    }
                }
                at += format.matrix_bytes(rows, cols);
            }
        }
        let verified = store.verify(&mut |_| ()).unwrap();
        assert!(verified.problems.is_empty(), "{format}: {:?}", verified.problems);
    }
}

/// An edited folder of the usual recipe is refused.
fn refused(what: &str, edit: &dyn Fn(&mut Tiny), says: &[&str]) {
    let mut mlx = usual_mlx(QWEN35);
    edit(&mut mlx);
    check_refused(what, &mlx, says);
}

#[test]
fn contradictions_are_named() {
    // Settings that shapes contradict: weights of other sizes, read as if they fitted.
    let set =
        |key: &'static str, value: Value| move |t: &mut Tiny| t.config["quantization"][key] = value.clone();
    let says = [
        "mlp.gate.weight: config.json says affine, 4 bits in groups of 64, the shapes [4, 32] of its codes and [4, 2] \
         of its scales say 8 bits in groups of 64 numbers for rows of 128 numbers",
    ];
    let gate = "language_model.model.layers.0.mlp.gate";
    refused("bits", &set(gate, json!({"bits": 4, "group_size": 64})), &says);
    refused(
        "group",
        &set(gate, json!({"bits": 8, "group_size": 32})),
        &["8 bits in groups of 32", "groups of 64 numbers"],
    );
    // Half the bits and half the group leave the ratio of the shapes as it is.
    refused("both", &set(gate, json!({"bits": 4, "group_size": 32})), &["4 bits in groups of 32"]);
    refused("not", &set(gate, json!(false)), &["is quantised, config.json says that it is not"]);
    refused("mode", &set(gate, json!({"mode": "mxfp4"})), &["says mxfp4, 4 bits in groups of 32"]);
    refused(
        "mode",
        &set("mode", json!("mxfp8")),
        &["mode \"mxfp8\" is not supported (affine, mxfp4 and nvfp4"],
    );
    refused("bits", &set("bits", json!(-1)), &["quantization: bits is -1"]);
    refused("bits", &set("bits", json!(1)), &["affine, 1 bits in groups of 64"]);
    let other = "model.layers.0.mlp.gate";
    refused("twice", &set(other, json!({"bits": 4})), &["is there twice with different settings"]);
}

#[test]
fn planes_that_do_not_belong_together_are_named() {
    // A plane that is missing, or of another shape or type: bytes of something else taken for scales.
    let p = "language_model.model.layers.0.mlp.";
    let remove = |name: &str| {
        let name = format!("{p}{name}");
        move |t: &mut Tiny| t.remove(&name)
    };
    refused(
        "scales",
        &remove("gate.scales"),
        &["mlp.gate.weight: is quantised, but there is no", "mlp.gate.scales"],
    );
    refused(
        "biases",
        &remove("gate.biases"),
        &["mlp.gate.weight: is quantised, but there is no", "mlp.gate.biases"],
    );
    refused("codes", &remove("gate.weight"), &["2 tensors have names unknown", "mlp.gate.scales"]);
    let floats = |t: &mut Tiny| {
        t.remove(&format!("{p}gate.scales"));
        t.remove(&format!("{p}gate.biases"));
        let gate = t.tensor_mut(&format!("{p}gate.weight"));
        (gate.dtype, gate.shape, gate.bytes) =
            ("BF16", vec![N_EXPERT, D_MODEL], vec![0; 2 * N_EXPERT * D_MODEL]);
    };
    refused("floats", &floats, &["has dtype BF16, but config.json says that it is quantised"]);
    let scales = |t: &mut Tiny| t.tensor_mut(&format!("{p}gate.scales")).dtype = "F16";
    refused("dtypes", &scales, &["has scales F16 [4, 2] and biases BF16 [4, 2], which are not the same"]);
    let wide = |t: &mut Tiny| {
        for plane in ["scales", "biases"] {
            let tensor = t.tensor_mut(&format!("{p}gate.{plane}"));
            (tensor.dtype, tensor.bytes) = ("F32", tensor.bytes.repeat(2));
        }
    };
    refused("F32", &wide, &["has scales of dtype F32, of mode affine only BF16 and F16"]);
    let fewer = |t: &mut Tiny| {
        let scales = t.tensor_mut(&format!("{p}switch_mlp.up_proj.scales"));
        scales.shape = vec![2 * N_EXPERT, D_FF / 2, 2];
    };
    refused(
        "stacks",
        &fewer,
        &["switch_mlp.up_proj.weight: has shape [4, 64, 16] and scales of shape [8, 32, 2]"],
    );
    let beside = |t: &mut Tiny| {
        let scales = t.tensor(&format!("{p}gate.scales")).clone();
        t.tensors.push(TinyTensor { name: "language_model.model.norm.scales".into(), ..scales });
    };
    refused(
        "scales of a norm",
        &beside,
        &["norm.weight: has dtype BF16, but there is", "norm.scales beside it"],
    );
}

#[test]
fn scales_that_are_not_numbers_are_found_while_copying() {
    // A scale of infinity that is copied: answers of NaN much later.
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("in"), dir.path().join("out"));
    let mut mlx = usual_mlx(QWEN35);
    let name = "language_model.model.layers.2.mlp.switch_mlp.down_proj";
    let scales = mlx.tensor_mut(&format!("{name}.scales"));
    // Expert 1, row 5; rows of 64 have one scale.
    let at = (D_MODEL + 5) * 2;
    scales.bytes[at..at + 2].copy_from_slice(&bf16::INFINITY.to_le_bytes());
    mlx.write(&source);
    let options = PackOptions { bits: "source".parse().unwrap(), ..PackOptions::default() };
    let error =
        pack(&Checkpoint::open(&source).unwrap(), &out, &options, &mut |_| ()).unwrap_err().to_string();
    for part in ["down_proj.weight: row 5 of expert_down of expert 1", "column 0"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(!out.exists());
}

/// E4M3 by its definition: sign, 4 bits of exponent with bias 7, 3 bits of mantissa, the lowest exponent subnormal.
fn e4m3(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    let magnitude = match exponent {
        0 => mantissa / 8.0 * 2f64.powi(-6),
        _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
    };
    if code < 128 { magnitude } else { -magnitude }
}

/// The FP8 matrices of a checkpoint multiplied out, as F32.
fn multiplied_out(fp8: &Tiny) -> Tiny {
    let mut plain = Tiny { layout: fp8.layout, config: fp8.config.clone(), tensors: Vec::new() };
    plain.config.as_object_mut().unwrap().remove("quantization_config");
    for tensor in fp8.tensors.iter().filter(|t| !t.name.ends_with("_scale_inv")) {
        let mut tensor = tensor.clone();
        if tensor.dtype == "F8_E4M3" {
            let scales = fp8.tensor(&format!("{}_scale_inv", tensor.name));
            let (cols, n_block) = (*tensor.shape.last().unwrap(), *scales.shape.last().unwrap());
            let value = |(i, &code): (usize, &u8)| {
                let at = i / cols / 128 * n_block + i % cols / 128;
                let scale = match scales.dtype {
                    "BF16" => bf16::from_le_bytes([scales.bytes[2 * at], scales.bytes[2 * at + 1]]).to_f32(),
                    _ => f32::from_le_bytes(scales.bytes[4 * at..][..4].try_into().unwrap()),
                };
                (e4m3(code) * f64::from(scale)) as f32
            };
            tensor.values = tensor.bytes.iter().enumerate().map(value).collect();
            (tensor.dtype, tensor.bytes) = ("F32", Vec::new());
        }
        plain.tensors.push(tensor);
    }
    plain
}

#[test]
fn fp8_is_its_codes_times_its_scales() {
    // A scale that divides, is taken from another block, or is ignored; FP8 that is encoded once more.
    let dir = tempfile::tempdir().unwrap();
    for (layout, dtype) in [(Layout { is_fused: false, ..QWEN35 }, "BF16"), (NEXT, "F32"), (QWEN3, "BF16")] {
        let what = format!("{layout:?} {dtype}");
        let name = |kind: &str| dir.path().join(format!("{kind} {}", layout.architecture.name()));
        let fp8 = Tiny::new(layout, 9).to_fp8(dtype);
        fp8.write(&name("fp8"));
        let checkpoint = Checkpoint::open(&name("fp8")).unwrap();
        assert_eq!((checkpoint.kind(), checkpoint.is_quantised()), (SourceKind::Fp8, false), "{what}");
        multiplied_out(&fp8).write(&name("plain"));
        for bits in ["4", "8"] {
            pack_quietly(&name("fp8"), &name(bits), bits, &[]);
            pack_quietly(&name("plain"), &name("expected"), bits, &[]);
            assert_same_weights(&name(bits), &name("expected"), &what);
            fs::remove_dir_all(name("expected")).unwrap();
        }
        // Copied: codes and scales as they are, the rest as published.
        for (bits, out) in [("fp8", name("asked")), ("source", name("copied"))] {
            let report = pack_quietly(&name("fp8"), &out, bits, &[]);
            // But for rows that share scales and go apart, which the next test is about.
            let copies = report
                .errors
                .iter()
                .all(|e| e.role.starts_with("linear_") && layout.architecture == NEXT.architecture);
            assert!(copies, "{what}: {:?}", report.errors);
            let store = Store::open(&out).unwrap();
            let format = if dtype == "F32" { Format::Fp8F32 } else { Format::Fp8 };
            assert_eq!(store.manifest().experts[0].formats, [format; 3]);
            let dense = store.load_dense(&mut |_| ()).unwrap();
            let matrix = dense.matrix(Role::AttnQ, Some(3));
            assert_eq!(matrix.format(), format);
            let q = format!("{}layers.3.self_attn.q_proj.weight", layout.prefix);
            assert_eq!(matrix.view().codes, fp8.tensor(&q).bytes);
            assert_eq!(matrix.view().scales, fp8.tensor(&format!("{q}_scale_inv")).bytes);
            assert_eq!(dense.matrix(Role::Router, Some(3)).format(), Format::Bf16);
            assert!(store.verify(&mut |_| ()).unwrap().problems.is_empty());
        }
        assert_same_in_place(&name("fp8"), &name("copied"), &what);
        // What is encoded to FP8 here is what was encoded there: the largest number of a block has the largest code.
        let back = name("back");
        pack_quietly(&name("plain"), &back, "fp8", &[]);
        let store = Store::open(&back).unwrap();
        assert_eq!(store.manifest().experts[0].formats, [Format::Fp8; 3]);
    }
}

#[test]
fn originals_are_used_where_they_are() {
    // Gate and up of a fused tensor swapped or overlapping, experts of several files mixed up, a norm not shifted.
    let dir = tempfile::tempdir().unwrap();
    let layouts = [QWEN35, Layout { n_shard: 5, ..NEXT }, Layout { dtype: "F32", is_fused: true, ..QWEN3 }];
    for (i, layout) in layouts.into_iter().enumerate() {
        let (source, out) = (dir.path().join(format!("in {i}")), dir.path().join(format!("out {i}")));
        Tiny::new(layout, 3).write(&source);
        pack_quietly(&source, &out, "source", &[]);
        assert_same_in_place(&source, &out, &format!("{layout:?}"));
    }
}

#[test]
fn experts_of_several_formats_have_to_be_packed() {
    // Records of several sizes taken for records of one.
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("in"), dir.path().join("out"));
    let mut fp8 = Tiny::new(NEXT, 9).to_fp8("BF16");
    let up = "model.layers.2.mlp.experts.3.up_proj.weight";
    let plain = multiplied_out(&fp8).tensor(up).clone();
    *fp8.tensor_mut(up) = TinyTensor { dtype: "F32", ..plain };
    fp8.remove(&format!("{up}_scale_inv"));
    fp8.write(&source);
    let error = Checkpoint::open(&source).unwrap().in_place().unwrap_err().to_string();
    for part in ["expert_up of layer 2 has several formats (fp8, f32)", "pack it"] {
        assert!(error.contains(part), "{error}");
    }
    let report = pack_quietly(&source, &out, "source", &[]);
    assert_eq!(Store::open(&out).unwrap().manifest().experts[2].formats[1], Format::F32);
    let notes = report.notes.join("\n");
    assert!(
        notes.contains("expert_up stored as f32, which is large") && notes.contains("(1 layers)"),
        "{notes}"
    );
}

#[test]
fn rows_that_share_scales_may_be_apart() {
    // Qwen3-Next's fused projections in FP8 with heads narrower than a block: scales of other rows, or of none.
    let dir = tempfile::tempdir().unwrap();
    let fp8 = Tiny::new(NEXT, 9).to_fp8("BF16");
    assert!(fp8.tensors.iter().any(|t| t.name.ends_with("in_proj_qkvz.weight") && t.dtype == "F8_E4M3"));
    fp8.write(&dir.path().join("fp8"));
    multiplied_out(&fp8).write(&dir.path().join("plain"));
    let dense = |name: &str, bits: &str| {
        let out = dir.path().join(format!("{name} {bits}"));
        pack_quietly(&dir.path().join(name), &out, bits, &[]);
        let matrix =
            Store::open(&out).unwrap().load_dense(&mut |_| ()).unwrap().matrix(Role::LinearQkv, Some(0));
        let mut numbers = vec![0.0; matrix.rows() * matrix.cols()];
        for (row, out) in numbers.chunks_exact_mut(matrix.cols()).enumerate() {
            matrix.view().decode_row(row, out);
        }
        (matrix.format(), numbers)
    };
    let kept = dense("fp8", "source");
    assert_eq!(kept.0, Format::F32);
    assert_eq!(kept, dense("plain", "source"));
    assert_eq!(dense("fp8", "fp8"), dense("plain", "fp8"));
}

#[test]
fn stacked_fp8_is_cut_where_scales_are() {
    // Gate and up that share scales taken for matrices of their own.
    let dir = tempfile::tempdir().unwrap();
    let name = |name: &str| dir.path().join(name);
    let fp8 = Tiny::new(QWEN35, 9).to_fp8("BF16");
    fp8.write(&name("fp8"));
    multiplied_out(&fp8).write(&name("plain"));
    for source in ["fp8", "plain"] {
        pack_quietly(&name(source), &name(&format!("{source} 4")), "4", &[]);
    }
    assert_same_weights(&name("fp8 4"), &name("plain 4"), "stacked");
    pack_quietly(&name("fp8"), &name("copied"), "source", &[]);
    let store = Store::open(&name("copied")).unwrap();
    // Up begins inside a block.
    let formats = store.manifest().experts[0].formats;
    assert_eq!(formats, [Format::Fp8, Format::F32, Format::Fp8]);
    let down = &fp8.tensor("model.language_model.layers.0.mlp.experts.down_proj").bytes;
    let records = fs::read(name("copied").join("experts/layer-000.bin")).unwrap();
    let at = records.len() / N_EXPERT + ExpertLayer::ranges(&formats, store.config())[2].start;
    assert!(records[at..at + D_MODEL * D_FF] == down[D_MODEL * D_FF..2 * D_MODEL * D_FF]);
    let error = Checkpoint::open(&name("fp8")).unwrap().in_place().unwrap_err().to_string();
    assert!(error.contains("expert_up of layer 0 has scales that experts share"), "{error}");
}

#[test]
fn fp8_that_lacks_something_is_refused() {
    // A missing scale taken as 1, a scale under another name ignored, another kind of FP8 read as this one.
    let original = Tiny::new(QWEN3, 9);
    let up = "model.layers.0.mlp.experts.1.up_proj.weight";
    let refused = |what: &str, edit: &dyn Fn(&mut Tiny), says: &[&str]| {
        let mut fp8 = original.to_fp8("BF16");
        edit(&mut fp8);
        check_refused(what, &fp8, says);
    };
    let scale = format!("{up}_scale_inv");
    refused("no scale", &|t| t.remove(&scale), &[up, "is FP8, but there is no", "weight_scale_inv"]);
    refused("another name", &|t| t.tensor_mut(&scale).name = format!("{up}_scale"), &[up, "there is no"]);
    let add =
        |t: &mut Tiny| t.add(&mut Random(1), "model.layers.0.mlp.experts.1.up_proj.input_scale".into(), &[1]);
    refused("one more", &add, &["1 tensors have names unknown to qwen3_moe", "up_proj.input_scale"]);
    let stacked = |t: &mut Tiny| {
        for name in [up, &scale] {
            t.tensor_mut(name).shape.insert(0, 1);
        }
    };
    refused(
        "stacked",
        &stacked,
        &["FP8 of shape [1, 64, 128]: stacked matrices need a multiple of 128 rows"],
    );
    let shape = |t: &mut Tiny| t.tensor_mut(&scale).shape = vec![1];
    refused("shape", &shape, &["FP8 of shape [64, 128] has scales of shape [1], expected [1, 1]"]);
    let dtype = |t: &mut Tiny| t.tensor_mut(&scale).dtype = "F16";
    refused("dtype", &dtype, &["has scales of dtype F16, only BF16 and F32"]);
    let beside = |t: &mut Tiny| t.tensor_mut(&scale).name = "model.norm.weight_scale_inv".into();
    refused("beside", &beside, &["there is"]);
    let undeclared = |t: &mut Tiny| drop(t.config.as_object_mut().unwrap().remove("quantization_config"));
    refused(
        "undeclared",
        &undeclared,
        &["has dtype F8_E4M3, but config.json does not say how it is quantised"],
    );
    for (key, value, says) in [
        ("weight_block_size", json!([64, 64]), "fp8 with weight_block_size [64,64]"),
        ("weight_block_size", Value::Null, "fp8 with no weight_block_size"),
        ("fmt", json!("e5m2"), "fp8 with fmt \"e5m2\""),
    ] {
        refused(
            key,
            &|t| t.config["quantization_config"][key] = value.clone(),
            &[says, "use the original BF16"],
        );
    }
}

#[test]
fn other_methods_are_refused_by_name() {
    // A checkpoint of GPTQ or the like that fails with a message about one tensor's dtype.
    for method in ["gptq", "awq", "compressed-tensors", "bitsandbytes", "modelopt", "hqq", "mxfp4", "w4a16"] {
        let mut tiny = Tiny::new(QWEN3, 9);
        tiny.config["quantization_config"] = json!({"quant_method": method, "bits": 4, "group_size": 128});
        let says = format!("quantised with {method} (quantization_config), which is not supported");
        check_refused(method, &tiny, &[&says, "an MLX conversion or a GGUF file"]);
    }
    let mut tiny = Tiny::new(QWEN3, 9);
    tiny.config["quantization_config"] = json!({"load_in_4bit": true});
    check_refused("no name", &tiny, &["a method that is not named"]);
    let dir = tempfile::tempdir().unwrap();
    Tiny::new(QWEN3, 9).write(dir.path());
    fs::write(dir.path().join("hf_quant_config.json"), "{}").unwrap();
    let error = Checkpoint::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("quantised with modelopt (hf_quant_config.json)"), "{error}");
}
