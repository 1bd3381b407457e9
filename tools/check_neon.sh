#!/usr/bin/env bash
# Compiles the CPU kernels for 64-bit ARM, where a cross compiler is installed (apt install g++-aarch64-linux-gnu): the NEON
# targets must at least build on machines that cannot run them. Exits with 77 if there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
cxx=${CXX_AARCH64:-aarch64-linux-gnu-g++}
if ! command -v "$cxx" >/dev/null; then
  echo "$cxx is not installed"
  exit 77
fi
out=build/neon
mkdir -p "$out"
# Highway's headers are the same for every architecture; on their own, so that nothing else of the host is seen.
mkdir -p "$out/include"
ln -sfn "$(dirname "$(find /usr/include /usr/local/include -path '*/hwy/highway.h' -print -quit)")" "$out/include/hwy"
count=0
for source in $(find src/ops -name '*_cpu.cpp' | sort); do
  level=()  # as cmake/kernels.cmake has them
  case $source in
    *_neon_dotprod_cpu.cpp) level=(-march=armv8.2-a+dotprod) ;;
    *_neon_bf16_cpu.cpp) level=(-march=armv8.2-a+bf16) ;;
  esac
  "$cxx" "${level[@]}" -std=c++20 -O1 -Wall -Wextra -Werror -Wno-psabi -ffp-contract=off -fno-math-errno -I src -isystem "$out/include" \
    -c "$source" -o "$out/kernel.o"
  count=$((count + 1))
done
rm -f "$out/kernel.o"
echo "neon: $count kernel files compile"
