#!/usr/bin/env bash
# Is `pack` as fast as the drive copies? Packs a synthetic MLX folder at the shapes of Qwen3.5-397B by copying, against
# `cp` of the same bytes, both with nothing in the page cache and flushed to the drive; prints speeds and peak memory.
#
#   tools/pack-bench/run.sh FOLDER [LAYERS]     # needs twice 1.1 + 3.6 GB a layer in FOLDER
set -euo pipefail

folder=$1
layers=${2:-2}
here=$(dirname "$(realpath "$0")")
cd "$here/../.."
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
cargo build --release -p flash-moe-convert --example pack
mkdir -p "$folder"
work=$(mktemp -d "$folder/pack-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT

python3 "$here/make_mlx_folder.py" "$work/mlx" --layers "$layers"
bytes=$(du -sb "$work/mlx" | cut -f1)

# Drops what the page cache has of the folder's files.
forget() {
    sync
    python3 - "$1" <<'PY'
import os
import sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        file = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
PY
}

# Runs a command and prints its speed and peak memory.
measure() {
    local name=$1
    shift
    forget "$work/mlx"
    python3 - "$name" "$bytes" "$@" <<'PY'
import os
import resource
import subprocess
import sys
import time
name, size, *command = sys.argv[1:]
start = time.monotonic()
subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
os.sync()
seconds = time.monotonic() - start
peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
print(f"{name}: {seconds:.1f} s, {int(size) / seconds / 1e6:.0f} MB/s, peak memory {peak_mb:.0f} MB")
PY
}

for round in 1 2; do
    measure "cp, round $round" cp -r "$work/mlx" "$work/copy"
    rm -rf "$work/copy"
    measure "pack, round $round" "$target/release/examples/pack" "$work/mlx" "$work/store" source
    rm -rf "$work/store"
done
