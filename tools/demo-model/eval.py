"""Evaluate weights: bits per byte on held-out prose and exactness of held-out tool calls (batched greedy decoding),
optionally with fake-quantised weights (affine, groups of 64) and fewer experts per token.

usage: eval.py --weights checkpoint.pt --assets DIR [--bits 16,8,4] [--experts 6,4] [--out results.json]
"""

import argparse
import json
import math
import os
import time

import torch
import torch.nn.functional as F

import checkpoint
from judge import print_table, read_lines, tabulate
from model import Config, Model
from quantisation import quantise
from render import Renderer

REPLY_TOKENS = 400
PROSE_CHARACTERS = 200_000
PROSE_CONTEXT = 1024
PROSE_BATCH = 16
CHECK_EVERY = 8  # tokens between looks whether all replies have ended


def left_padded(rows, multiple=64):
    """-> token ids and document numbers (0 is padding), each [rows, length]"""
    length = -(-max(map(len, rows)) // multiple) * multiple
    ids, documents = torch.zeros(2, len(rows), length, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, length - len(row) :] = torch.tensor(row)
        documents[i, length - len(row) :] = 1
    return ids, documents


@torch.no_grad()
def generate(model, renderer, prompts, limit=REPLY_TOKENS):
    """Greedy continuations of a batch of prompts, without the end token."""
    device = model.embed.device
    ids, documents = left_padded([renderer.encode(prompt) for prompt in prompts])
    logits, state = model.prefill(ids.to(device), documents.to(device), limit)
    alive = torch.ones(len(prompts), dtype=torch.bool, device=device)
    vocabulary = renderer.tokenizer.get_vocab_size()
    steps = []
    for _ in range(limit):
        token = logits[:, :vocabulary].argmax(-1)
        steps.append(torch.where(alive, token, renderer.turn_end))
        alive = alive & (token != renderer.turn_end) & (token != renderer.end_of_text)
        if len(steps) % CHECK_EVERY == 0 and not alive.any():
            break
        logits = model.step(token, state)
    texts = []
    for row in torch.stack(steps, 1).tolist():
        end = row.index(renderer.turn_end) if renderer.turn_end in row else len(row)
        texts.append(renderer.decode(row[:end]))
    return texts


def prompt_of(case, renderer):
    options = {"add_generation_prompt": True, "enable_thinking": case["think"]}
    return renderer.render(case["messages"], case["tools"], **options)


def reply_to(cases, model, renderer, batch):
    """The model's reply to every case; cases of similar length share a batch."""
    prompts = [prompt_of(case, renderer) for case in cases]
    order = sorted(range(len(cases)), key=lambda i: len(prompts[i]))
    texts = [None] * len(cases)
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        for i, text in zip(part, generate(model, renderer, [prompts[i] for i in part])):
            texts[i] = text
    return texts


@torch.no_grad()
def bits_per_byte(model, renderer, text):
    ids = renderer.encode(text)
    count = len(ids) // PROSE_CONTEXT
    rows = torch.tensor(ids[: count * PROSE_CONTEXT]).view(count, PROSE_CONTEXT).to(model.embed.device)
    nats, tokens = 0.0, 0
    for batch in rows.split(PROSE_BATCH):
        hidden, _ = model.hidden(batch, torch.zeros_like(batch), torch.float32, grouped=False)
        log_probability = F.log_softmax(model.logits(hidden[:, :-1], torch.float32), -1)
        nats -= log_probability.gather(-1, batch[:, 1:, None]).sum().item()
        tokens += batch[:, 1:].numel()
    return nats / tokens / math.log(2) * len(ids) / len(text.encode())


def settings(bits, experts):
    """All bit widths with all experts, then fewer experts at full precision and at 4 bits."""
    yield from ((width, experts[0]) for width in bits)
    for width in dict.fromkeys([bits[0], 4]):
        if width in bits:
            yield from ((width, count) for count in experts[1:])


def evaluate(weights, bits, experts, renderer, cases, prose, options):
    """One row of the results, and the texts behind it."""
    model = Model(Config(top_k=experts)).to(options.device).eval()
    model.load_state_dict(weights if bits == 16 else quantise(weights, bits))
    row = {"bits": bits, "experts": experts}
    if prose:
        row["bpb"] = round(bits_per_byte(model, renderer, prose), 4)
    texts = reply_to(cases, model, renderer, options.batch)
    row["tools"] = tabulate(cases, texts)
    return row, texts


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", required=True, help="a training checkpoint or model.safetensors")
    parser.add_argument("--assets", required=True, help="folder with tokenizer.json, chat_template.jinja and so on")
    parser.add_argument("--bits", type=numbers, default=[16])
    parser.add_argument("--experts", type=numbers, default=[6], help="experts per token")
    parser.add_argument("--count", type=int, help="how many dialogues, if not all")
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--out", help="write the results as JSON")
    parser.add_argument("--texts", help="write the replies of the last setting as JSONL, for score.py")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("highest")
    renderer, config = Renderer(options.assets), Config()
    cases = read_lines(f"{options.assets}/heldout_tools.jsonl")[: options.count]
    prose_path, prose = f"{options.assets}/heldout_prose.txt", None
    if os.path.exists(prose_path):
        with open(prose_path, encoding="utf-8") as file:
            prose = file.read(PROSE_CHARACTERS)
    weights = checkpoint.from_stored(checkpoint.to_stored(checkpoint.load(options.weights, config), config), config)
    rows = []
    for bits, experts in settings(options.bits, options.experts):
        start = time.time()
        row, texts = evaluate(weights, bits, experts, renderer, cases, prose, options)
        rows.append(row)
        print(f"\n{bits} bits, {experts} experts, {row.get('bpb')} bits per byte, {time.time() - start:.0f} s")
        print_table(row["tools"])
        if options.out:
            with open(options.out, "w", encoding="utf-8") as file:
                json.dump(rows, file, indent=1)
        if options.texts:
            with open(options.texts, "w", encoding="utf-8") as file:
                for case, text in zip(cases, texts):
                    file.write(json.dumps({"id": case["id"], "text": text}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
