#!/usr/bin/env bash
# Makes PyPI's torch for x86-64 Linux importable without CUDA's libraries, which are 2 GB that a CPU never runs:
#   tools/torch_without_cuda.sh VENV
# Call it after `pip install --no-deps torch nvidia-cuda-runtime`. Every library that torch's own ones are linked to and that is
# not there becomes a link to one small library, which defines the missing functions. Each of them says so and aborts.
set -euo pipefail
[ $# = 1 ] || { echo "usage: tools/torch_without_cuda.sh VENV" >&2; exit 2; }
site=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
lib=$site/torch/lib
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Undefined symbols as "name version"; a definition of the same name anywhere beside them, or in the CUDA run time, settles it.
shopt -s nullglob
present=("$lib"/*.so* "$site"/nvidia/*/lib/*.so*)
names() { nm -D "$1" --format=posix "${present[@]}" | awk 'NF > 1 {sub(/@.*/, "", $1); print $1}' | sort -u; }
names --undefined-only | grep -E '^(cu|nv|nccl)' >"$scratch/undefined"
names --defined-only >"$scratch/defined"
comm -23 "$scratch/undefined" "$scratch/defined" >"$scratch/missing"
[ -s "$scratch/missing" ] || exit 0

{
  printf '#include <stdlib.h>\n#include <unistd.h>\n'
  printf 'static const char text[] = "torch called a CUDA library that tools/torch_without_cuda.sh left out\\n";\n'
  printf 'void left_out(void) { (void)!write(2, text, sizeof text - 1); abort(); }\n'
  sed 's/.*/void &(void) __attribute__((alias("left_out")));/' "$scratch/missing"
} >"$scratch/left_out.c"
gcc -shared -fPIC -O1 -o "$lib/libcuda_left_out.so" "$scratch/left_out.c"

# The first file that carries a name is what the loader takes, so torch's own and the real CUDA run time stay as they are.
for file in "${present[@]}"; do basename "$file"; done | sort >"$scratch/names"
objdump -p "$lib"/*.so | awk '$1 == "NEEDED" && $2 ~ /^lib(cu|nv|nccl)/ && $2 !~ /^libcuda[.]/ {print $2}' | sort -u | comm -23 - "$scratch/names" |
  while read -r name; do ln -sf libcuda_left_out.so "$lib/$name"; done
