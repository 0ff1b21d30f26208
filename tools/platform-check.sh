#!/usr/bin/env bash
# The whole workspace, its tests and benches too, type-checked and linted for macOS and Windows: no compiler, library or
# machine of theirs is needed.
# Usage: tools/platform-check.sh       (says SKIPPED and succeeds where a target cannot be had)
set -euo pipefail
cd "$(dirname "$0")/.."

for target in aarch64-apple-darwin x86_64-pc-windows-gnu; do
  if ! timeout 180 rustup target add "$target"; then
    echo "SKIPPED: rustup cannot add $target here, for the reason above"
    continue
  fi
  # Nothing is linked: the C in a dependency need not be compiled.
  name=${target//-/_}
  echo "checking for $target"
  env "CC_$name=true" "AR_$name=true" "RANLIB_$name=true" \
    cargo clippy --locked --workspace --all-targets --target "$target" -- -D warnings
done
