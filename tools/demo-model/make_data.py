"""Generate training shards and the held-out tool dialogues.

Everything synthetic comes from the seeded generator in dialogues.py; source text comes from corpus.json.xz
(make_corpus.py).  Held-out dialogues use tool archetypes, request frames, function names and values that training never
sees (values: words whose CRC-32 is divisible by 16; names: function names whose CRC-32 is divisible by 8).

usage: make_data.py shards --assets DIR --out SHARDS --processes 14 --seconds 1200
       make_data.py heldout --assets DIR --out heldout_tools.jsonl
       make_data.py show --assets DIR
"""

import argparse
import json
import multiprocessing
import os
import random
import time

import numpy as np

from bank import Bank
from dialogues import Generator
from render import GLOSS_WEIGHT, PROSE_WEIGHT, Renderer

ROW = 2048
SHARD_ROWS = 192
WAITING_SHARDS = 4  # per process
PENDING_DOCUMENTS = 24
CASE_KINDS = ["single", "single", "select", "parallel", "single", "select"]
CASE_KINDS += ["parallel", "missing", "parallel", "notool", "select", "missing"]
HELD_OUT_CASES = 480


class Documents:
    """Draws training documents as (token ids, loss weights)."""

    def __init__(self, assets, seed):
        self.bank, self.rng = Bank(assets), random.Random(seed)
        self.generator = Generator(self.bank, self.rng, inventive=True)
        self.renderer = Renderer(assets)
        self.prose_lengths = [len(text) for text in self.bank.prose]

    def draw(self):
        kind = self.rng.random()
        if kind < 0.56:
            return self.renderer.tokens(*self.generator.dialogue())
        if kind < 0.57:
            return self.renderer.tokens(*self.generator.sample())
        if kind < 0.73:
            return self.renderer.tokens(*self.generator.drill())
        if kind < 0.95:
            return self.renderer.tokens(*self.generator.chat())
        return self.glosses() if kind < 0.955 else self.prose()

    def glosses(self):
        entries = self.rng.sample(self.bank.glosses, 8)
        text = "\n".join(f"{word} ({part_of_speech}): {gloss}" for word, part_of_speech, _, gloss in entries)
        ids = self.renderer.encode(text) + [self.renderer.end_of_text]
        return ids, np.full(len(ids), GLOSS_WEIGHT, np.uint8)

    def prose(self):
        """A stretch of prose from a line or word start."""
        (text,) = self.rng.choices(self.bank.prose, self.prose_lengths)
        position = self.rng.randrange(max(1, len(text) - 3000))
        start = text.rfind("\n" if self.rng.random() < 0.3 else " ", 0, position + 1) + 1
        ids = self.renderer.encode(text[start : start + self.rng.choice([1500, 3000, 6000])])
        return ids, np.full(len(ids), PROSE_WEIGHT, np.uint8)

    def filling(self, room):
        """Prose of exactly so many tokens, if the text is long enough."""
        (text,) = self.rng.choices(self.bank.prose, self.prose_lengths)
        position = self.rng.randrange(max(1, len(text) - 9000))
        ids = self.renderer.encode(text[text.rfind(" ", 0, position + 1) + 1 :][:9000])[:room]
        return ids, np.full(len(ids), PROSE_WEIGHT, np.uint8)


class Packer:
    """Packs documents into rows; what does not fit waits for a later row."""

    def __init__(self, documents):
        self.documents, self.pending = documents, []

    def next_document(self, room):
        """A document of at most `room` tokens: a waiting one, a new one, or filling."""
        for i, (ids, _) in enumerate(self.pending):
            if len(ids) <= room:
                return self.pending.pop(i)
        for _ in range(3 if room > 300 else 8):
            ids, weights = self.documents.draw()
            if len(ids) <= room:
                return ids, weights
            if len(ids) <= ROW and len(self.pending) < PENDING_DOCUMENTS:
                self.pending.append((ids, weights))
        return self.documents.filling(room)

    def shard(self):
        """-> token ids, loss weights and document numbers, each [rows, length]"""
        ids = np.zeros((SHARD_ROWS, ROW), np.uint16)
        weights, documents = np.zeros((SHARD_ROWS, ROW), np.uint8), np.zeros((SHARD_ROWS, ROW), np.uint8)
        for row in range(SHARD_ROWS):
            position, number = 0, 0
            while position < ROW:
                document, weight = self.next_document(ROW - position)
                part = slice(position, position + len(document))
                ids[row, part], weights[row, part], documents[row, part] = document, weight, number
                position, number = part.stop, number + 1
        return {"ids": ids, "w": weights, "doc": documents}


def produce(assets, out, producer, seconds):
    """Write shards for so long, waiting while the trainer has enough."""
    os.nice(5)
    packer, start, count = Packer(Documents(assets, producer)), time.time(), 0
    while time.time() - start < seconds:
        path = f"{out}/s{producer}_{count}"
        count += 1
        with open(path + ".tmp", "wb") as file:
            np.savez(file, **packer.shard())
        os.replace(path + ".tmp", path + ".npz")
        while waiting(out, producer) >= WAITING_SHARDS and time.time() - start < seconds:
            time.sleep(0.5)


def waiting(folder, producer):
    """How many shards of a producer the trainer has not read yet."""
    return sum(name.startswith(f"s{producer}_") for name in os.listdir(folder))


def write_shards(options):
    os.makedirs(options.out, exist_ok=True)
    processes = []
    for i in range(options.processes):
        arguments = (options.assets, options.out, 1000 * options.seed + i, options.seconds)
        processes.append(multiprocessing.Process(target=produce, args=arguments))
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def write_held_out(options):
    """The two tiers in turn: `new` (unseen tools, frames and values), `values` (only the values unseen)."""
    bank = Bank(options.assets)
    new = Generator(bank, random.Random(20261129), held_tools=True, held_values=True)
    values = Generator(bank, random.Random(20261130), held_values=True)
    with open(options.out, "w", encoding="utf-8") as file:
        for i in range(HELD_OUT_CASES):
            tier, generator = [("new", new), ("values", values)][i // len(CASE_KINDS) % 2]
            case = {"id": i, "tier": tier, **generator.case(CASE_KINDS[i % len(CASE_KINDS)])}
            file.write(json.dumps(case, ensure_ascii=False) + "\n")


def show(options):
    """Print a few conversations, the last with what the loss counts."""
    documents = Documents(options.assets, options.seed)
    generator, renderer = documents.generator, documents.renderer
    for conversation in (generator.dialogue, generator.dialogue, generator.drill, generator.chat):
        messages, tools = conversation()
        print(renderer.render(messages, tools), "=" * 80, sep="\n")
    messages, tools = generator.dialogue()
    ids, weights = renderer.tokens(messages, tools)
    print(renderer.render(messages, tools), "-" * 80, sep="\n")
    print(renderer.decode([token for token, weight in zip(ids, weights) if weight == weights.max()]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = {"shards": write_shards, "heldout": write_held_out, "show": show}
    parser.add_argument("command", choices=commands)
    parser.add_argument("--assets", required=True, help="folder with corpus.json.xz, tokenizer.json and so on")
    parser.add_argument("--out")
    parser.add_argument("--processes", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    commands[options.command](options)


if __name__ == "__main__":
    main()
