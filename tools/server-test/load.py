"""32 clients × 20 requests with random disconnects and slow readers: is anything lost, mixed up or leaked?

Every client asks questions of its own, greedily; answers must be those that the same questions get alone. A quarter of
the clients go away: while they wait, while the prompt is fed, or while they read. A tenth read slowly, through a small
window, answers that are too long for what the system buffers.
Usage: load.py [SEED] [CLIENTS] [REQUESTS]
"""

import asyncio
import contextlib
import json
import random
import sys
import time

from common import chat_body, load_of, metrics, post, rss_bytes, server, unchunk

SEED, N_CLIENT, N_REQUEST = (int(a) if a else d for a, d in zip((sys.argv[1:] + [""] * 3)[:3], (1, 32, 20)))
N_PARALLEL, N_QUEUE = 4, 16
QUESTIONS = [f"What is {a} plus {b}?" for a in range(4) for b in range(4)]
N_TOKEN = 24
# A slow reader's answer: log probabilities make each token's event some 3 kB.
BULKY = {"logprobs": True, "top_logprobs": 20}
WINDOW_BYTES = 4096


async def ask(port, question, stream, drop_after=None, slow=False):
    """The answer's text; None if it was dropped on purpose; waits where the server is full."""
    while True:
        body = chat_body(question, max_tokens=N_TOKEN, stream=stream, **(BULKY if slow else {}))
        reader, writer, status, headers = await post(
            port, "/v1/chat/completions", body, window_bytes=WINDOW_BYTES if slow else None
        )
        if status == 429:
            assert int(headers["retry-after"]) >= 0
            writer.close()
            await asyncio.sleep(0.05)
            continue
        assert status == 200, status
        data = b""
        while piece := await reader.read(2048 if slow else 65536):
            data += piece
            if drop_after is not None and len(data) >= drop_after:
                writer.transport.abort()
                return None
            if slow:
                await asyncio.sleep(0.02)
        writer.close()
        body = unchunk(data) if headers.get("transfer-encoding") == "chunked" else data
        if not stream:
            return json.loads(body)["choices"][0]["message"]["content"]
        events = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]", events[-1]
        deltas = [json.loads(event)["choices"] for event in events[:-1]]
        return "".join(choice["delta"].get("content") or "" for choices in deltas for choice in choices)


async def leave(port, question, stream, after_s):
    """Asks, and is gone after so long, whatever has come by then."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    body = chat_body(question, max_tokens=10 * N_TOKEN, stream=stream, ignore_eos=True)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await asyncio.sleep(after_s)
    writer.transport.abort()


async def client(port, rng, expected, counts):
    for _ in range(N_REQUEST):
        question, stream, kind = rng.choice(QUESTIONS), rng.random() < 0.6, rng.random()
        if kind < 0.15:
            await leave(port, question, stream, rng.random())
            counts["dropped"] += 1
            continue
        drop_after = rng.randrange(1, 2000) if kind < 0.25 and stream else None
        is_slow = kind > 0.9 and stream
        text = await ask(port, question, stream, drop_after, is_slow)
        if text is None:
            counts["dropped"] += 1
            continue
        assert text == expected[question], (question, text, expected[question])
        counts["answered"] += 1
        counts["slow"] += is_slow


async def watch(port, peaks):
    """The most answers at a time and requests that wait that were seen."""
    while True:
        now = await asyncio.to_thread(load_of, port)
        peaks[:] = [max(pair) for pair in zip(peaks, now)]
        await asyncio.sleep(0.05)


async def drain(port):
    """Waits until nothing is computed any more; the seconds that took."""
    start = time.monotonic()
    while any(load_of(port)):
        assert time.monotonic() - start < 60, "work goes on for nobody"
        await asyncio.sleep(0.005)
    return time.monotonic() - start


async def main():
    with server("--parallel", str(N_PARALLEL), "--queue", str(N_QUEUE)) as (port, process):
        expected = {question: await ask(port, question, False) for question in QUESTIONS}
        counts, sizes, peaks = {"answered": 0, "slow": 0, "dropped": 0}, [], [0, 0]
        start = time.monotonic()
        watching = asyncio.create_task(watch(port, peaks))
        for round_idx in range(2):
            rngs = [random.Random(f"{SEED} {round_idx} {i}") for i in range(N_CLIENT)]
            await asyncio.gather(*(client(port, rng, expected, counts) for rng in rngs))
            drained_s = await drain(port)
            sizes.append(rss_bytes(process) >> 20)
            print(f"round {round_idx}: {counts}, work ended {drained_s:.3f} s after the last client, {sizes[-1]} MiB")
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        numbers = metrics(port)
        n_full = int(numbers.get('flash_moe_http_requests_total{route="/v1/chat/completions",status="429"}', 0))
        n_cancelled = int(numbers["flash_moe_answers_cancelled_total"])
        assert numbers["flash_moe_answers_failed_total"] == 0
        assert counts["answered"] + counts["dropped"] == 2 * N_CLIENT * N_REQUEST
        assert peaks[0] <= N_PARALLEL and peaks[1] <= N_QUEUE, peaks
        assert sizes[1] <= sizes[0] * 1.05 + 8, f"memory grows: {sizes} MiB"
        print(f"at most {peaks[0]} at a time, {peaks[1]} waiting; {n_full} times full, {n_cancelled} cancelled")
        print(f"seed {SEED}: all as expected in {time.monotonic() - start:.0f} s")


asyncio.run(main())
