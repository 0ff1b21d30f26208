"""Compare chat_template.jinja with the upstream Qwen3.5 chat template on random conversations.

Without tools both must give the same text, or both must refuse.  With tools the system turns differ only in the
sentences around the tool list, so their JSON lines and the caller's own system text are compared instead.

usage: check_template.py UPSTREAM_TEMPLATE [--count 5000] [--seed 0]
"""

import argparse
import json
import random
import sys
from pathlib import Path

import jinja2

TEXTS = [
    "hi",
    " hello\n",
    "",
    "a\nb",
    "  x  ",
    "é<&>'\"",
    "日本 😀",
    "<think>\nplan\n</think>\n\nanswer",
    "no open</think>\n\nok",
    "a</think>\n\n  b</think>\n\n  c",
    "<tool_response>\nz\n</tool_response>",
]
VALUES = ["s", "multi\nline", "", 3, -2.5, 1e20, True, False, None, {"a": [1, "ü"]}, [1, {"b": None}], [], {}]
PARAMETERS = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
TOOLS = [
    {"type": "function", "function": {"name": "f", "description": "dé <x> & 'y'", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
]


class Refused(Exception):
    """Raised by a template through raise_exception."""


def load(path):
    """Compile a template the way chat front ends do."""

    def refuse(message):
        raise Refused(message)

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = refuse
    return environment.from_string(Path(path).read_text(encoding="utf-8"))


def random_content(rng):
    """A string, a list of text parts, or None."""
    text = rng.choice(TEXTS)
    return rng.choice(
        [text, [{"type": "text", "text": text}], [{"type": "text", "text": t} for t in (text, "!")], None]
    )


def random_call(rng):
    """A tool call, mostly in the API's function wrapper."""
    call = {
        "name": rng.choice("fg"),
        "arguments": {k: rng.choice(VALUES) for k in rng.sample("abc", rng.randint(0, 3))},
    }
    return {"type": "function", "function": call} if rng.random() < 0.8 else call


def random_messages(rng):
    """A conversation; about one in three is one that the templates should refuse."""
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": random_content(rng)})
    for _ in range(rng.randint(1, 8)):
        message = {
            "role": rng.choice(["user", "user", "assistant", "assistant", "tool"]),
            "content": random_content(rng),
        }
        if message["role"] == "assistant":
            if rng.random() < 0.4:
                message["reasoning_content"] = rng.choice(TEXTS)
            if rng.random() < 0.4:
                message["tool_calls"] = [random_call(rng) for _ in range(rng.randint(1, 3))]
        messages.append(message)
    if rng.random() < 0.03:
        messages.insert(rng.randint(0, len(messages)), {"role": rng.choice(["system", "developer"]), "content": "x"})
    return messages


def split_system(text, system_text):
    """Split a rendering into the JSON lines of its tools, the system text at the end of that turn, and the rest."""
    turn, rest = text.split("<|im_end|>\n", 1)
    tools = turn.split("<tools>\n", 1)[1].split("\n</tools>", 1)[0]
    own = system_text if system_text and turn.endswith("\n\n" + system_text) else ""
    return tools, own, rest


def render(template, messages, options):
    """The rendered text, or None if the template refuses the conversation."""
    try:
        return template.render(messages=messages, **options)
    except Refused:
        return None


def same(ours, theirs, messages, options):
    """Whether two renderings agree, up to the tool instructions."""
    if ours is None or theirs is None:
        return ours is theirs
    if not options.get("tools"):
        return ours == theirs
    content = messages[0]["content"] if messages[0]["role"] == "system" else ""
    text = content if isinstance(content, str) else "".join(part["text"] for part in content or [])
    return split_system(ours, text.strip()) == split_system(theirs, text.strip())


def check_refusals(template):
    """Images and other non-text parts must be refused."""
    for part in ({"type": "image"}, {"type": "image_url", "image_url": {"url": "x"}}, {"type": "video"}, "bare"):
        if render(template, [{"role": "user", "content": [part]}], {}) is not None:
            sys.exit(f"not refused: {part!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("upstream", help="path of the upstream template")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    ours = load(Path(__file__).with_name("chat_template.jinja"))
    theirs = load(options.upstream)
    check_refusals(ours)
    rng = random.Random(options.seed)
    tally = {"equal": 0, "both refuse": 0, "different": 0}
    for _ in range(options.count):
        messages = random_messages(rng)
        arguments = {"add_generation_prompt": rng.random() < 0.7, "tools": rng.choice([None, None, [], TOOLS])}
        if rng.random() < 0.6:
            arguments["enable_thinking"] = rng.choice([True, False])
        a = render(ours, messages, arguments)
        b = render(theirs, messages, arguments)
        if not same(a, b, messages, arguments):
            tally["different"] += 1
            print(f"DIFFERENT: {messages!r} {arguments!r}\n  ours   {a!r}\n  theirs {b!r}")
        else:
            tally["both refuse" if a is None else "equal"] += 1
    print(tally)
    sys.exit(tally["different"] > 0)


if __name__ == "__main__":
    main()
