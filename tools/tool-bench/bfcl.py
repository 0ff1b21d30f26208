"""Cases of the Berkeley Function Calling Leaderboard against a server, with calls held to their schemas and without.

Data and checker are those of the PyPI package bfcl-eval, which this downloads into WORK; nothing else of it is used.
Every other answer is streamed. Needs: pip install jsonschema

usage: bfcl.py URL WORK [--model NAME] [--simple N] [--parallel N] [--max-tokens N] [--clients N] [--out FILE]
"""

import argparse
import collections
import concurrent.futures
import json
import subprocess
import sys
import types
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import jsonschema

PACKAGE = "bfcl-eval==2026.3.23"
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
CATEGORIES = {"simple": "simple_python", "parallel": "parallel"}
REASONS = {"stop", "length", "tool_calls"}
# What a small context cannot hold is refused, which is no error of the protocol.
TOO_LONG = "context_length_exceeded"


class ProtocolError(Exception):
    """An answer that the protocol does not allow."""


def unpack(work):
    """-> the package's folder"""
    root = Path(work) / "bfcl"
    if not root.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(work), PACKAGE]
        subprocess.run(command, check=True)
        zipfile.ZipFile(next(Path(work).glob("bfcl_eval-*.whl"))).extractall(root)
    return root


def checker(root):
    """The package's comparison of calls with possible answers."""
    # The table of models imports the clients of all vendors. All that is asked of it: names have _ for a dot.
    table = types.ModuleType("bfcl_eval.constants.model_config")
    table.MODEL_CONFIG_MAPPING = collections.defaultdict(lambda: types.SimpleNamespace(underscore_to_dot=True))
    sys.modules[table.__name__] = table
    sys.path.insert(0, str(root))
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker

    return lambda case, calls: ast_checker(
        case["function"], calls, case["truth"], Language.PYTHON, case["category"], "any"
    )["valid"]


def read(root, category, n):
    lines = lambda path: [json.loads(line) for line in open(path, encoding="utf-8") if line.strip()]
    name = f"BFCL_v4_{CATEGORIES[category]}.json"
    data = root / "bfcl_eval" / "data"
    truths = {line["id"]: line["ground_truth"] for line in lines(data / "possible_answer" / name)}
    return [{**case, "category": category, "truth": truths[case["id"]]} for case in lines(data / name)[:n]]


def schema(node):
    """A schema of the data set as a JSON schema."""
    if isinstance(node, list):
        return [schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    out = {}
    for key, value in node.items():
        if key == "type" and isinstance(value, str):
            out[key] = TYPES.get(value, value)
        elif key == "properties":
            out[key] = {name: schema(property) for name, property in value.items()}
        elif key in ("items", "additionalProperties"):
            out[key] = schema(value)
        else:
            out[key] = value
    return out


def tools(case):
    def tool(function):
        return {**function, "name": function["name"].replace(".", "_"), "parameters": schema(function["parameters"])}

    return [{"type": "function", "function": tool(function)} for function in case["function"]]


def post(url, body):
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=600) as answer:
        return answer.headers["content-type"], answer.read().decode("utf-8")


def streamed(text):
    """A stream of chunks as the choice that they are together."""
    events = [event for event in text.split("\n\n") if event.strip() and not event.startswith(":")]
    if not all(event.startswith("data: ") for event in events) or events[-1] != "data: [DONE]":
        raise ProtocolError("not a stream of events that ends with [DONE]")
    calls, content, reason = {}, "", None
    for event in events[:-1]:
        chunk = json.loads(event.removeprefix("data: "))
        if "error" in chunk:
            raise ProtocolError(f"an error in the stream: {chunk['error']}")
        for choice in chunk["choices"]:
            delta = choice["delta"]
            content += delta.get("content") or ""
            reason = choice.get("finish_reason") or reason
            for part in delta.get("tool_calls") or []:
                function = part["function"]
                call = calls.setdefault(part["index"], {"id": part.get("id"), "type": "function", "function": {}})
                call["function"].setdefault("name", function.get("name"))
                arguments = call["function"].get("arguments", "") + function.get("arguments", "")
                call["function"]["arguments"] = arguments
    return {"message": {"content": content, "tool_calls": list(calls.values())}, "finish_reason": reason}


