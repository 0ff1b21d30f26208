//! Reading `config.json`: every accepted spelling, and what is refused.

mod common;

use common::*;
use convert::{Checkpoint, ConvertError};
use serde_json::{Value, json};
use store::{LayerKind, ModelConfig, RopeScaling};

fn open(tiny: &Tiny) -> Result<ModelConfig, ConvertError> {
    let dir = tempfile::tempdir().unwrap();
    tiny.write(dir.path());
    Checkpoint::open(dir.path()).map(|c| c.config().clone())
}

/// Sets (or, for null, removes) fields of the text configuration.
fn edited(layout: Layout, fields: &Value) -> Tiny {
    let mut tiny = Tiny::new(layout, 1);
    let text = tiny.text_config().as_object_mut().unwrap();
    for (key, value) in fields.as_object().unwrap() {
        if value.is_null() {
            text.remove(key);
        } else {
            text.insert(key.clone(), value.clone());
        }
    }
    tiny
}

fn check_reads(layout: Layout, fields: Value, expected: impl Fn(&ModelConfig) -> bool) {
    let config = open(&edited(layout, &fields)).unwrap_or_else(|e| panic!("{fields}: {e}"));
    assert!(expected(&config), "{fields}: {config:?}");
}

fn check_refused(layout: Layout, fields: Value, says: &str) {
    let error = open(&edited(layout, &fields)).expect_err(&fields.to_string()).to_string();
    assert!(error.contains(says) && error.contains("config.json"), "{fields}: no '{says}' in: {error}");
}

#[test]
fn plain_files_of_all_architectures() {
    // A shape taken from the wrong field.
    let config = open(&Tiny::new(QWEN35, 1)).unwrap();
    let linear = config.linear.unwrap();
    assert_eq!(
        (config.d_model, config.n_vocab, config.n_layer(), config.n_ctx_train),
        (D_MODEL, N_VOCAB, N_LAYER, 4096)
    );
    assert_eq!(
        (config.n_head, config.n_head_kv, config.head_dim, config.n_rot),
        (N_HEAD, N_HEAD_KV, HEAD_DIM, 8)
    );
    assert_eq!((linear.n_head_k, linear.n_head_v, linear.n_conv), (N_HEAD_K, N_HEAD_V, N_CONV));
    assert_eq!((linear.head_dim_k, linear.head_dim_v), (D_K, D_V));
    assert_eq!(
        (config.n_expert, config.n_expert_used, config.d_ff_expert, config.d_ff_shared),
        (N_EXPERT, 2, D_FF, D_FF)
    );
    assert_eq!((config.rope_theta, config.rms_norm_eps, config.rope_scaling), (1e7, 1e-6, None));
    assert!(config.attention_gate && config.norm_topk_prob && !config.tie_word_embeddings);
    let full = config.layers.iter().map(|k| *k == LayerKind::FullAttention).collect::<Vec<_>>();
    assert_eq!(full, [false, false, false, true]);

    let config = open(&Tiny::new(QWEN3, 1)).unwrap();
    assert_eq!(
        (config.n_rot, config.rope_theta, config.d_ff_shared, config.linear),
        (HEAD_DIM, 1e6, 0, None)
    );
    assert!(!config.attention_gate && config.n_layer_of(LayerKind::FullAttention) == N_LAYER);
    let config = open(&Tiny::new(NEXT, 1)).unwrap();
    assert_eq!((config.n_rot, config.attention_gate), (8, true));
    assert!(open(&Tiny::new(Layout { is_tied: true, ..QWEN35 }, 1)).unwrap().tie_word_embeddings);
}

