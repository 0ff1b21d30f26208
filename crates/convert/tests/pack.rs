//! What is in a packed store, against an index-by-index reading of the checkpoint that it came from.

mod common;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use common::*;
use convert::{Bits, Checkpoint, PackOptions, PackReport, pack};
use quant::Format;
use store::{Architecture, Blob, ExpertLayer, ExpertPart, Role, Store, read_exact_at};

fn pack_quietly(source: &Path, out: &Path, options: &PackOptions) -> PackReport {
    let checkpoint = Checkpoint::open(source).unwrap();
    pack(&checkpoint, out, options, &mut |_| ()).unwrap()
}

fn options(bits: &str, group: u8, roles: &[&str]) -> PackOptions {
    let roles = roles.iter().map(|r| PackOptions::parse_role(r).unwrap()).collect();
    PackOptions { bits: bits.parse().unwrap(), group, roles, ..PackOptions::default() }
}

/// Tensor and its row that row `row` of a dense role is, by the formulas of the architecture.
fn source_row(tiny: &Tiny, role: Role, layer: Option<usize>, row: usize) -> (String, usize) {
    let in_model = |name: &str| format!("{}{name}", tiny.layout.prefix);
    let in_layer = |name: &str| in_model(&format!("layers.{}.{name}", layer.unwrap()));
    let linear = |name: &str| in_layer(&format!("linear_attn.{name}"));
    let attention = |name: &str| in_layer(&format!("self_attn.{name}.weight"));
    let shared = |name: &str| in_layer(&format!("mlp.shared_expert{name}.weight"));
    let is_next = tiny.layout.architecture == Architecture::Qwen3Next;
    // Qwen3-Next: key head g has q, k, then v and z of its value heads.
    let r = N_HEAD_V / N_HEAD_K;
    let group = 2 * D_K + 2 * r * D_V;
    let n_k = N_HEAD_K * D_K;
    let qkvz_row = |at: usize| (linear("in_proj_qkvz.weight"), at);
    let v_head = |row: usize| (row / D_V / r, row / D_V % r, row % D_V);
    let name = match role {
        Role::Embed => in_model("embed_tokens.weight"),
        Role::LmHead => "lm_head.weight".into(),
        Role::FinalNorm => in_model("norm.weight"),
        Role::InputNorm => in_layer("input_layernorm.weight"),
        Role::PostAttentionNorm => in_layer("post_attention_layernorm.weight"),
        Role::AttnQ => attention("q_proj"),
        Role::AttnK => attention("k_proj"),
        Role::AttnV => attention("v_proj"),
        Role::AttnO => attention("o_proj"),
        Role::AttnQNorm => attention("q_norm"),
        Role::AttnKNorm => attention("k_norm"),
        Role::LinearQkv if is_next && row < n_k => return qkvz_row(row / D_K * group + row % D_K),
        Role::LinearQkv if is_next && row < 2 * n_k => {
            return qkvz_row((row - n_k) / D_K * group + D_K + row % D_K);
        }
        Role::LinearQkv if is_next => {
            let (g, j, i) = v_head(row - 2 * n_k);
            return qkvz_row(g * group + 2 * D_K + j * D_V + i);
        }
        Role::LinearZ if is_next => {
            let (g, j, i) = v_head(row);
            return qkvz_row(g * group + 2 * D_K + r * D_V + j * D_V + i);
        }
        Role::LinearB if is_next => return (linear("in_proj_ba.weight"), row / r * 2 * r + row % r),
        Role::LinearA if is_next => return (linear("in_proj_ba.weight"), row / r * 2 * r + r + row % r),
        Role::LinearQkv => linear("in_proj_qkv.weight"),
        Role::LinearZ => linear("in_proj_z.weight"),
        Role::LinearB => linear("in_proj_b.weight"),
        Role::LinearA => linear("in_proj_a.weight"),
        Role::LinearConv => linear("conv1d.weight"),
        Role::LinearALog => linear("A_log"),
        Role::LinearDtBias => linear("dt_bias"),
        Role::LinearNorm => linear("norm.weight"),
        Role::LinearOut => linear("out_proj.weight"),
        Role::Router => in_layer("mlp.gate.weight"),
        Role::SharedGate => shared(".gate_proj"),
        Role::SharedUp => shared(".up_proj"),
        Role::SharedDown => shared(".down_proj"),
        Role::SharedExpertGate => shared("_gate"),
    };
    (name, row)
}

