"""A server that plays scripted answers, in front of the program that serves the page.

A script is a list of steps: a dict is sent as a chunk; ("gate", name) waits until the test opens that gate; ("raw", text)
is sent as it is; ("end",) closes the connection without the last line. The first word of the user's last message names the
script.
"""

import http.client
import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GATE_SECONDS = 30


def text(content, **fields):
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": None}], **fields}


def thought(content):
    return {"choices": [{"index": 0, "delta": {"reasoning_content": content}, "finish_reason": None}]}


def call(index, call_id=None, name=None, arguments=None):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fragment = {"index": index, "function": function, **({"id": call_id, "type": "function"} if call_id else {})}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [fragment]}, "finish_reason": None}]}


def progress(processed, elapsed_ms, total=4000, cached=1000):
    state = {"total": total, "cached": cached, "processed": processed, "elapsed_ms": elapsed_ms}
    return {"choices": [], "prompt_progress": state}


def timings(**changes):
    figures = {
        "prompt_n": 24, "cache_n": 1000, "prompt_ms": 80.0, "prompt_per_second": 300.0, "predicted_n": 1234,
        "predicted_ms": 1000.0, "predicted_per_second": 12.34, "hit_rate": 0.853, "read_gb_s": 3.21, "n_ctx": 32768,
        "n_ctx_used": 2258,
    }
    return figures | changes


def last(reason="stop", **changes):
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "timings": timings(**changes)}


MARKDOWN = """# Sorting in two languages

A list is sorted **in place**, in *O(n log n)*. See [the manual](https://example.org/sort) or `sorted()`.

```rust
/// Largest first.
fn sort(values: &mut Vec<u32>) {
    values.sort_unstable_by(|a, b| b.cmp(a)); // 42
}
```

| Method | Stable | Time in ms |
|:-------|:------:|-----------:|
| `sort` | yes | 12.5 |
| `sort_unstable` | no | 8.25 |

1. First step
   - with a detail
2. Second step

- [x] done
- [ ] open

> A quote with a formula: $e^{i\\pi} + 1 = 0$

![a picture](https://example.org/picture.png) <b>bold</b>

```python
def sort(values: list[int]) -> list[int]:
    return sorted(values, key=lambda v: -v)  # new list
```
"""

HOSTILE = """<script>window.hacked = 1</script> <img src=x onerror="window.hacked = 2">

[click](javascript:window.hacked=3) ![x](https://example.org/x.png)

<svg onload="window.hacked = 4"></svg>

```html
</code></pre><script>window.hacked = 5</script>
```
"""


def pieces(markdown, size=7):
    return [text(markdown[i:i + size]) for i in range(0, len(markdown), size)]


def long_answer():
    """A gate after each ten of its 200 paragraphs."""
    for i in range(200):
        yield text(f"Paragraph {i} of a long answer.\n\n")
        if i % 10 == 9:
            yield "gate", f"long{i // 10}"


SCRIPTS = {
    "hello": [("raw", ": waiting\n\n"), text("Hello"), text(" **world**"), text("!"), last()],
    "other": [text("Another answer."), last()],
    "markdown": [*pieces(MARKDOWN), last()],
    "halves": [*pieces(MARKDOWN[:700]), ("gate", "halves"), *pieces(MARKDOWN[700:]), last()],
    "hostile": [*pieces(HOSTILE), last()],
    "thinking": [thought("Let me "), thought("think.\nStep two."), ("gate", "think"), text("So: 42."), last()],
    "slow": [text("One "), ("gate", "slow"), text("two."), last()],
    "endless": [("endless",)],
    "progress": [progress(1600, 3000), ("gate", "half"), progress(4000, 15000), text("Read."), last()],
    "live": [text("Tick", timings=timings(predicted_per_second=5.5, hit_rate=None)), ("gate", "live"), last()],
    "tool": [
        text("I look it up."),
        call(0, "call_a", "weather", ""), call(0, arguments='{"city":"Par'), ("gate", "arguments"),
        call(0, arguments='is","days":[1,2]}'), call(1, "call_b", "clock", "{}"), last("tool_calls"),
    ],
    "error": [text("The start"), {"error": {"message": "the drive failed", "type": "server_error", "code": None}}],
    "broken": [text("The start"), ("end",)],
    "length": [text("Cut of"), last("length")],
    "nulls": [text("Ok"), last(**dict.fromkeys(timings()))],
    "definition": [text("See [it][1].\n\nMore.\n\n"), ("gate", "definition"), text("[1]: https://example.org/it\n"), last()],
    "long": [*long_answer(), last()],
    "tail": [*[text(f"Paragraph {i}.\n\n") for i in range(60)], ("gate", "tail"), text("The end."), last()],
    "after-tools": [text("It is **sunny** in Paris."), last()],
    "continued": [text(" and the rest."), last()],
}


