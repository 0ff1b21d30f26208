"""Malformed requests, seeded: none may end in a 5xx, hang, or harm the server. Usage: malformed.py [SEED] [N]"""

import asyncio
import json
import random
import sys

from common import chat_body, post, server

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 1
N = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
TIME_S = 60
SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
INPUT = [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]
MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
SYSTEM = [{"type": "text", "text": "S"}]
BODIES = {
    "/v1/chat/completions": chat_body("Hi", max_tokens=2, tools=[TOOL]),
    "/v1/completions": json.dumps({"model": "demo", "prompt": "Hi", "max_tokens": 2}).encode(),
    "/v1/responses": json.dumps({"model": "demo", "input": INPUT, "max_output_tokens": 2}).encode(),
    "/v1/messages": json.dumps({"model": "demo", "max_tokens": 2, "system": SYSTEM, "messages": MESSAGES}).encode(),
    "/v1/messages/count_tokens": json.dumps(
        {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]}
    ).encode(),
    "/tokenize": json.dumps({"content": "Hi"}).encode(),
    "/detokenize": json.dumps({"tokens": [1, 2]}).encode(),
    "/web/render": json.dumps({"markdown": "# Hi"}).encode(),
}
ODD = [
    None,
    True,
    -1,
    0,
    1e308,
    2**70,
    "",
    "\x00",
    "é" * 1000,
    [],
    {},
    [[]],
    [None],
    {"a": {}},
    "NaN",
    -0.0,
    [1] * 5000,
]


def places(value, path=()):
    """All places in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def put(value, path, new):
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = put(value[path[0]], path[1:], new)
    return copy


def nested(n):
    return b"[" * n + b"]" * n


def mutate(rng, body):
    kind = rng.randrange(8)
    if kind == 0:
        return body[: rng.randrange(len(body))]
    if kind == 1:
        at = rng.randrange(len(body))
        return body[:at] + bytes([rng.randrange(256)]) + body[at + 1 :]
    if kind == 2:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(200)))
    if kind == 3:
        return nested(rng.choice([100, 1000, 100_000]))
    value = json.loads(body)
    for _ in range(rng.randrange(1, 4)):
        place = rng.choice(list(places(value)))
        value = put(value, place, rng.choice(ODD))
        if not isinstance(value, dict):
            break
    return json.dumps(value).encode()


async def send(port, path, body):
    reader, writer, status, _ = await post(port, path, body)
    answer = await reader.read()
    writer.close()
    return status, answer


async def main():
    rng, counts = random.Random(SEED), {}
    with server() as (port, _):
        for i in range(N):
            path = rng.choice(list(BODIES))
            body = mutate(rng, BODIES[path])
            where = f"seed {SEED}, request {i}: {path} {body[:300]!r}"
            try:
                status, answer = await asyncio.wait_for(send(port, path, body), TIME_S)
            except asyncio.TimeoutError:
                raise AssertionError(f"no answer: {where}") from None
            assert status < 500, f"{status} {answer[:300]!r}: {where}"
            counts[status] = counts.get(status, 0) + 1
        for path, body in BODIES.items():
            status, answer = await send(port, path, body)
            assert status == 200, f"afterwards: {path} {status} {answer[:300]!r}"
    print(f"seed {SEED}: {N} malformed requests, answers by status: {dict(sorted(counts.items()))}")


asyncio.run(main())
