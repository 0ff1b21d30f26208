#!/usr/bin/env bash
# The official SDKs of OpenAI and Anthropic (Python and Node) against `flash-moe serve` with the demo model.
# Needs python3, node, npm and their registries. Usage: tools/sdk-test/run.sh [FLASH_MOE_BINARY]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-$here/../../target/release/flash-moe}
work=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server"; rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet openai==3.57.0 anthropic==2.14.0
cp "$here"/*.mjs "$work"
(cd "$work" && npm install --silent --no-audit --no-fund openai@6.49.0 @anthropic-ai/sdk@1.14.0)

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
url=http://127.0.0.1:$port
"$binary" serve --port "$port" --alias demo > "$work/server.log" 2>&1 &
server=$!
for _ in $(seq 100); do
    curl --silent --fail "$url/health" > "$work/health" && break
    kill -0 "$server" || { cat "$work/server.log"; exit 1; }
    sleep 0.1
done

failed=0
for suite in openai_cases anthropic_cases; do
    timeout 600 "$work/venv/bin/python" "$here/$suite.py" "$url" || failed=1
    (cd "$work" && timeout 600 node "$suite.mjs" "$url") || failed=1
done
exit "$failed"
