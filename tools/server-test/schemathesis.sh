#!/usr/bin/env bash
# Random requests, sound and unsound, made from /openapi.json: is every answer as the document says, and none a 5xx?
# Needs python3 and PyPI. Usage: tools/server-test/schemathesis.sh [FLASH_MOE_BINARY] [SEED] [EXAMPLES_PER_ADDRESS]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-$here/../../target/release/flash-moe}
seed=${2:-1}
n_example=${3:-250}
work=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server"; rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet schemathesis==4.32.5

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
url=http://127.0.0.1:$port
# Where a request does not say how long an answer may be, it is short, so that this ends.
"$binary" serve --port "$port" --alias demo --max-tokens 4 > "$work/server.log" 2>&1 &
server=$!
for _ in $(seq 600); do
    curl --silent --fail "$url/health" > "$work/health" && break
    kill -0 "$server" || { cat "$work/server.log"; exit 1; }
    sleep 0.1
done

checks=not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance
failed=0
(cd "$work" && "$work/venv/bin/schemathesis" run "$url/openapi.json" --checks "$checks" --phases examples,coverage,fuzzing \
    --max-examples "$n_example" --seed "$seed" --request-timeout 60 --workers 2 --continue-on-failure --warnings off \
    --no-color) || failed=1
kill -0 "$server" || { echo "the server has ended"; tail -50 "$work/server.log"; exit 1; }
if grep -n panicked "$work/server.log"; then failed=1; fi
exit "$failed"