/// A row as it should read back: shifted, quantised, decoded.
fn expected_row(
    tiny: &Tiny,
    (name, row): (String, usize),
    cols: usize,
    shift: f32,
    format: Format,
) -> Vec<f32> {
    let tensor = tiny.tensor(&name);
    let row: Vec<f32> = tensor.values[row * cols..][..cols].iter().map(|w| w + shift).collect();
    let mut codes = vec![0; format.row_bytes(cols)];
    let mut scales = vec![0; format.scale_row_bytes(cols)];
    let mut biases = scales.clone();
    quant::encode_row(format, &row, &mut codes, &mut scales, &mut biases).unwrap();
    let mut out = vec![0.0; cols];
    quant::decode_row(format, &codes, &scales, &biases, &mut out);
    out
}

fn format_for(tiny: &Tiny, role: Role, options: &PackOptions) -> Format {
    use Role::*;
    let careful = matches!(role, Embed | LmHead | Router | SharedExpertGate | LinearA | LinearB);
    match options.bits {
        _ if role.is_f32() => Format::F32,
        Bits::Source => source_format(tiny),
        Bits::N(_) if careful => Format::Affine { bits: 8, group: options.group },
        Bits::N(bits) => Format::Affine { bits, group: options.group },
        Bits::Fp8 => unreachable!("tests/forms.rs has those"),
    }
}

fn source_format(tiny: &Tiny) -> Format {
    tiny.layout.dtype.to_lowercase().parse().unwrap()
}

fn check_dense(tiny: &Tiny, store: &Store, options: &PackOptions) {
    use Role::*;
    let dense = store.load_dense(&mut |_| ()).unwrap();
    let zero_centred = tiny.layout.architecture != Architecture::Qwen3Moe;
    for shape in store.config().dense_shapes() {
        let what = format!("{} of layer {:?}", shape.role, shape.layer);
        let matrix = dense.matrix(shape.role, shape.layer);
        let view = matrix.view();
        assert_eq!((view.rows, view.cols), (shape.rows, shape.cols), "{what}");
        assert_eq!(view.format, format_for(tiny, shape.role, options), "{what}");
        let is_norm = matches!(shape.role, FinalNorm | InputNorm | PostAttentionNorm | AttnQNorm | AttnKNorm);
        let shift = if is_norm && zero_centred { 1.0 } else { 0.0 };
        let mut got = vec![0.0; shape.cols];
        for row in 0..shape.rows {
            view.decode_row(row, &mut got);
            let source = source_row(tiny, shape.role, shape.layer, row);
            let expected = expected_row(tiny, source, shape.cols, shift, view.format);
            assert_eq!(got, expected, "row {row} of {what}");
        }
    }
}

fn check_experts(tiny: &Tiny, store: &Store, format: Format) {
    let config = store.config();
    for (layer, experts) in store.manifest().experts.iter().enumerate() {
        assert_eq!(experts.formats, [format; 3]);
        let Blob::File(path) = store.expert_blob(layer) else { panic!("a folder has files") };
        let file = fs::File::open(path).unwrap();
        let stride = ExpertLayer::stride_bytes(&experts.formats, config);
        for expert in 0..N_EXPERT {
            let mut record = vec![0; stride];
            read_exact_at(&file, &mut record, (expert * stride) as u64).unwrap();
            let parts = ExpertLayer::parts(&experts.formats, config, &record);
            for (part, matrix) in ExpertPart::ALL.into_iter().zip(parts) {
                let mut got = vec![0.0; matrix.cols];
                for row in 0..matrix.rows {
                    matrix.decode_row(row, &mut got);
                    let source = expert_row(tiny, layer, expert, part, row);
                    let expected = expected_row(tiny, source, matrix.cols, 0.0, format);
                    assert_eq!(got, expected, "row {row} of {part} of expert {expert} of layer {layer}");
                }
            }
        }
    }
}

