"""A server with the demo model, and plain HTTP to it. No packages needed."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BINARY = os.environ.get("FLASH_MOE", os.path.join(ROOT, "target", "release", "flash-moe"))


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextlib.contextmanager
def server(*flags, model=()):
    """Runs `flash-moe serve`; gives its port and process, and ends it."""
    port = free_port()
    command = [BINARY, "serve", *model, "--port", str(port), "--alias", "demo", *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1800):
            assert process.poll() is None, f"the server ended with {process.returncode}"
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            time.sleep(0.1)
        else:
            raise AssertionError("the server does not answer")
        yield port, process
        assert process.poll() is None, f"the server ended with {process.returncode}"
    finally:
        process.terminate()
        process.wait(timeout=60)


def load_of(port):
    """Answers that are being made, and requests that wait."""
    numbers = metrics(port)
    return int(numbers["flash_moe_answers_active"]), int(numbers["flash_moe_answers_waiting"])


def rss_bytes(process):
    """Resident memory of the server."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def metrics(port):
    """All plain numbers of /metrics."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def chat_body(content, **options):
    messages = [{"role": "user", "content": content}]
    base = {"model": "demo", "messages": messages, "temperature": 0, "chat_template_kwargs": {"enable_thinking": False}}
    return json.dumps({**base, **options}).encode()


async def post(port, path, body, headers=(), window_bytes=None):
    """Sends a request; gives the connection, the status and the headers. `window_bytes`: what may wait to be read here."""
    sock = socket.socket()
    if window_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=window_bytes or 2**16)
    about = ["Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close"]
    head = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *about, *headers]
    writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
    await writer.drain()
    status = int((await reader.readline()).split()[1])
    found = {}
    while (line := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode().partition(":")
        found[name.lower()] = value.strip()
    return reader, writer, status, found


def unchunk(data):
    """The body of a chunked answer."""
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        n = int(size, 16)
        body, data = body + data[:n], data[n + 2 :]
    return body
