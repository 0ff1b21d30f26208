#!/usr/bin/env bash
# A program for Macs with Apple silicon, linked on Linux: tells whether all that it needs of the system has a name. The
# linker is zig's, from PyPI; what a Mac's libraries would offer it is the list of names below.
# Usage: tools/mac-link.sh
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-apple-darwin
mac=11.0 # as old as the target allows
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

rustup target add "$target"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" -q install ziglang==0.17.1

# A library's names: place on a Mac, file for the linker, symbols.
library() {
  local place=$1 file=$work/stubs/$2
  shift 2
  local names
  names=$(printf '_%s, ' "$@")
  mkdir -p "$(dirname "$file")"
  cat >"$file" <<END
--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '$place'
exports:
  - targets: [ arm64-macos ]
    symbols: [ ${names%, } ]
...
END
}
framework() {
  local name=$1 version=$2
  shift 2
  library "/System/Library/Frameworks/$name.framework/Versions/$version/$name" "$name.framework/$name.tbd" "$@"
}
library /usr/lib/libiconv.2.dylib libiconv.tbd iconv
library /usr/lib/libobjc.A.dylib libobjc.tbd \
  class_addIvar class_addMethod class_addProtocol class_getInstanceMethod class_getInstanceVariable class_getName \
  class_getSuperclass class_isMetaClass class_respondsToSelector ivar_getOffset method_getName method_getTypeEncoding \
  objc_alloc objc_allocWithZone objc_allocateClassPair objc_autorelease objc_autoreleasePoolPop \
  objc_autoreleasePoolPush objc_autoreleaseReturnValue objc_copyWeak objc_destroyWeak objc_disposeClassPair \
  objc_getClass objc_getProtocol objc_initWeak objc_loadWeakRetained objc_msgSend objc_msgSendSuper \
  objc_registerClassPair objc_release objc_retain objc_retainAutorelease objc_retainAutoreleasedReturnValue \
  object_getClass sel_getName sel_registerName
framework CoreFoundation A CFArrayCreate CFArrayGetCount CFArrayGetValueAtIndex CFDataGetBytePtr CFDataGetBytes \
  CFDataGetLength CFDataGetTypeID CFDictionaryGetValueIfPresent CFEqual CFGetTypeID CFNumberGetValue CFRelease CFRetain \
  CFStringCreateWithBytesNoCopy CFStringGetBytes CFStringGetCStringPtr CFStringGetLength kCFAllocatorDefault \
  kCFAllocatorNull kCFTypeArrayCallBacks
# The certificates that the system trusts.
framework Security A SecCertificateCopyData SecCopyErrorMessageString SecTrustSettingsCopyCertificates \
  SecTrustSettingsCopyTrustSettings
framework IOKit A IOIteratorNext IOObjectRelease IORegistryEntryCreateCFProperty IORegistryEntryGetName \
  IOServiceGetMatchingServices IOServiceMatching kIOMasterPortDefault
framework Foundation C NSKeyValueChangeNewKey NSLog
# For the GPU.
framework CoreGraphics A CGColorSpaceCreateWithName kCGColorSpaceDisplayP3 kCGColorSpaceExtendedLinearSRGB \
  kCGColorSpaceExtendedSRGB kCGColorSpaceSRGB
framework Metal A MTLCopyAllDevices MTLCreateSystemDefaultDevice
framework QuartzCore A CACurrentMediaTime

# What is asked of a linker or a compiler for a Mac, as zig understands it.
cat >"$work/cc" <<END
#!/usr/bin/env bash
args=()
while ((\$#)); do
  case \$1 in
    -arch | -isysroot) shift ;;
    --target=* | -mmacosx-version-min=*) ;;
    *) args+=("\$1") ;;
  esac
  shift
done
exec "$work/venv/bin/python" -m ziglang cc -target aarch64-macos.$mac -F"$work/stubs" -L"$work/stubs" "\${args[@]}"
END
printf '#!/usr/bin/env bash\nexec "%s" -m ziglang ar "$@"\n' "$work/venv/bin/python" >"$work/ar"
chmod +x "$work/cc" "$work/ar"

export SDKROOT=$work/stubs MACOSX_DEPLOYMENT_TARGET=$mac ZIG_GLOBAL_CACHE_DIR=$work/zig ZIG_LOCAL_CACHE_DIR=$work/zig
export CC_aarch64_apple_darwin=$work/cc AR_aarch64_apple_darwin=$work/ar
export CARGO_TARGET_AARCH64_APPLE_DARWIN_LINKER=$work/cc
# What would need Apple's own tools afterwards.
export CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_STRIP=none
cargo build --locked --release -p flash-moe --target "$target"

program=${CARGO_TARGET_DIR:-target}/$target/release/flash-moe
kind=$(file -b "$program")
echo "$program: $kind, $(stat -c %s "$program") bytes"
[[ $kind == *"Mach-O 64-bit arm64 executable"* ]]
