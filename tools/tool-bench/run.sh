#!/usr/bin/env bash
# Benchmarks of tool calls, made by others, against `flash-moe serve`: tool-eval-bench, and cases of the Berkeley
# Function Calling Leaderboard; each with calls held to their schemas and without.
# Needs python3 and PyPI. Usage: tools/tool-bench/run.sh OUT [FLASH_MOE_BINARY [MODEL]]; results come to the folder OUT.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
binary=${2:-$here/../../target/release/flash-moe}
work=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server"; rm -rf "$work"' EXIT
mkdir -p "$out"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet tool-eval-bench==3.0.0 jsonschema==4.26.0

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
url=http://127.0.0.1:$port
"$binary" serve ${3+"$3"} --port "$port" --alias demo > "$out/server.log" 2>&1 &
server=$!
for _ in $(seq 600); do
    curl --silent --fail "$url/health" > "$work/health" && break
    kill -0 "$server" || { cat "$out/server.log"; exit 1; }
    sleep 0.1
done

"$work/venv/bin/python" "$here/bfcl.py" "$url" "$work" --out "$out/bfcl.json"
for held in true false; do
    "$work/venv/bin/tool-eval-bench" --base-url "$url" --model demo --temperature 0 --timeout 300 --max-turns 6 \
        --no-warmup --no-live --no-probe-engine --backend-kwargs "{\"constrain_tool_calls\": $held}" \
        --json-file "$out/tool-eval-bench-$held.json" --output-dir "$work/runs" > "$out/tool-eval-bench-$held.log"
done
