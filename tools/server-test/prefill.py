"""A prompt that takes a minute: how soon do headers come, how far apart are heartbeats, how soon does work end when the
client goes, before the first token and while tokens come?

Needs a model whose prefill is slow enough (`flash-moe synth OUT --like qwen3.5-35b --layers 4`, `--threads 1`).
Usage: prefill.py MODEL PROMPT_TOKENS [FLAGS…]
"""

import asyncio
import sys
import time

from common import chat_body, load_of, post, server

MODEL, N_TOKEN, FLAGS = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
HEADERS_MS, SILENCE_S = 50, 10
CHAT = "/v1/chat/completions"


TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}},
}


async def headers_ms(port, body):
    """Time to the headers of a stream, which is left then."""
    start = time.monotonic()
    _, writer, status, _ = await post(port, CHAT, body)
    passed = 1e3 * (time.monotonic() - start)
    writer.transport.abort()
    assert status == 200, status
    return passed


async def first_requests(port):
    """What comes once after a start is not part of the bar, but told."""
    for name, options in (("plain", {}), ("with a tool", {"tools": [TOOL]})):
        times = [
            await headers_ms(port, chat_body(f"{name} {i}", max_tokens=2, stream=True, **options)) for i in range(6)
        ]
        print(f"after the start, {name}: headers after", ", ".join(f"{ms:.1f}" for ms in times), "ms")


async def long_prompt(port):
    """Reads a whole stream whose prompt is long; others ask meanwhile."""
    body = chat_body("word " * N_TOKEN, max_tokens=2, stream=True)
    start = time.monotonic()
    reader, writer, status, _ = await post(port, CHAT, body)
    own_ms = 1e3 * (time.monotonic() - start)
    others = asyncio.create_task(ask_others(port))
    last, gap_s, n_beat, first_s = time.monotonic(), 0.0, 0, None
    while line := await reader.readline():
        now = time.monotonic()
        gap_s, last = max(gap_s, now - last), now
        n_beat += line.startswith(b":")
        if first_s is None and b'"content"' in line:
            first_s = now - start
    writer.close()
    assert status == 200 and first_s is not None, (status, first_s)
    times = sorted(await others)
    print(
        f"headers after {own_ms:.1f} ms; first text after {first_s:.1f} s; {n_beat} heartbeats; longest silence {gap_s:.2f} s"
    )
    print(
        f"{len(times)} others meanwhile: headers after {times[len(times) // 2]:.1f} ms (median), {times[-1]:.1f} ms (worst)"
    )
    assert max(own_ms, times[-1]) <= HEADERS_MS
    assert gap_s <= SILENCE_S + 0.5


async def ask_others(port):
    """Times to headers of requests that wait for the long one."""
    times = []
    for i in range(40):
        options = {"tools": [TOOL]} if i % 2 else {}
        times.append(await headers_ms(port, chat_body(f"other {i}", max_tokens=2, stream=True, **options)))
        await asyncio.sleep(0.5)
    return times


async def ended(port, writer):
    """Goes away; the seconds until nothing is computed any more."""
    assert load_of(port)[0] == 1, "nothing is computed"
    writer.transport.abort()
    gone = time.monotonic()
    while any(load_of(port)):
        assert time.monotonic() - gone < 60, "work goes on for nobody"
        await asyncio.sleep(0.005)
    return time.monotonic() - gone


async def leave(port, stream):
    """Goes away while the prompt is fed, and while tokens come."""
    form = "a stream" if stream else "a whole answer"
    body = chat_body("other " * N_TOKEN, max_tokens=2, stream=stream)
    asking = asyncio.create_task(asyncio.open_connection("127.0.0.1", port))
    _, writer = await asking
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {{}}\r\n\r\n"
    writer.write(head.format(len(body)).encode() + body)
    await asyncio.sleep(5)
    print(f"{form}: work ended {await ended(port, writer):.3f} s after the client had gone, in the prompt")
    body = chat_body("Go on.", max_tokens=1000, stream=stream, ignore_eos=True)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.format(len(body)).encode() + body)
    await asyncio.sleep(5)
    print(f"{form}: work ended {await ended(port, writer):.3f} s after the client had gone, among tokens")


async def main():
    with server(*FLAGS, model=[MODEL]) as (port, _):
        await first_requests(port)
        await long_prompt(port)
        for stream in (True, False):
            await leave(port, stream)


asyncio.run(main())
