#!/usr/bin/env bash
# Do kernels race? The tests of the GPU, under Khronos' validation of synchronisation, on Mesa's CPU emulation: both of
# Debian's newest packages, in a folder that becomes the root of the tests.
# Usage, as root on Debian: tools/gpu-validate.sh [FOLDER]     (FOLDER keeps the packages, 400 MB)
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v dpkg >/dev/null || ((EUID != 0)); then
  echo "SKIPPED: needs Debian's tools and root"
  exit 0
fi
folder=${1:-$(mktemp -d)}
root=$folder/root
if [[ ! -e $root/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json ]]; then
  mkdir -p "$root" "$folder"/{lists,archives/partial}
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian sid main" \
    >"$folder/sid.list"
  : >"$folder/status"
  apt=(timeout 600 apt-get -qq -oDir::State::status="$folder/status" -oDir::Etc::sourcelist="$folder/sid.list"
    -oDir::Etc::sourceparts=/dev/null -oDir::State::lists="$folder/lists" -oDir::Cache::archives="$folder/archives"
    -oAPT::Sandbox::User=root -oDebug::NoLocking=1)
  "${apt[@]}" update
  "${apt[@]}" -y --no-install-recommends --download-only install \
    mesa-vulkan-drivers libvulkan1 vulkan-validationlayers
  for package in "$folder"/archives/*.deb; do dpkg -x "$package" "$root"; done
  for link in bin lib lib64 sbin; do [[ -e $root/$link ]] || ln -s "usr/$link" "$root/$link"; done
fi

# Programs find the sources, which some tests read, where they were built.
mkdir -p "$root"/{tmp,dev,proc} "$root$PWD"
trap 'umount "$root$PWD" "$root/proc" "$root/dev"' EXIT
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount --bind "$PWD" "$root$PWD"

log=$folder/validation.log
validated() { # PACKAGE ARGS: its unit tests with the layer; the exit status is the tests'
  local package=$1 program
  shift
  program=$(cargo test --locked -p "$package" --lib --no-run --message-format=short 2>&1 |
    sed -n 's/.*Executable.*(\(.*\))$/\1/p')
  cp "$program" "$root/tmp/program"
  env -i PATH=/usr/sbin:/usr/bin XDG_RUNTIME_DIR=/tmp LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu \
    VK_DRIVER_FILES=/usr/share/vulkan/icd.d/lvp_icd.json VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation \
    VK_KHRONOS_VALIDATION_VALIDATE_SYNC=1 VK_KHRONOS_VALIDATION_SYNCVAL_SHADER_ACCESSES_HEURISTIC=1 \
    VK_KHRONOS_VALIDATION_ENABLE_MESSAGE_LIMIT=false chroot "$root" /tmp/program --nocapture --test-threads 1 "$@" >"$log" 2>&1
}

validated flash-moe-gpu --ignored two_writes_without_a_barrier || { cat "$log"; exit 1; }
grep -q SYNC-HAZARD "$log" || { echo "FAILED: a planted race was not found"; exit 1; }
clean() { # PACKAGE ARGS: no test fails, no hazard is found
  validated "$@" || { grep -A5 -E "panicked at|^failures:" "$log"; exit 1; }
  if grep SYNC-HAZARD "$log"; then exit 1; fi
  echo "no hazards in the tests of $1"
}
# Those left out make devices fail.
clean flash-moe-gpu --skip tests::faults --skip tests::processes
clean flash-moe-model gpu:: --skip a_device_lost