def calls_of(choice, declared):
    """-> [(name, arguments)]; raises ProtocolError, KeyError or ValueError where a client would stumble"""
    calls, reason = choice["message"].get("tool_calls") or [], choice["finish_reason"]
    if reason not in REASONS or (reason == "tool_calls") != bool(calls) and reason != "length":
        raise ProtocolError(f"finish_reason {reason!r} with {len(calls)} calls")
    ids = [call["id"] for call in calls]
    if len(set(ids)) < len(ids) or not all(ids):
        raise ProtocolError(f"ids {ids}")
    out = []
    for call in calls:
        function = call["function"]
        if function["name"] not in declared:
            raise ProtocolError(f"a call of {function['name']!r}, which is not declared")
        arguments = json.loads(function["arguments"])
        if not isinstance(arguments, dict):
            raise ProtocolError("arguments that are no object")
        out.append((function["name"], arguments))
    # A limit cuts the last one.
    return out[:-1] if reason == "length" else out


def ask(url, options, i, case, held, check):
    """-> what one case counts for"""
    declared = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools(case)}
    body = {
        "model": options.model, "messages": case["question"][0], "tools": tools(case), "temperature": 0,
        "max_tokens": options.max_tokens, "constrain_tool_calls": held, "stream": i % 2 == 1,
        "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    count = collections.Counter(n=1)
    try:
        kind, text = post(url, body)
        is_stream = kind.startswith("text/event-stream")
        if is_stream != body["stream"]:
            raise ProtocolError(f"content type {kind}")
        choice = streamed(text) if is_stream else json.loads(text)["choices"][0]
        calls = calls_of(choice, declared)
    except urllib.error.HTTPError as error:
        answer = error.read().decode()
        count["refused" if TOO_LONG in answer else "protocol errors"] += 1
        return count, f"{case['id']}: HTTP {error.code}: {answer}"
    except (ProtocolError, KeyError, ValueError, OSError) as error:
        count["protocol errors"] += 1
        return count, f"{case['id']}: {error!r}"
    count["cut"] += choice["finish_reason"] == "length"
    count["calling"] += bool(calls)
    count["calls"] += len(calls)
    validators = {name: jsonschema.Draft202012Validator(parameters) for name, parameters in declared.items()}
    count["valid calls"] += sum(validators[name].is_valid(arguments) for name, arguments in calls)
    # A number without a fraction may be written as an integer; the checker takes it for a float itself.
    count["right"] += check(case, [{name: arguments} for name, arguments in calls])
    return count, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("work")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--simple", type=int, default=200)
    parser.add_argument("--parallel", type=int, default=100)
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--out", help="write the counts here, as JSON")
    options = parser.parse_args()
    root = unpack(options.work)
    check = checker(root)
    table, n_error = {}, 0
    for category in CATEGORIES:
        cases = read(root, category, getattr(options, category))
        for held in (False, True):
            with concurrent.futures.ThreadPoolExecutor(options.clients) as pool:
                run = lambda job: ask(options.url, options, *job, held, check)
                results = list(pool.map(run, enumerate(cases)))
            total = sum((count for count, _ in results), collections.Counter())
            n_error += total["protocol errors"]
            for _, problem in results:
                if problem:
                    print(problem, file=sys.stderr)
            table[f"{category}, {'held' if held else 'free'}"] = total
    columns = ["n", "protocol errors", "refused", "cut", "calling", "calls", "valid calls", "right"]
    print(f"{'':16}" + "".join(f"{column:>17}" for column in columns))
    for row, total in table.items():
        print(f"{row:16}" + "".join(f"{total[column]:17}" for column in columns))
    if options.out:
        Path(options.out).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    sys.exit(n_error > 0)


if __name__ == "__main__":
    main()
