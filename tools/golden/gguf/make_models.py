#!/usr/bin/env python3
"""Writes tests/golden/gguf/*.json: tiny GGUF models as the `gguf` package writes them, and their logits.

    pip install gguf==0.19.0 numpy==2.4.6 xxhash
    python tools/golden/gguf/make_models.py            # from the repository's root
    python tools/golden/gguf/make_models.py --files OUT  # keeps the files too

A file of random weights is large and a recipe for it is small: the JSON has the metadata, the tensors with a seed each,
and the hash of every file that the package wrote. Tests build the same bytes, which the hash proves, and compare their
logits with those here: the float64 reference (tools/golden/model/reference.py) on the weights that the package decodes.

Numbers of a tensor: the bytes of splitmix64 from its seed on, where fields that must not be random are masked. `masks`
are [offset, bytes, and, or], little-endian, in every run of `step` bytes.
"""
import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import xxhash
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type, GGUFValueType as V, GGUFWriter
from gguf.quants import dequantize

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/golden/model"))
from reference import FULL, LINEAR, Config, Linear, Model  # noqa: E402

OUT = ROOT / "tests/golden/gguf"

D_MODEL = 256
D_FF = 256
N_EXPERT = 6
N_HEAD, N_HEAD_KV, HEAD_DIM = 4, 2, 64
N_LAYER, INTERVAL = 3, 3
N_CONV = 4
IDS = np.random.default_rng(0).integers(0, 256, 70)
POSITIONS = [0, 1, 31, 63, 64, 69]

BYTES = [chr(b) for b in [*range(33, 127), *range(161, 173), *range(174, 256)]] + [chr(256 + i) for i in range(68)]
TOKENS = BYTES + ["Ġt", "he", "Ġthe", "in"] + ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
TOKENS += ["<|fim_pad|>", "[PAD266]", "[PAD267]"]
TOKEN_TYPES = [1] * 260 + [3, 3, 3, 4, 4, 3, 5, 5]
MERGES = ["Ġ t", "h e", "Ġt he", "i n"]
N_VOCAB = len(TOKENS)


# --- numbers -----------------------------------------------------------------------------------------------------------


