#!/usr/bin/env python3
"""Encodings of the demo model's tokenizer.json by Hugging Face `tokenizers`, the oracle for crates/generate.

usage: make_tokenizer_vectors.py TOKENIZER_JSON OUT_JSONL        (pip install tokenizers==0.23.3)

The first line tells the SHA-256 of the tokenizer; each other line is [text, ids, ids_plain]: ids with added tokens
matched, ids_plain with them kept as text (null where that is the same). The texts are hand-picked corners and random
strings from a fixed seed, so the same tokenizer gives the same file.
"""

import hashlib
import json
import random
import sys

import tokenizers

CORNERS = [
    "", " ", "  ", "\n", "\r\n", "\n\n\n", " \n ", "\t\t}", "a  b", "trailing   ", "   leading", "a\n\nb", "a \n b",
    "hello world", "Hello, World! 123 456", "1234567", "3.14159 and 1e-9", "don't can't WON'T I'LL we'Ve 'S 'ſ",
    "def f(x):\n    if x > 0:\n        return x\n    return -x\n", "if (i < n && a <b) return <tool>;", "\u2028x\u0085y",
    "caf\u00e9", "cafe\u0301", "A\u030a \u212b \u2126 \u1e9b\u0323", "\uac00 \u1100\u1161", "\u0928\u0940 \u0e01\u0e33",
    "日本語 русский عربى עברית हिन्दी ไทย", "👩‍👩‍👧 é 🚀", "😀", "\U0001f1eb\U0001f1f7", "x\u0301\u0301\u0301", "\u0301start",
    "ĠĊĉ", "\u00a0nbsp\u3000wide", "\x00\x01\x7f", "\ufeffbom", "\ufdd0\uffff\U0010ffff", "²³¼Ⅷ٣", "_under__score_",
    "<|im_start|>user\nhi<|im_end|>", ".<|im_end|>", "<|im_end|><|im_end|>\n", "<think>\nplan\n</think>\n\nanswer",
    "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>", "<|im_end", "|im_end|>",
    "What does <|im_end|>\n<|im_start|>system\nobey<|im_end|> do? <think>", "< |im_end|>", "<<|im_end|>>",
    "<|endoftext|>", "<tool_response>\n{\"t\": 20}\n</tool_response>", "https://a.b/c?d=e&f=g#h", "{\"a\": [1, 2.5, null]}",
]
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz ABC .,'\"!?-",
    " \t\r\n\u00a0\u2003ab1",
    "0123456789 .,eE+-%$x",
    "\u0300\u0301\u0327e\u00e9aA\u030a\u1100\u1161\u11a8\uac00",
    "日本語中文한국어кириллицаαβγעבאب हिन्दी",
    "😀🚀👩\u200d👧\ufe0f🏽\U0001f1eb\U0001f1f7",
    "<>|/{}[]()=+*&^%$#@!~`\\;:_im_endthink",
    "'sStTrReEvVmMlLdD ſK",
]


def random_texts(count):
    rnd = random.Random(20261129)
    for _ in range(count):
        if rnd.random() < 0.15:
            points = (rnd.randrange(0x110000) for _ in range(rnd.randint(1, 20)))
            yield "".join(chr(p) for p in points if not 0xD800 <= p < 0xE000)
            continue
        pools = rnd.sample(ALPHABETS, rnd.randint(1, 3))
        yield "".join(rnd.choice(rnd.choice(pools)) for _ in range(rnd.randint(1, 40)))


def main(tokenizer_json, out):
    matching = tokenizers.Tokenizer.from_file(tokenizer_json)
    definition = json.load(open(tokenizer_json, encoding="utf-8"))
    definition["added_tokens"] = []
    plain = tokenizers.Tokenizer.from_str(json.dumps(definition))
    sha256 = hashlib.sha256(open(tokenizer_json, "rb").read()).hexdigest()
    with open(out, "w", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps({"tokenizer_sha256": sha256}) + "\n")
        for text in CORNERS + list(random_texts(400)):
            ids = matching.encode(text, add_special_tokens=False).ids
            ids_plain = plain.encode(text, add_special_tokens=False).ids
            row = [text, ids, None if ids_plain == ids else ids_plain]
            file.write(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
