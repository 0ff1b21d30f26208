"""A prompt that takes a minute: how soon do headers come, how far apart are heartbeats, how soon does work end when the
client goes? Needs a model whose prefill is slow enough: usage: prefill.py MODEL PROMPT_TOKENS [FLAGS…]
"""

import asyncio
import sys
import time

from common import chat_body, metrics, post, server

MODEL, N_TOKEN, FLAGS = sys.argv[1], int(sys.argv[2]), sys.argv[3:]


async def main():
    with server(*FLAGS, model=[MODEL]) as (port, _):
        body = chat_body("word " * N_TOKEN, max_tokens=2, stream=True)
        start = time.monotonic()
        reader, writer, status, _ = await post(port, "/v1/chat/completions", body)
        headers_s = time.monotonic() - start
        last, gap_s, n_beat, first_s = time.monotonic(), 0.0, 0, None
        while line := await reader.readline():
            now = time.monotonic()
            gap_s, last = max(gap_s, now - last), now
            n_beat += line.startswith(b":")
            if first_s is None and b'"content"' in line:
                first_s = now - start
        writer.close()
        print(f"status {status}; headers after {1e3 * headers_s:.1f} ms; first text after {first_s:.1f} s; {n_beat} heartbeats; longest silence {gap_s:.1f} s")

        _, writer, _, _ = await post(port, "/v1/chat/completions", chat_body("other " * N_TOKEN, max_tokens=2, stream=True))
        await asyncio.sleep(5)
        writer.transport.abort()
        gone = time.monotonic()
        while any(value for name, value in metrics(port).items() if "requests_active" in name):
            await asyncio.sleep(0.02)
        print(f"work ended {time.monotonic() - gone:.2f} s after the client had gone")


asyncio.run(main())
