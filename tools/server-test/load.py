"""32 clients × 20 requests with random disconnects and slow readers: is anything lost, mixed up or leaked?

Every client asks questions of its own, greedily; answers must be those that the same questions get alone.
Usage: load.py [SEED] [CLIENTS] [REQUESTS]
"""

import asyncio
import json
import random
import sys
import time

from common import chat_body, metrics, post, rss_bytes, server, unchunk

SEED, N_CLIENT, N_REQUEST = (int(a) if a else d for a, d in zip((sys.argv[1:] + [""] * 3)[:3], (1, 32, 20)))
QUESTIONS = [f"What is {a} plus {b}?" for a in range(4) for b in range(4)]
N_TOKEN = 24


async def ask(port, question, stream, drop_after=None, pause_s=0.0):
    """The answer's text; None if it was dropped on purpose; waits where the server is full."""
    while True:
        body = chat_body(question, max_tokens=N_TOKEN, stream=stream)
        reader, writer, status, headers = await post(port, "/v1/chat/completions", body)
        if status == 429:
            assert int(headers["retry-after"]) >= 0
            writer.close()
            await asyncio.sleep(0.05)
            continue
        assert status == 200, status
        data = b""
        while piece := await reader.read(512 if pause_s else 65536):
            data += piece
            if drop_after is not None and len(data) >= drop_after:
                writer.transport.abort()
                return None
            if pause_s:
                await asyncio.sleep(pause_s)
        writer.close()
        body = unchunk(data) if headers.get("transfer-encoding") == "chunked" else data
        if not stream:
            return json.loads(body)["choices"][0]["message"]["content"]
        events = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]", events[-1]
        deltas = [json.loads(event)["choices"] for event in events[:-1]]
        return "".join(choice["delta"].get("content") or "" for choices in deltas for choice in choices)


async def client(port, rng, expected, counts):
    for _ in range(N_REQUEST):
        question, stream = rng.choice(QUESTIONS), rng.random() < 0.6
        kind = rng.random()
        drop_after = rng.randrange(1, 2000) if kind < 0.25 and stream else None
        pause_s = 0.02 if kind > 0.9 and stream else 0.0
        text = await ask(port, question, stream, drop_after, pause_s)
        if text is None:
            counts["dropped"] += 1
        else:
            assert text == expected[question], (question, text, expected[question])
            counts["answered"] += 1


async def drain(port):
    """Waits until nothing is computed any more; the seconds that took."""
    start = time.monotonic()
    while any(value for name, value in metrics(port).items() if "requests_active" in name or "requests_queued" in name):
        assert time.monotonic() - start < 60, "work goes on for nobody"
        await asyncio.sleep(0.02)
    return time.monotonic() - start


async def main():
    with server("--parallel", "4", "--queue", "16") as (port, process):
        expected = {question: await ask(port, question, False) for question in QUESTIONS}
        counts, sizes = {"answered": 0, "dropped": 0}, []
        start = time.monotonic()
        for round_idx in range(2):
            rngs = [random.Random(f"{SEED} {round_idx} {i}") for i in range(N_CLIENT)]
            await asyncio.gather(*(client(port, rng, expected, counts) for rng in rngs))
            drained_s = await drain(port)
            sizes.append(rss_bytes(process) >> 20)
            print(f"round {round_idx}: {counts}, work ended {drained_s:.2f} s after the last client, {sizes[-1]} MiB")
        assert counts["answered"] + counts["dropped"] == 2 * N_CLIENT * N_REQUEST
        assert sizes[1] <= sizes[0] * 1.05 + 8, f"memory grows: {sizes} MiB"
        print(f"seed {SEED}: all as expected in {time.monotonic() - start:.0f} s")


asyncio.run(main())