fn expert_row(tiny: &Tiny, layer: usize, expert: usize, part: ExpertPart, row: usize) -> (String, usize) {
    let p = format!("{}layers.{layer}.mlp.experts.", tiny.layout.prefix);
    match (tiny.layout.is_fused, part) {
        (true, ExpertPart::Gate) => (format!("{p}gate_up_proj"), expert * 2 * D_FF + row),
        (true, ExpertPart::Up) => (format!("{p}gate_up_proj"), expert * 2 * D_FF + D_FF + row),
        (true, ExpertPart::Down) => (format!("{p}down_proj"), expert * D_MODEL + row),
        (false, part) => (format!("{p}{expert}.{part}_proj.weight"), row),
    }
}

/// Packs and compares everything.
fn check(layout: Layout, bits: &str, group: u8) {
    println!("{layout:?} at {bits} bits, group {group}");
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("in"), dir.path().join("out"));
    let tiny = Tiny::new(layout, 7);
    tiny.write(&source);
    let options = options(bits, group, &[]);
    let report = pack_quietly(&source, &out, &options);
    let store = Store::open(&out).unwrap();
    assert_eq!(store.config().architecture, layout.architecture);
    assert_eq!(store.manifest().name, "in");
    check_dense(&tiny, &store, &options);
    let format = match options.bits {
        Bits::Source => source_format(&tiny),
        Bits::N(bits) => Format::Affine { bits, group },
        Bits::Fp8 => unreachable!("tests/forms.rs has those"),
    };
    check_experts(&tiny, &store, format);
    assert_eq!(report.errors.is_empty(), options.bits == Bits::Source, "{:?}", report.errors);
    let verified = store.verify(&mut |_| ()).unwrap();
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
}

#[test]
fn every_layout_reads_back() {
    // A row in the wrong place, a norm not shifted, experts mixed up, gate and up swapped, for any layout.
    for layout in [QWEN35, NEXT, QWEN3] {
        check(layout, "4", 64);
        check(Layout { is_fused: !layout.is_fused, n_shard: 5, ..layout }, "source", 64);
    }
    check(Layout { prefix: "model.", dtype: "F16", is_tied: true, ..QWEN35 }, "source", 64);
    check(Layout { dtype: "F32", ..NEXT }, "source", 64);
    check(Layout { dtype: "F16", is_tied: true, ..QWEN3 }, "8", 32);
    for (bits, group) in [("8", 64), ("6", 32), ("5", 64), ("3", 64), ("2", 32)] {
        check(Layout { dtype: "F32", ..QWEN35 }, bits, group);
    }
}

#[test]
fn blocks_of_rows_join() {
    // A tensor that is cut into several blocks: a block in the wrong place, or finished before its last one came.
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("in"), dir.path().join("out"));
    let mut tiny = Tiny::new(QWEN3, 11);
    let n_vocab = 70_000; // Of 128: more than two blocks of 4 Mi numbers.
    tiny.config["vocab_size"] = n_vocab.into();
    for name in ["model.embed_tokens.weight", "lm_head.weight"] {
        tiny.remove(name);
        tiny.add(&mut Random(3), name.into(), &[n_vocab, D_MODEL]);
    }
    tiny.write(&source);
    let options = options("8", 64, &[]);
    pack_quietly(&source, &out, &options);
    check_dense(&tiny, &Store::open(&out).unwrap(), &options);
}