class Mock(ThreadingHTTPServer):
    """What tests see and set: requests, gates, faults."""

    daemon_threads = True

    def __init__(self, page_port):
        super().__init__(("127.0.0.1", 0), Handler)
        self.page_port = page_port
        self.reset()

    def reset(self):
        self.requests = []
        self.renders = []
        self.gates = {}
        self.gone = threading.Event()
        self.api_key = None
        self.refusals = []  # (status, headers, message), one for each chat request
        self.render_fails = False
        self.models = ["demo-model"]  # None while they are loaded

    def gate(self, name):
        return self.gates.setdefault(name, threading.Event())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/v1/models":
            if self.server.models is None:
                self.refuse(503, "the model is still loading")
            elif self.is_allowed():
                models = [{"id": name, "object": "model"} for name in self.server.models]
                self.answer(200, {"object": "list", "data": models})
            return
        self.forward(None)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/web/render":
            self.server.renders.append(json.loads(body))
            if self.server.render_fails:
                return self.refuse(500, "no rendering today")
            return self.forward(body)
        if self.is_allowed():
            self.chat(json.loads(body))

    def is_allowed(self):
        key = self.server.api_key
        if key is None or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self.refuse(401, "this server wants an API key")
        return False

    def answer(self, status, value, headers=()):
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, content in (("Content-Type", "application/json"), ("Content-Length", str(len(body))), *headers):
            self.send_header(name, content)
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, message, headers=()):
        error = {"message": message, "type": "invalid_request_error", "code": None}
        self.answer(status, {"error": error}, headers)

    def forward(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.page_port)
        wanted = ("Content-Type", "If-None-Match")
        headers = {name: self.headers[name] for name in wanted if self.headers[name]}
        connection.request(self.command, self.path, body, headers)
        response = connection.getresponse()
        content = response.read()
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ("content-length", "date", "connection"):
                self.send_header(name, value)
        if response.status != 304:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    def chat(self, request):
        self.server.requests.append(request)
        if self.server.refusals:
            return self.refuse(*self.server.refusals.pop(0))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self.play(SCRIPTS[script_name(request["messages"])])
        except OSError:
            self.server.gone.set()

    def play(self, steps):
        for step in steps:
            if isinstance(step, dict):
                self.send(f"data: {json.dumps(step)}\n\n")
            elif step[0] == "raw":
                self.send(step[1])
            elif step[0] == "end":
                return
            elif step[0] == "endless":
                # Ends when the page closes the connection, which makes a write fail.
                for i in range(3000):
                    self.send(f"data: {json.dumps(text(f'word{i} '))}\n\n")
                    self.server.gone.wait(0.01)
            elif not self.server.gate(step[1]).wait(GATE_SECONDS):
                raise TimeoutError(f"no test opened the gate {step[1]}")
        self.send("data: [DONE]\n\n")

    def send(self, data):
        self.wfile.write(data.encode())
        self.wfile.flush()


def script_name(messages):
    newest = messages[-1]
    if newest["role"] == "tool":
        return "after-tools"
    if newest["role"] == "assistant":
        return "continued"
    words = newest["content"].split()
    return next((word for word in reversed(words) if word in SCRIPTS), "hello")


def start_page(binary):
    """The program that serves the page, and its port."""
    process = subprocess.Popen([binary, "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    port = int(process.stdout.readline().rsplit(":", 1)[1])
    return process, port


def build_page():
    """Path of the built program."""
    command = ["cargo", "build", "-p", "flash-moe-serve", "--example", "web_page", "--message-format=json"]
    output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    messages = [json.loads(line) for line in output.splitlines()]
    return next(m["executable"] for m in messages if m.get("executable"))
