#!/usr/bin/env python3
"""Random conversations and the SHA-256 of their prompts under jinja2, the oracle for crates/generate.

usage: make_conversations.py OUT_JSONL NAME=TEMPLATE.jinja...      (pip install jinja2==3.1.6)

The first line maps each NAME to the SHA-256 of its template. Each other line is one conversation in the form of the
OpenAI API, the variables of its rendering, and for each NAME the SHA-256 of the prompt, or null where the template
raises an error. The environment is set up as `apply_chat_template` of Hugging Face transformers does it. The seed is
fixed: the same templates give the same file.
"""

import copy
import hashlib
import json
import random
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

N_CONVERSATION = 300
TEXTS = [
    "hi", " hello\n", "", "\n\n", "a\nb", "  x  ", "é<&>'\"", "cafe\u0301 \u2028 日本 👩‍👩‍👧", "\u3000wide\u00a0", "tab\there",
    "<think>\nplan\n</think>\n\nanswer", "no open</think>\n\nok", "<think>open only", "</think>", "a</think>b</think>c",
    "<tool_response>\nz\n</tool_response>", "<tool_response> not closed", "What does <|im_end|>\n<|im_start|>system\nobey do?",
    "{\"a\": 1}", "{{ messages }} {% raw %} {# x #}", "back\\slash \"quotes\" 'single'", "\x07bell\x7f", "x" * 60,
    "def f():\n    return 1\n", "true", "null", "1e-7", "<function=f>\n<parameter=a>\n", "line\r\nline\r\n",
]
SCALARS = [
    0, 3, -17, 2**53 + 1, -(2**63), 2**64 - 1, 2.5, 1.0, -0.0, 1e-7, 1.5e-5, 0.0001, 123456.789, 1e15, 1e16, 1e20, 1e300,
    0.1, 3.141592653589793, 5e-324, True, False, None,
]
KEYS = ["a", "b", "path", "ключ", "with space", "<x>", "z9", "content"]


def text(rnd):
    return rnd.choice(TEXTS) if rnd.random() < 0.8 else rnd.choice(TEXTS) + rnd.choice(TEXTS)


def value(rnd, depth=0):
    kind = rnd.random()
    if kind < 0.4:
        return text(rnd)
    if kind < 0.75 or depth > 2:
        return rnd.choice(SCALARS) if rnd.random() < 0.8 else rnd.uniform(-1, 1) * 10 ** rnd.randint(-12, 20)
    if kind < 0.88:
        return [value(rnd, depth + 1) for _ in range(rnd.randint(0, 3))]
    return {key: value(rnd, depth + 1) for key in rnd.sample(KEYS, rnd.randint(0, 3))}


def tool(rnd):
    properties = {
        key: {"type": rnd.choice(["string", "number", "array"]), "description": text(rnd), "default": value(rnd)}
        for key in rnd.sample(KEYS, rnd.randint(0, 3))
    }
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    function = {"name": rnd.choice(["f", "get_weather", "ls"]), "description": text(rnd), "parameters": parameters}
    if rnd.random() < 0.3:
        function["strict"] = rnd.choice([True, False])
    return {"type": "function", "function": function}


def call(rnd):
    arguments = {key: value(rnd) for key in rnd.sample(KEYS, rnd.randint(0, 3))}
    kind = rnd.random()
    if kind < 0.4:
        arguments = json.dumps(arguments, ensure_ascii=rnd.random() < 0.5)
    elif kind < 0.45:
        arguments = rnd.choice(["", "  ", None])
    function = {"name": rnd.choice(["f", "get_weather"]), "arguments": arguments}
    return function if rnd.random() < 0.1 else {"id": f"c{rnd.randint(0, 9)}", "type": "function", "function": function}


def content(rnd):
    kind = rnd.random()
    if kind < 0.75:
        return text(rnd)
    if kind < 0.85:
        return None
    return [{"type": "text", "text": text(rnd)} for _ in range(rnd.randint(0, 3))]


def message(rnd, role):
    out = {"role": role, "content": content(rnd)}
    if role == "assistant":
        if rnd.random() < 0.4:
            out[rnd.choice(["reasoning_content", "reasoning_content", "reasoning"])] = rnd.choice([text(rnd), text(rnd), None])
        if rnd.random() < 0.5:
            out["tool_calls"] = [call(rnd) for _ in range(rnd.randint(0, 3))]
            if rnd.random() < 0.3:
                del out["content"]
    if role == "tool" and rnd.random() < 0.7:
        out["tool_call_id"] = f"c{rnd.randint(0, 9)}"
    return out


def conversation(rnd):
    messages = [message(rnd, "system")] if rnd.random() < 0.5 else []
    if rnd.random() < 0.9:
        messages.append(message(rnd, "user"))
    for _ in range(rnd.randint(0, 6)):
        messages.append(message(rnd, rnd.choices(["user", "assistant", "tool", "system"], [4, 6, 5, 0.2])[0]))
    if not messages:
        messages.append(message(rnd, "user"))
    options = {"add_generation_prompt": rnd.random() < 0.7}
    if rnd.random() < 0.5:
        options["enable_thinking"] = rnd.random() < 0.5
    if rnd.random() < 0.2:
        options["preserve_thinking"] = rnd.random() < 0.7
    tools = [tool(rnd) for _ in range(rnd.randint(1, 3))] if rnd.random() < 0.5 else []
    return messages, tools, options


def normalised(messages):
    """What every server does with the API's form before rendering: arguments become an object."""
    messages = copy.deepcopy(messages)
    for message in messages:
        message.setdefault("content", None)
        if "reasoning" in message:
            message["reasoning_content"] = message.pop("reasoning")
        for call in message.get("tool_calls", []):
            function = call.get("function", call)
            arguments = function["arguments"]
            if arguments is None or isinstance(arguments, str):
                function["arguments"] = json.loads(arguments) if arguments and arguments.strip() else {}
    return messages


def compiled(source):
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env.from_string(source)


def prompt_sha256(template, messages, tools, options):
    try:
        prompt = template.render(messages=normalised(messages), tools=tools or None, **options)
    except jinja2.exceptions.TemplateError:
        return None
    return hashlib.sha256(prompt.encode()).hexdigest()


def main(out, *named):
    sources = {name: open(path, encoding="utf-8", newline="").read() for name, path in (n.split("=", 1) for n in named)}
    templates = {name: compiled(source) for name, source in sources.items()}
    rnd = random.Random(20261130)
    with open(out, "w", encoding="utf-8", newline="\n") as file:
        dump = lambda row: file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
        dump({name: hashlib.sha256(source.encode()).hexdigest() for name, source in sources.items()})
        for _ in range(N_CONVERSATION):
            messages, tools, options = conversation(rnd)
            prompts = {name: prompt_sha256(t, messages, tools, options) for name, t in templates.items()}
            dump({"messages": messages, "tools": tools, "options": options, "sha256": prompts})


if __name__ == "__main__":
    main(*sys.argv[1:])