#[test]
fn overrides_and_misfits() {
    // --role that changes nothing, a misfit that is silently stored otherwise, an expert stored unquantised unasked.
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("in"), dir.path().join("out"));
    Tiny::new(QWEN35, 1).write(&source);
    let asked =
        options("4", 64, &["lm_head=6", "expert_down=8", "linear_a=source", "experts=2", "expert_down=3"]);
    let report = pack_quietly(&source, &out, &asked);
    let store = Store::open(&out).unwrap();
    let format = |role| store.manifest().dense.iter().find(|d| d.role == role).unwrap().format.to_string();
    assert_eq!(
        [Role::LmHead, Role::LinearA, Role::LinearB].map(format),
        ["affine6g64", "bf16", "affine8g64"]
    );
    assert_eq!(
        store.manifest().experts[0].formats.map(|f| f.to_string()),
        ["affine2g64", "affine2g64", "affine3g64"]
    );
    let expert = report.errors.iter().find(|e| e.role == "expert_gate").unwrap();
    assert!(expert.relative_rms > 0.25 && expert.relative_rms < 0.6, "{expert:?}");
    let notes = report.notes.join("\n");
    for part in
        ["left out: vision: 1 tensors", "left out: multi-token prediction: 2 tensors", "% off: expect broken"]
    {
        assert!(notes.contains(part), "{part}: {notes}");
    }

    // Rows of 64 do not fit groups of 128: the shared expert's down gets smaller groups, the routed one is refused.
    let checkpoint = Checkpoint::open(&source).unwrap();
    let refused = dir.path().join("refused");
    let error = pack(&checkpoint, &refused, &options("4", 128, &[]), &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("mlp.experts.down_proj") && error.contains("--group 32"), "{error}");
    let out = dir.path().join("g128");
    let report = pack_quietly(&source, &out, &options("4", 128, &["expert_down=source"]));
    let notes = report.notes.join("\n");
    assert!(notes.contains("shared_down stored as affine8g32") && notes.contains("(4 tensors)"), "{notes}");
    for (roles, says) in [
        (
            &["expert_down=source", "shared=4"][..],
            "mlp.shared_expert.down_proj.weight: affine4g128 needs rows of",
        ),
        (&["expert_down=8"], "mlp.experts.down_proj: affine8g128 needs rows of a multiple of 128"),
    ] {
        let error =
            pack(&checkpoint, &refused, &options("4", 128, roles), &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(!refused.exists() && !dir.path().join("refused.partial").exists());
    let qwen3 = dir.path().join("qwen3");
    Tiny::new(QWEN3, 1).write(&qwen3);
    let result =
        pack(&Checkpoint::open(&qwen3).unwrap(), &refused, &options("4", 64, &["linear=8"]), &mut |_| ());
    assert!(result.unwrap_err().to_string().contains("this model has none"));
}

#[test]
fn sidecars_are_kept_as_they_are() {
    // A chat template or tokenizer lost or rewritten; an old tokenizer kept beside the new one.
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("in"), dir.path().join("out"));
    Tiny::new(QWEN3, 1).write(&source);
    let kept = ["config.json", "chat_template.jinja", "generation_config.json", "tokenizer.json"];
    for name in ["chat_template.jinja", "generation_config.json", "vocab.json", "README.md"] {
        fs::write(source.join(name), format!("é {name}\r\n")).unwrap();
    }
    pack_quietly(&source, &out, &options("4", 64, &[]));
    let store = Store::open(&out).unwrap();
    for name in kept {
        assert_eq!(store.sidecar(name).unwrap(), Some(fs::read(source.join(name)).unwrap()), "{name}");
    }
    assert_eq!(store.manifest().sidecars.len(), kept.len(), "{:?}", store.manifest().sidecars);
    fs::remove_file(source.join("tokenizer.json")).unwrap();
    let out = dir.path().join("old");
    let report = pack_quietly(&source, &out, &options("4", 64, &[]));
    assert!(Store::open(&out).unwrap().sidecar("vocab.json").unwrap().is_some());
    assert!(report.notes.iter().any(|n| n.contains("no tokenizer.json")), "{:?}", report.notes);
}