#[test]
fn other_spellings() {
    // A file written by another version of the tools, read with defaults instead of its values.
    let types = json!(["linear_attention", "linear_attention", "linear_attention", "full_attention"]);
    check_reads(QWEN35, json!({"layer_types": types, "full_attention_interval": 2}), |c| c.linear.is_some());
    check_reads(NEXT, json!({"full_attention_interval": null}), |c| c.layers[3] == LayerKind::FullAttention);
    for layout in [QWEN35, NEXT, QWEN3] {
        let renamed = json!({"num_experts": null, "num_local_experts": N_EXPERT});
        check_reads(layout, renamed, |c| c.n_expert == N_EXPERT);
        check_refused(
            layout,
            json!({"num_experts": null}),
            "field num_experts (or num_local_experts) is missing",
        );
    }
    check_reads(QWEN3, json!({"norm_topk_prob": false}), |c| !c.norm_topk_prob);
    check_reads(NEXT, json!({"norm_topk_prob": null}), |c| c.norm_topk_prob);
    check_reads(QWEN35, json!({"output_gate_type": "swish"}), |c| c.attention_gate);
    // Rotary settings: flat, nested, the factor apart from the base, or its default.
    let flat = json!({"rope_parameters": null, "rope_theta": 5e6, "partial_rotary_factor": 0.5});
    check_reads(QWEN35, flat, |c| (c.rope_theta, c.n_rot) == (5e6, 16));
    let nested = json!({"rope_theta": null, "rope_parameters": {"rope_theta": 5e6, "rope_type": "default"}});
    check_reads(NEXT, nested.clone(), |c| (c.rope_theta, c.n_rot) == (5e6, 8));
    check_reads(QWEN3, nested, |c| (c.rope_theta, c.n_rot) == (5e6, HEAD_DIM));
    let apart = json!({"rope_parameters": {"rope_theta": 5e6}, "partial_rotary_factor": 0.5});
    check_reads(QWEN35, apart, |c| (c.rope_theta, c.n_rot) == (5e6, 16));
    let mut at_top = edited(QWEN35, &json!({"rope_parameters": null}));
    at_top.config["rope_theta"] = json!(5e6);
    assert_eq!(open(&at_top).unwrap().rope_theta, 5e6);
    let yarn = Some(RopeScaling { factor: 4.0, n_ctx_original: 1024 });
    for key in ["rope_scaling", "rope_parameters"] {
        for type_key in ["rope_type", "type"] {
            let scaling = json!({type_key: "yarn", "factor": 4, "original_max_position_embeddings": 1024, "beta_fast": 32});
            check_reads(QWEN3, json!({key: scaling}), |c| c.rope_scaling == yarn && c.rope_theta == 1e6);
        }
    }
    // The text-only file of Qwen3.8 has everything at the top.
    let mut flat = Tiny::new(Layout { prefix: "model.", ..QWEN35 }, 1);
    flat.config = flat.config["text_config"].clone();
    assert_eq!(open(&flat).unwrap().d_model, D_MODEL);
    let mut tied = Tiny::new(Layout { is_tied: true, ..QWEN35 }, 1);
    tied.config.as_object_mut().unwrap().remove("tie_word_embeddings");
    assert!(open(&tied).unwrap().tie_word_embeddings);
}

#[test]
fn missing_fields_are_named() {
    // A shape that silently falls back to a class default.
    for key in [
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "max_position_embeddings",
        "rms_norm_eps",
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "shared_expert_intermediate_size",
        "linear_conv_kernel_dim",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "rope_theta",
    ] {
        check_refused(NEXT, json!({ key: null }), &format!("field {key}"));
    }
    check_refused(QWEN3, json!({"norm_topk_prob": null}), "field norm_topk_prob is missing");
    check_refused(QWEN3, json!({"model_type": null}), "field model_type is missing");
    check_refused(QWEN35, json!({"rope_parameters": null}), "field rope_theta is missing");
    check_refused(
        QWEN3,
        json!({"rope_scaling": {"rope_type": "yarn", "factor": 4}}),
        "original_max_position",
    );
}

