"""Gives a store of `flash-moe synth` a tokenizer, so that it can be served. Needs the package xxhash.

FOLDER has tokenizer.json, tokenizer_config.json, chat_template.jinja, and generation_config.json if there is one.
Usage: add_tokenizer.py STORE FOLDER
"""

import json
import os
import shutil
import sys

import xxhash

STORE, FOLDER = sys.argv[1:3]
NAMES = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"]
PATH = os.path.join(STORE, "manifest.json")

with open(PATH, encoding="utf-8") as file:
    text = file.read()
head, mark, body = text.partition('"body":')
body = body.rstrip().removesuffix("}")
assert xxhash.xxh3_64_hexdigest(body.encode()) == json.loads(text)["xxh3"], "this is not how manifests are written"
sidecars = []
for name in NAMES:
    path = os.path.join(FOLDER, name)
    if not os.path.exists(path):
        continue
    shutil.copyfile(path, os.path.join(STORE, name))
    with open(path, "rb") as file:
        data = file.read()
    sidecars.append({"name": name, "bytes": len(data), "xxh3": xxhash.xxh3_64_hexdigest(data)})
old = json.dumps({"sidecars": json.loads(text)["body"]["sidecars"]}, separators=(",", ":"))[1:-1]
assert body.count(old) == 1, "the store has a field of another form"
body = body.replace(old, json.dumps({"sidecars": sidecars}, separators=(",", ":"))[1:-1])
head = head.replace(json.loads(text)["xxh3"], xxhash.xxh3_64_hexdigest(body.encode()))
with open(PATH, "w", encoding="utf-8") as file:
    file.write(head + mark + body + "}")
