"""Source text and hand-written tools, split into a part for training and a held-out part."""

import lzma
import json
import re
import zlib
from dataclasses import dataclass, field

import words

MODERN_PROSE = 330  # the first documents of the prose: before Shakespeare and Milton


def checksum(text):
    """CRC-32 of a text; decides which words are held out."""
    return zlib.crc32(text.encode())


def is_held_out(text):
    """Whether a word, name or sentence is never used as an argument value in training."""
    return checksum(text) % 16 == 0


def by_half(items):
    """{False: training half, True: held-out half}"""
    return {half: [item for item in items if is_held_out(item) == half] for half in (False, True)}


@dataclass
class Archetype:
    """One hand-written tool of toolbank.txt: its schema, and ways to ask for it."""

    names: list
    descriptions: list = field(default_factory=list)
    parameters: list = field(default_factory=list)  # (name variants, kind, required?, description)
    requests: list = field(default_factory=list)
    list_requests: list = field(default_factory=list)  # one sentence for several calls
    incomplete: list = field(default_factory=list)  # (missing parameter, request)
    results: list = field(default_factory=list)  # (field, kind)
    answers: list = field(default_factory=list)

    def add(self, tag, text):
        """Take in one line of toolbank.txt; the tags are explained at its top."""
        if tag == "d":
            self.descriptions = [part.strip() for part in text.split("|")]
        elif tag == "p":
            names, kind, required, description = (part.strip() for part in text.split(" : "))
            self.parameters.append((names.split(","), kind, required == "!", description))
        elif tag == "t":
            self.requests.append(text.replace("\\n", "\n"))
        elif tag == "x":
            self.list_requests.append(text.replace("\\n", "\n"))
        elif tag == "m":
            parameter, request = text.split(" ", 1)
            self.incomplete.append((parameter, request.replace("\\n", "\n")))
        elif tag == "r":
            self.results = re.findall(r"(\w+):((?:ch\([^)]*\))|\S+)", text)
        elif tag == "a":
            self.answers = [part.strip() for part in text.split(" | ")]


def read_archetypes(path):
    """{False: archetypes for training, True: held-out archetypes}"""
    archetypes, held_out = {False: [], True: []}, False
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            line = line.rstrip("\n")
            if line.startswith("## heldout"):
                held_out = True
            if not line or line.startswith("#"):
                continue
            tag, text = line[0], line[2:]
            if tag == "=":
                archetypes[held_out].append(Archetype([name.strip() for name in text.split("|")]))
            else:
                archetypes[held_out][-1].add(tag, text)
    return archetypes


class Bank:
    """Everything the generator draws from; dictionaries by half are {False: training, True: held out}."""

    def __init__(self, assets):
        with lzma.open(f"{assets}/corpus.json.xz", "rt", encoding="utf-8") as file:
            corpus = json.load(file)
        self.prose, self.chitchat, self.chatterbot = corpus["prose"], corpus["chitchat"], corpus["chatterbot"]
        self.tool_samples, self.reasoning_samples = corpus["glaive"], corpus["reason"]
        counts = {}
        for document in self.prose[:MODERN_PROSE]:
            for word in re.findall(r"[a-z]{3,11}", document):
                counts[word] = counts.get(word, 0) + 1
        self.words = by_half(
            sorted({entry[0] for entry in corpus["wordnet"] if re.fullmatch(r"[a-z]{3,11}", entry[0])})
        )
        self.common_words = {h: [word for word in self.words[h] if counts.get(word, 0) >= 5] for h in (False, True)}
        self.sentences = by_half(self.collect_sentences(corpus["wordnet"]))
        self.glosses = [e for e in corpus["wordnet"] if counts.get(e[0], 0) >= 6 and len(e[3].split('; "')[0]) < 110]
        self.first_names = by_half(words.FIRST_NAMES)
        self.last_names = by_half(words.LAST_NAMES)
        self.cities = by_half(words.CITIES)
        self.archetypes = read_archetypes(f"{assets}/toolbank.txt")

    def collect_sentences(self, wordnet):
        """Short sentences, to be used as values."""
        sentences = [turn for dialogue in self.chitchat for turn in dialogue if 12 < len(turn) < 110]
        for _, _, _, gloss in wordnet[::3]:
            if 15 < len(gloss) < 110:
                sentences.append(gloss.split(";")[0].split(" (")[0].strip().capitalize() + ".")
        for document in self.prose[:MODERN_PROSE]:
            for sentence in re.findall(r"[A-Z][^.!?\n]{20,110}[.!?]", document)[::8]:
                sentences.append(sentence.replace("\n", " "))
        return [sentence.strip() for sentence in sentences if sentence.strip() and "`" not in sentence]