#[test]
fn values_that_make_no_sense() {
    // Numbers that overflow, divide by zero or allocate absurdly later.
    for (key, value, says) in [
        ("hidden_size", json!(0), "hidden_size is 0"),
        ("hidden_size", json!(-1), "hidden_size is -1"),
        ("hidden_size", json!(2.5), "hidden_size is 2.5"),
        ("hidden_size", json!("128"), "hidden_size is \"128\""),
        ("num_hidden_layers", json!(1u64 << 60), "num_hidden_layers is 1152921504606846976"),
        ("num_hidden_layers", json!(1 << 23), "layers is 8388608"),
        ("num_experts", json!(1 << 19), "n_expert is 524288"),
        ("num_experts_per_tok", json!(5), "n_expert_used is 5"),
        ("num_attention_heads", json!(3), "n_head is 3"),
        ("linear_num_value_heads", json!(3), "linear.n_head_v is 3"),
        ("rms_norm_eps", json!(0.0), "rms_norm_eps is 0.0"),
        ("rope_theta", json!("1e6"), "rope_theta is \"1e6\""),
        ("partial_rotary_factor", json!(0.1), "partial_rotary_factor 0.1 of head_dim 32"),
        ("partial_rotary_factor", json!(2), "partial_rotary_factor 2 of head_dim 32"),
        ("layer_types", json!(["full_attention"]), "layer_types has 1 entries for 4"),
        ("layer_types", json!("full_attention"), "layer_types is not a list"),
        ("tie_word_embeddings", json!(1), "tie_word_embeddings is 1"),
    ] {
        check_refused(NEXT, json!({ key: value }), says);
    }
    check_refused(NEXT, json!({"num_hidden_layers": 4096, "num_experts": 65536}), "not believable");
}

#[test]
fn what_is_not_implemented_is_refused() {
    // A switch that would change the arithmetic, ignored.
    for (key, value, says) in [
        ("hidden_act", json!("gelu"), "hidden_act \"gelu\""),
        ("output_gate_type", json!("sigmoid"), "output_gate_type \"sigmoid\""),
        ("attn_output_gate", json!(false), "attn_output_gate false"),
        ("attention_bias", json!(true), "attention_bias true"),
        ("use_sliding_window", json!(true), "use_sliding_window true"),
        ("mlp_only_layers", json!([2]), "mlp_only_layers [2]"),
        ("decoder_sparse_step", json!(2), "decoder_sparse_step 2 makes dense layers"),
        ("layer_types", json!(["sliding_attention"]), "\"sliding_attention\" is not supported"),
        ("rope_scaling", json!({"rope_type": "llama3", "factor": 8}), "rope_type \"llama3\""),
        ("rope_scaling", json!({"type": "linear", "factor": 8}), "rope_type \"linear\""),
        (
            "rope_scaling",
            json!({"type": "yarn", "factor": 4, "original_max_position_embeddings": 9, "beta_fast": 8}),
            "yarn with beta_fast 8",
        ),
    ] {
        check_refused(NEXT, json!({ key: value }), says);
    }
    let linear = json!(["linear_attention", "full_attention", "full_attention", "full_attention"]);
    check_refused(QWEN3, json!({"layer_types": linear}), "qwen3_moe has no linear_attention layers");
    for (model_type, says) in [
        ("qwen4_exp", "qwen4_exp is another architecture"),
        ("qwen3_5", "qwen3_5 is a dense model"),
        ("llama", "model_type llama is not supported"),
    ] {
        let mut tiny = Tiny::new(QWEN35, 1);
        tiny.config["model_type"] = json!(model_type);
        let error = open(&tiny).unwrap_err().to_string();
        assert!(
            error.contains(says) && error.contains("supported: qwen3_5_moe, qwen3_5_moe_text"),
            "{error}"
        );
    }
    for bad in ["", "[]", "{\"model_type\"", "nul"] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.json"), bad).unwrap();
        let error = Checkpoint::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("config.json: not"), "{bad}: {error}");
    }
}