def random_bytes(seed, n):
    """The first n bytes of splitmix64 from `seed` on."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, -(-n // 8) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z.astype("<u8").view(np.uint8)[:n].copy()


def half(offset, exponent):
    """A positive half between 2^exponent and twice that."""
    return [offset, 2, 0x03FF, (exponent + 15) << 10]


def masks_of(kind, scale):
    """Fields of a block of `kind`, so that its numbers are about 2^scale."""
    name = kind.name
    if name == "F32":
        return [[0, 4, 0x807FFFFF, (scale + 127) << 23]]
    if name == "F16":
        return [[0, 2, 0x83FF, (scale + 15) << 10]]
    if name == "BF16":
        return [[0, 2, 0x807F, (scale + 127) << 7]]
    if name == "MXFP4":
        return [[0, 1, 1, scale + 127 - 1]]
    if name == "IQ1_M":
        # The half's top bits: its last nibble is on top of the fourth word, the one before on top of the third.
        bits = scale - 3 + 15
        return [[54, 2, 0x0FFF, (bits >> 2) << 12], [52, 2, 0x3FFF, (bits & 3) << 14]]
    # Where the scales are, and about how large the numbers are that they multiply, as a power of two.
    where, large = {
        "Q8_0": ([0], 6), "Q4_0": ([0], 2), "Q4_1": ([0], 3), "Q5_0": ([0], 3), "Q5_1": ([0], 4),
        "Q2_K": ([80], 4), "Q3_K": ([108], 5), "Q4_K": ([0], 8), "Q5_K": ([0], 9), "Q6_K": ([208], 10),
        "IQ2_XXS": ([0], 5), "IQ2_XS": ([0], 5), "IQ2_S": ([0], 5), "IQ3_XXS": ([0], 6), "IQ3_S": ([0], 6),
        "IQ1_S": ([0], 3), "IQ4_NL": ([0], 5), "IQ4_XS": ([0], 9),
    }[name]  # fmt: skip
    masks = [half(offset, scale - large) for offset in where]
    # Minima take the mean away, about.
    if name in ("Q4_1", "Q5_1"):
        masks.append([2, 2, 0x03FF, 0x8000 | (scale + 15) << 10])
    if name in ("Q4_K", "Q5_K"):
        masks.append(half(2, scale - large + (3 if name == "Q4_K" else 4)))
    if name == "Q2_K":
        masks.append(half(82, scale - large + 1))
    return masks


def apply(data, step, masks):
    """Masks fields of every run of `step` bytes."""
    blocks = data.reshape(-1, step)
    for offset, n, keep, fixed in masks:
        field = sum(blocks[:, offset + i].astype(np.uint32) << (8 * i) for i in range(n))
        field = field & keep | fixed
        for i in range(n):
            blocks[:, offset + i] = (field >> (8 * i)) & 255
    return data


# --- a model -----------------------------------------------------------------------------------------------------------


class Form:
    """One model: its architecture, the type of each kind of tensor, and how it is cut."""

    def __init__(self, name, arch, types, *, linear=(2, 6, 64, 128), seed, **switches):
        self.name = name
        self.arch = arch
        self.types = types
        self.linear = linear
        self.switches = switches
        self.tensors = []  # name, type, numpy shape, step, masks, seed
        self.seed = seed
        self.data = {}

    def has(self, switch):
        """Is a variant of the layout asked for?"""
        return self.switches.get(switch, False)

    def type_of(self, what, layer):
        """The type of a kind of tensor; lists go by layer."""
        kind = self.types.get(what, self.types["other"])
        return Type[kind[layer % len(kind)] if isinstance(kind, list) else kind]

    def add(self, name, what, shape, layer=0, scale=None):
        """A matrix `[rows, cols]`, or a stack of them, of random numbers."""
        kind = self.type_of(what, layer)
        scale = -round(np.log2(shape[-1]) / 2) if scale is None else scale
        self.put(name, kind, shape, masks_of(kind, scale))

    def vector(self, name, shape, keep, fixed):
        """F32 numbers whose bits are masked."""
        self.put(name, Type.F32, shape, [[0, 4, keep, fixed]])

    def ones(self, name, n):
        """Numbers from 1/2 to 1 and to 2, as norms have them."""
        self.vector(name, (n,), 0x00FFFFFF, 0x3F000000)

    def put(self, name, kind, shape, masks):
        """A tensor."""
        block, step = GGML_QUANT_SIZES[kind]
        rows = int(np.prod(shape[:-1]))
        seed = self.seed * 1000 + len(self.tensors)
        data = apply(random_bytes(seed, rows * shape[-1] // block * step), step, masks)
        self.tensors.append([name, kind, shape, step, masks, seed])
        self.data[name] = data.reshape(*shape[:-1], -1)

    def weight(self, name):
        """A tensor's numbers as the package decodes them, in float64."""
        kind, shape = next((kind, shape) for other, kind, shape, *_ in self.tensors if other == name)
        if kind in (Type.F32, Type.F16):
            values = self.data[name].view("<f4" if kind == Type.F32 else "<f2")
        else:
            values = dequantize(self.data[name], kind)
        return values.reshape(shape).astype(np.float64)

    # --- layout

    def is_full(self, layer):
        """Does the layer have full attention?"""
        return self.arch == "qwen3moe" or (layer + 1) % INTERVAL == 0

    def build(self):
        """All tensors in file order."""
        self.add("token_embd.weight", "embed", (N_VOCAB, D_MODEL), scale=0)
        for layer in range(N_LAYER):
            self.block(layer, self.is_full(layer))
        self.ones("output_norm.weight", D_MODEL)
        if not self.has("tied"):
            self.add("output.weight", "output", (N_VOCAB, D_MODEL))
        if self.has("mtp"):
            p = f"blk.{N_LAYER}."
            self.block(N_LAYER, True)
            self.add(p + "nextn.eh_proj.weight", "attn", (D_MODEL, 2 * D_MODEL))
            for name in ("enorm", "hnorm", "shared_head_norm"):
                self.ones(f"{p}nextn.{name}.weight", D_MODEL)

    def block(self, layer, is_full):
        """One block."""
        p = f"blk.{layer}."
        self.ones(p + "attn_norm.weight", D_MODEL)
        if is_full:
            self.full(p, layer)
        else:
            self.delta(p, layer)
        after = "ffn_norm.weight" if self.arch == "qwen3moe" else "post_attention_norm.weight"
        self.ones(p + after, D_MODEL)
        self.add(p + "ffn_gate_inp.weight", "router", (N_EXPERT, D_MODEL))
        if self.has("fused"):
            self.add(p + "ffn_gate_up_exps.weight", "gate", (N_EXPERT, 2 * D_FF, D_MODEL), layer)
        else:
            self.add(p + "ffn_gate_exps.weight", "gate", (N_EXPERT, D_FF, D_MODEL), layer)
            self.add(p + "ffn_up_exps.weight", "up", (N_EXPERT, D_FF, D_MODEL), layer)
        self.add(p + "ffn_down_exps.weight", "down", (N_EXPERT, D_MODEL, D_FF), layer)
        if self.arch == "qwen3moe":
            return
        self.add(p + "ffn_gate_inp_shexp.weight", "router", (D_MODEL,))
        self.add(p + "ffn_gate_shexp.weight", "shared", (D_FF, D_MODEL))
        self.add(p + "ffn_up_shexp.weight", "shared", (D_FF, D_MODEL))
        self.add(p + "ffn_down_shexp.weight", "shared", (D_MODEL, D_FF))

    def full(self, p, layer):
        """Softmax attention."""
        q, kv = N_HEAD * HEAD_DIM * (1 if self.arch == "qwen3moe" else 2), N_HEAD_KV * HEAD_DIM
        if self.has("attn_qkv"):
            self.add(p + "attn_qkv.weight", "attn", (q + 2 * kv, D_MODEL), layer)
        else:
            self.add(p + "attn_q.weight", "attn", (q, D_MODEL), layer)
            self.add(p + "attn_k.weight", "attn", (kv, D_MODEL), layer)
            self.add(p + "attn_v.weight", "attn", (kv, D_MODEL), layer)
        self.add(p + "attn_output.weight", "attn", (D_MODEL, N_HEAD * HEAD_DIM), layer)
        self.ones(p + "attn_q_norm.weight", HEAD_DIM)
        self.ones(p + "attn_k_norm.weight", HEAD_DIM)

    def delta(self, p, layer):
        """Gated DeltaNet."""
        hk, hv, dk, dv = self.linear
        n_channel = 2 * hk * dk + hv * dv
        if self.has("ssm_in"):
            self.add(p + "ssm_in.weight", "attn", (n_channel + hv * dv, D_MODEL), layer)
        else:
            self.add(p + "attn_qkv.weight", "attn", (n_channel, D_MODEL), layer)
            self.add(p + "attn_gate.weight", "attn", (hv * dv, D_MODEL), layer)
        if self.arch == "qwen3next":
            self.add(p + "ssm_ba.weight", "ab", (2 * hv, D_MODEL), layer)
        else:
            self.add(p + "ssm_beta.weight", "ab", (hv, D_MODEL), layer)
            self.add(p + "ssm_alpha.weight", "ab", (hv, D_MODEL), layer)
        self.vector(p + "ssm_conv1d.weight", (n_channel, N_CONV), 0x80FFFFFF, 0x3E000000)
        self.vector(p + "ssm_a", (hv,), 0x01FFFFFF, 0xBE000000)  # -1/8 to -2
        self.vector(p + "ssm_dt.bias", (hv,), 0x80FFFFFF, 0x3F000000)
        self.ones(p + "ssm_norm.weight", dv)
        self.add(p + "ssm_out.weight", "out", (D_MODEL, hv * dv), layer)

    # --- metadata

    def metadata(self):
        """Keys, types and values, but for the architecture's."""
        u32, f32, text = V.UINT32, V.FLOAT32, V.STRING
        a = self.arch + "."
        keys = [
            ("general.type", text, "model"),
            ("general.name", text, f"Tiny {self.name}"),
            ("general.file_type", u32, 1),
            (a + "block_count", u32, N_LAYER + bool(self.has("mtp"))),
            (a + "context_length", u32, 4096),
            (a + "embedding_length", u32, D_MODEL),
            (a + "attention.head_count", u32, N_HEAD),
            (a + "attention.head_count_kv", u32, N_HEAD_KV),
            (a + "attention.key_length", u32, HEAD_DIM),
            (a + "attention.value_length", u32, HEAD_DIM),
            (a + "attention.layer_norm_rms_epsilon", f32, 1e-6),
            (a + "rope.freq_base", f32, 1e7),
            (a + "expert_count", u32, N_EXPERT),
            (a + "expert_used_count", u32, 2),
            (a + "expert_feed_forward_length", u32, D_FF),
        ]
        if self.arch != "qwen3moe":
            hk, hv, dk, dv = self.linear
            keys += [
                (a + "rope.dimension_count", u32, HEAD_DIM // 4),
                (a + "expert_shared_feed_forward_length", u32, D_FF),
                (a + "full_attention_interval", u32, INTERVAL),
                (a + "ssm.conv_kernel", u32, N_CONV),
                (a + "ssm.state_size", u32, dk),
                (a + "ssm.group_count", u32, hk),
                (a + "ssm.time_step_rank", u32, hv),
                (a + "ssm.inner_size", u32, hv * dv),
            ]
        if self.arch == "qwen35moe":
            keys.append((a + "rope.dimension_sections", [V.ARRAY, V.INT32], [3, 3, 2, 0]))
        if self.has("mtp"):
            keys.append((a + "nextn_predict_layers", u32, 1))
        return keys + [
            ("tokenizer.ggml.model", text, "gpt2"),
            ("tokenizer.ggml.pre", text, "qwen35" if self.arch == "qwen35moe" else "qwen2"),
            ("tokenizer.ggml.tokens", [V.ARRAY, V.STRING], TOKENS),
            ("tokenizer.ggml.token_type", [V.ARRAY, V.INT32], TOKEN_TYPES),
            ("tokenizer.ggml.merges", [V.ARRAY, V.STRING], MERGES),
            ("tokenizer.ggml.eos_token_id", u32, TOKENS.index("<|im_end|>")),
            ("tokenizer.ggml.add_bos_token", V.BOOL, False),
            ("tokenizer.chat_template", text, "{{ messages[0].content }}"),
        ]

    def write(self, folder):
        """Writes the model with the package; the files in order."""
        n = self.switches.get("n_file", 1)
        per_file = -(-len(self.tensors) // n)
        path = folder / f"{self.name}.gguf"
        writer = GGUFWriter(path, self.arch, split_max_tensors=per_file if n > 1 else 0)
        for key, kind, value in self.metadata():
            kind, inner = kind if isinstance(kind, list) else (kind, None)
            writer.add_key_value(key, value, kind, inner)
        for name, kind, shape, *_ in self.tensors:
            data = self.data[name]
            if kind in (Type.F32, Type.F16):
                data = data.view("<f4" if kind == Type.F32 else "<f2").reshape(shape)
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        files = [path] if n == 1 else sorted(folder.glob(f"{self.name}-0*.gguf"))
        return files, per_file

    # --- the reference

    def logits(self):
        """Of all positions, [n_ids, n_vocab]."""
        is_plain = self.arch == "qwen3moe"
        config = Config(
            layers=[FULL if self.is_full(i) else LINEAR for i in range(N_LAYER)],
            n_head=N_HEAD,
            n_head_kv=N_HEAD_KV,
            head_dim=HEAD_DIM,
            attention_gate=not is_plain,
            n_rot=HEAD_DIM if is_plain else HEAD_DIM // 4,
            rope_theta=1e7,
            linear=None if is_plain else Linear(*self.linear),
            n_expert_used=2,
            norm_topk_prob=True,
            rms_norm_eps=1e-6,
            tie_word_embeddings=bool(self.has("tied")),
            norm_is_offset=False,  # the factor itself is stored
        )
        return Model(config, self.hf_weights()).forward(IDS)

    def hf_weights(self):
        """Weights by the names, and in the order of value heads, that the reference knows."""
        plain = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
        plain["output.weight"] = "lm_head.weight"
        weights = {hf: self.weight(name) for name, hf in plain.items() if name in self.data}
        for layer in range(N_LAYER):
            p, hf = f"blk.{layer}.", f"model.layers.{layer}."
            weights[hf + "input_layernorm.weight"] = self.weight(p + "attn_norm.weight")
            after = "ffn_norm.weight" if self.arch == "qwen3moe" else "post_attention_norm.weight"
            weights[hf + "post_attention_layernorm.weight"] = self.weight(p + after)
            mixer = self.hf_full(p) if self.is_full(layer) else self.hf_delta(p)
            name = "self_attn." if self.is_full(layer) else "linear_attn."
            weights |= {hf + name + key: value for key, value in mixer.items()}
            weights |= {f"{hf}mlp.{key}": value for key, value in self.hf_moe(p).items()}
        return weights

    def hf_full(self, p):
        """Full attention."""
        if self.has("attn_qkv"):
            kv = N_HEAD_KV * HEAD_DIM
            q, k, v = np.split(self.weight(p + "attn_qkv.weight"), [-2 * kv, -kv])
        else:
            q, k, v = (self.weight(f"{p}attn_{x}.weight") for x in "qkv")
        return {
            "q_proj.weight": q,
            "k_proj.weight": k,
            "v_proj.weight": v,
            "o_proj.weight": self.weight(p + "attn_output.weight"),
            "q_norm.weight": self.weight(p + "attn_q_norm.weight"),
            "k_norm.weight": self.weight(p + "attn_k_norm.weight"),
        }

    def hf_delta(self, p):
        """Gated DeltaNet: files of Qwen3.5 have its value heads in another order."""
        hk, hv, dk, dv = self.linear
        r = hv // hk
        heads = np.arange(hv)
        if self.arch == "qwen35moe":
            # GGUF head J holds HF head (J mod hk)·r + J div hk; `heads[j]` is where HF head j is.
            heads = np.argsort((heads % hk) * r + heads // hk)
        rows = (heads[:, None] * dv + np.arange(dv)).reshape(-1)
        n_key = 2 * hk * dk
        channels = np.concatenate([np.arange(n_key), n_key + rows])
        weights = {
            "conv1d.weight": self.weight(p + "ssm_conv1d.weight")[channels][:, None],
            "A_log": np.log(-self.weight(p + "ssm_a")[heads]),
            "dt_bias": self.weight(p + "ssm_dt.bias")[heads],
            "norm.weight": self.weight(p + "ssm_norm.weight"),
            "out_proj.weight": self.weight(p + "ssm_out.weight")[:, rows],
        }
        if self.has("ssm_in"):
            weights["in_proj_qkvz.weight"] = self.weight(p + "ssm_in.weight")
            weights["in_proj_ba.weight"] = self.weight(p + "ssm_ba.weight")
            return weights
        weights["in_proj_qkv.weight"] = self.weight(p + "attn_qkv.weight")[channels]
        weights["in_proj_z.weight"] = self.weight(p + "attn_gate.weight")[rows]
        if self.arch == "qwen3next":
            b, a = np.split(self.weight(p + "ssm_ba.weight").reshape(hk, 2 * r, D_MODEL), 2, axis=1)
            weights["in_proj_b.weight"], weights["in_proj_a.weight"] = (x.reshape(hv, D_MODEL) for x in (b, a))
        else:
            weights["in_proj_b.weight"] = self.weight(p + "ssm_beta.weight")[heads]
            weights["in_proj_a.weight"] = self.weight(p + "ssm_alpha.weight")[heads]
        return weights

    def hf_moe(self, p):
        """Router, experts, shared expert."""
        if self.has("fused"):
            gate_up = self.weight(p + "ffn_gate_up_exps.weight")
        else:
            gate_up = np.concatenate([self.weight(f"{p}ffn_{x}_exps.weight") for x in ("gate", "up")], axis=1)
        weights = {
            "gate.weight": self.weight(p + "ffn_gate_inp.weight"),
            "experts.gate_up_proj": gate_up,
            "experts.down_proj": self.weight(p + "ffn_down_exps.weight"),
        }
        if self.arch == "qwen3moe":
            return weights
        for part in ("gate", "up", "down"):
            weights[f"shared_expert.{part}_proj.weight"] = self.weight(f"{p}ffn_{part}_shexp.weight")
        weights["shared_expert_gate.weight"] = self.weight(p + "ffn_gate_inp_shexp.weight").reshape(1, -1)
        return weights


F = {"router": "F32", "ab": "F32"}
FORMS = [
    Form("q8_0", "qwen35moe", F | {"other": "Q8_0"}, seed=1),
    Form(
        "q4_k_m", "qwen35moe", seed=2, mtp=True, linear=(4, 8, 64, 32),
        types=F | {
            "other": "Q4_K", "down": ["Q6_K", "Q4_K", "Q5_K"], "attn": ["Q8_0", "Q5_K"], "out": "Q5_K",
            "output": "Q6_K", "ab": "Q8_0", "shared": "Q6_K",
        },
    ),
    Form("q2_k", "qwen35moe", F | {"other": "Q2_K", "down": "Q3_K", "attn": "Q4_K", "out": "Q3_K"}, seed=3, tied=True),
    Form("iq4_xs", "qwen35moe", F | {"other": "IQ4_XS", "up": "IQ4_NL", "embed": "Q5_K"}, seed=4),
    Form(
        "mxfp4", "qwen35moe", seed=5, fused=True, mtp=True, n_file=3,
        types=F | {"other": "Q8_0", "gate": "MXFP4", "down": "MXFP4", "embed": "BF16", "ab": "BF16"},
    ),
    Form(
        "iq", "qwen35moe", seed=6,
        types=F | {
            "other": "Q6_K", "gate": ["IQ2_XXS", "IQ2_XS", "IQ1_S"], "up": ["IQ2_S", "IQ3_XXS", "IQ1_M"], "down": "IQ3_S",
        },
    ),
    Form(
        "legacy", "qwen35moe", seed=7, attn_qkv=True,
        types={
            "other": "F16", "gate": "Q4_0", "up": "Q4_1", "down": ["Q5_0", "Q5_1"], "attn": "BF16", "embed": "F32",
            "router": "F16",
        },
    ),
    Form("next", "qwen3next", F | {"other": "Q8_0", "gate": "Q4_K", "up": "Q4_K"}, seed=8),
    Form("next_old", "qwen3next", F | {"other": "F16"}, seed=9, ssm_in=True),
    Form("moe", "qwen3moe", F | {"other": "Q6_K", "gate": "Q4_K", "up": "Q4_K"}, seed=10, fused=True),
]  # fmt: skip


def recipe(form, files, per_file):
    """What a test needs to build the files."""
    keys = [["general.architecture", V.STRING, form.arch], *form.metadata()]
    entries = []
    for i in range(len(files)):
        if len(files) > 1:
            split = [["split.no", V.UINT16, i], ["split.count", V.UINT16, len(files)]]
            split.append(["split.tensors.count", V.INT32, len(form.tensors)])
        else:
            split = []
        metadata = [] if i else [[key, kind, value] for key, kind, value in keys]
        part = form.tensors[i * per_file : (i + 1) * per_file]
        tensors = [
            {"name": name, "type": int(kind), "dims": list(shape[::-1]), "seed": seed, "step": step, "masks": masks}
            for name, kind, shape, step, masks, seed in part
        ]
        xxh3 = xxhash.xxh3_64_hexdigest(files[i].read_bytes())
        entries.append({"name": files[i].name, "xxh3": xxh3, "metadata": metadata + split, "tensors": tensors})
    return entries


def main():
    """Writes all of them."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--files", type=Path, help="keep the GGUF files in this folder")
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.files or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for form in FORMS:
            form.build()
            files, per_file = form.write(folder)
            logits = form.logits()
            golden = {
                "files": recipe(form, files, per_file),
                "ids": IDS.tolist(),
                "positions": POSITIONS,
                "logits": [[round(float(x), 6) for x in logits[at]] for at in POSITIONS],
            }
            text = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
            (OUT / f"{form.name}.json").write_text(text + "\n", encoding="utf-8")
            print(f"{form.name}: {len(files)} files, {len(text)} bytes, logits std {logits.std():.3f}")


if __name__ == "__main__":
    main()
