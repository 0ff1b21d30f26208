#!/usr/bin/env bash
# Runs every fuzzer for some seconds, as many at a time as there are cores, and fails if one finds something.
# Usage: tools/fuzz.sh SECONDS [TARGET…]      (needs nightly and cargo-fuzz: cargo install cargo-fuzz)
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
targets=("$@")
((${#targets[@]})) || mapfile -t targets < <(cargo +nightly fuzz list)
cargo +nightly fuzz build
# Begins with files that are right.
seed() {
  local to=fuzz/corpus/$1 file
  mkdir -p "$to"
  case $1 in
  config_json) for file in tests/golden/{,forms/}*/config.json; do cp "$file" "$to/$(basename "$(dirname "$file")")"; done ;;
  index_json) for file in tests/golden/forms/*/*.index.json; do cp "$file" "$to/$(basename "$(dirname "$file")")"; done ;;
  safetensors)
    for file in tests/golden/forms/*/model.safetensors; do
      tail -c +9 "$file" | head -c "$(od -An -tu8 -N8 "$file" | tr -d ' ')" >"$to/$(basename "$(dirname "$file")")"
    done
    ;;
  tokenizer_json) cp crates/cli/demo/tokenizer.json "$to/demo" ;;
  esac
}
run() {
  local target=$1 seeds=()
  seed "$target"
  [[ -d fuzz/seeds/$target ]] && seeds=("fuzz/seeds/$target")
  # An input is at most 64 KiB: nothing may take a thousand times as much, nor a second.
  cargo +nightly fuzz run "$target" "fuzz/corpus/$target" "${seeds[@]}" -- -max_total_time="$seconds" -max_len=65536 \
    -timeout=10 -malloc_limit_mb=64 -rss_limit_mb=1024 >"fuzz/$target.log" 2>&1 || { echo "$target: see fuzz/$target.log"; return 1; }
  tail -n 1 "fuzz/$target.log" | sed "s/^/$target: /"
}
export -f run seed
export seconds
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run {}'
