"""Judge a generated reply to a held-out dialogue: parse its tool calls and compare them with the expected ones."""

import json
import re
from dataclasses import dataclass, field

CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.S)
FUNCTION = re.compile(r"\n<function=([^>\n]+)>\n(.*?)</function>\n", re.S)
PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>\n(?=<parameter=|$)", re.S)
MEASURES = ("exact", "syntax", "schema", "called")
BOOLEANS = {"true": True, "false": False}


@dataclass
class Reply:
    calls: list = field(default_factory=list)  # (function name, {parameter: text})
    text: str = ""  # what remains without the calls
    well_formed: bool = True


@dataclass
class Verdict:
    exact: bool  # the right functions with the right arguments; or no call where none is wanted
    syntax: bool  # every call is well-formed
    schema: bool  # and fits its function's schema
    called: bool  # there is a call, or what should be one


def without_thinking(text):
    """What follows the thinking, if there is any."""
    return text.split("</think>", 1)[-1]


def parse(text):
    """Read a reply strictly, as chat_template.jinja writes it.  Values stay text."""
    reply = Reply(text=CALL.sub("", text).strip())
    reply.well_formed = text.count("<tool_call>") == text.count("</tool_call>")
    for body in CALL.findall(text):
        function = FUNCTION.fullmatch(body)
        if not function:
            reply.well_formed = False
            continue
        arguments, rest = {}, function.group(2)
        while rest:
            parameter = PARAMETER.match(rest)
            if not parameter or parameter.group(1) in arguments:
                reply.well_formed = False
            if not parameter:
                break
            arguments[parameter.group(1)] = parameter.group(2)
            rest = rest[parameter.end() :]
        reply.calls.append((function.group(1), arguments))
    return reply


def typed(text, schema):
    """An argument as the JSON type its schema asks for; raises ValueError or KeyError if it is none."""
    kind = schema.get("type", "string")
    if kind == "string":
        return text
    if kind == "boolean":
        return BOOLEANS[text.strip().lower()]
    return {"integer": int, "number": float}.get(kind, json.loads)(text)


def typed_arguments(arguments, schema):
    """-> (arguments by type, whether they fit the schema)"""
    fits = all(name in arguments for name in schema.get("required", []))
    values = {}
    for name, text in arguments.items():
        values[name] = text
        try:
            values[name] = typed(text, schema["properties"][name])
        except (KeyError, ValueError):
            fits = False
        allowed = schema["properties"].get(name, {}).get("enum")
        if allowed and values[name] not in allowed:
            fits = False
    return values, fits


def canonical(name, arguments, schema):
    """A call as text that is equal for equal calls: 3 and 3.0 are the same where a number is wanted."""
    arguments = dict(arguments)
    for key, value in arguments.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and schema.get("properties", {}).get(key, {}).get("type") == "number":
            arguments[key] = float(value)
    return json.dumps([name, arguments], sort_keys=True, ensure_ascii=False)


def judge(case, text):
    """The verdict on a reply (with or without its thinking) to a case of heldout_tools.jsonl."""
    text = without_thinking(text) if case["think"] else text
    reply = parse(text)
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in case["tools"]}
    fits, made = reply.well_formed, []
    for name, arguments in reply.calls:
        if name in schemas:
            arguments, call_fits = typed_arguments(arguments, schemas[name])
            fits = fits and call_fits
        else:
            fits = False
        made.append(canonical(name, arguments, schemas.get(name, {})))
    if case["kind"] == "missing":
        exact = not reply.calls and "?" in reply.text
    elif case["kind"] == "notool":
        exact = not reply.calls and bool(reply.text)
    else:
        wanted = [canonical(c["name"], c["arguments"], schemas[c["name"]]) for c in case["expected"]]
        exact = reply.well_formed and sorted(made) == sorted(wanted)
    return Verdict(exact, reply.well_formed, fits, "<tool_call>" in text)


def groups(case):
    """The rows of the table that a case counts in."""
    yield f"{case['tier']} {case['kind']}"
    if not case["expected"]:
        yield "no call"
        return
    yield "all calls"
    yield f"{case['tier']} all calls"
    yield "think on" if case["think"] else "think off"


def tabulate(cases, texts):
    """Percentages by group: {group: {"n", "exact", "syntax", "schema", "called"}}"""
    verdicts = {}
    for case, text in zip(cases, texts):
        verdict = judge(case, text)
        for group in groups(case):
            verdicts.setdefault(group, []).append(verdict)
    table = {}
    for group, members in sorted(verdicts.items()):
        share = lambda attribute: round(100 * sum(getattr(v, attribute) for v in members) / len(members), 1)
        table[group] = {"n": len(members), **{name: share(name) for name in MEASURES}}
    return table


def print_table(table):
    print(f"{'':18} {'n':>4}" + "".join(f"{name:>8}" for name in MEASURES))
    for group, row in table.items():
        print(f"{group:18} {row['n']:4}" + "".join(f"{row[name]:8.1f}" for name in MEASURES))


def read_lines(path):
    """The objects of a JSONL file."""
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]