#[test]
fn resuming_gives_the_same_bytes() {
    // Killed anywhere and run again: a piece missing, done twice in the wrong place, or kept from another source.
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("in");
    Tiny::new(NEXT, 5).write(&source);
    let whole = dir.path().join("whole");
    let options = options("4", 64, &[]);
    pack_quietly(&source, &whole, &options);
    let expected = tree(&whole);
    for stop_after in [0, 1, 20, 60, 79] {
        let out = dir.path().join(format!("stopped after {stop_after}"));
        let checkpoint = Checkpoint::open(&source).unwrap();
        let mut n_step = 0;
        let mut stop = |_| {
            n_step += 1;
            assert!(n_step <= stop_after, "stopped on purpose");
        };
        catch_unwind(AssertUnwindSafe(|| pack(&checkpoint, &out, &options, &mut stop))).unwrap_err();
        assert!(Store::open(&out).is_err(), "an unfinished store must not open");
        let mut first_done = None;
        let report = pack(&checkpoint, &out, &options, &mut |p| {
            if p.what == "starting" {
                first_done = Some(p.done_bytes);
            }
        });
        let report = report.unwrap();
        assert_eq!(report.resumed_bytes > 0, stop_after > 0, "after {stop_after}: {report:?}");
        assert_eq!(first_done > Some(0), stop_after > 0, "after {stop_after}");
        assert!(tree(&out) == expected, "bytes differ after {stop_after}");
    }
}

#[test]
fn a_changed_source_is_not_resumed() {
    // Same names and sizes, other weights: pieces of the old one in the new store.
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("in"), dir.path().join("out"));
    Tiny::new(NEXT, 5).write(&source);
    let options = options("4", 64, &[]);
    let mut n_step = 0;
    let mut stop = |_| {
        n_step += 1;
        assert!(n_step <= 50, "stopped on purpose");
    };
    let checkpoint = Checkpoint::open(&source).unwrap();
    catch_unwind(AssertUnwindSafe(|| pack(&checkpoint, &out, &options, &mut stop))).unwrap_err();
    let other = Tiny::new(NEXT, 6);
    other.write(&source);
    // Clocks of file systems are coarse; the change must be seen whatever they say.
    let weights = fs::File::options().write(true).open(source.join("model.safetensors")).unwrap();
    weights.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1)).unwrap();
    let report = pack_quietly(&source, &out, &options);
    assert_eq!(report.resumed_bytes, 0);
    check_dense(&other, &Store::open(&out).unwrap(), &options);
}

#[test]
fn progress_counts_every_byte_of_the_source() {
    // A bar that stops short of the end, runs over it, or goes backwards.
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("in"), dir.path().join("out"));
    Tiny::new(QWEN35, 5).write(&source);
    let checkpoint = Checkpoint::open(&source).unwrap();
    let mut seen = Vec::new();
    let options = options("4", 64, &[]);
    let report =
        pack(&checkpoint, &out, &options, &mut |p| seen.push((p.done_bytes, p.total_bytes))).unwrap();
    assert!(seen.is_sorted_by_key(|(done, _)| *done), "{seen:?}");
    assert_eq!(seen.last().unwrap(), &(checkpoint.weight_bytes(), checkpoint.weight_bytes()));
    assert_eq!(report.in_bytes, checkpoint.weight_bytes());
    let files: u64 = tree(&out).iter().map(|(_, bytes)| bytes.len() as u64).sum();
    assert_eq!(report.out_bytes, files);
}

#[test]
fn paths_of_all_kinds() {
    // Spaces, non-ASCII, links into a hub's cache, a single file, a missing parent of the output.
    let dir = tempfile::tempdir().unwrap();
    let tiny = Tiny::new(Layout { n_shard: 2, ..QWEN3 }, 5);
    let options = options("4", 64, &[]);
    let hub = dir.path().join("模型 été/models--Qwen--Qwen3 30B");
    let snapshot = hub.join("snapshots/0123abc");
    tiny.write(&hub.join("blobs"));
    fs::create_dir_all(&snapshot).unwrap();
    for (name, _) in tree(&hub.join("blobs")) {
        // Where not every user may make links, hub caches have copies.
        #[cfg(unix)]
        std::os::unix::fs::symlink(Path::new("../../blobs").join(&name), snapshot.join(&name)).unwrap();
        #[cfg(not(unix))]
        fs::copy(hub.join("blobs").join(&name), snapshot.join(&name)).unwrap();
    }
    for (i, source) in [snapshot.clone(), snapshot.join(shard_name(0, 2))].iter().enumerate() {
        let out = dir.path().join(format!("出力 {i}/new/out dir"));
        pack_quietly(source, &out, &options);
        let store = Store::open(&out).unwrap();
        assert_eq!(store.manifest().name, "Qwen3 30B");
        check_dense(&tiny, &store, &options);
    }
}
