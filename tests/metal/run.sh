#!/usr/bin/env bash
# Builds the emulator of Metal with clang and runs all that it proves: that it finds seeded mistakes, that MLX's own kernels
# run on it and agree with float64, and our kernels. Exits with 77 where there is no clang with AddressSanitizer.
#   tests/metal/run.sh [GTEST_FILTER]
set -euo pipefail
cd "$(dirname "$0")/../.."
compiler=$(command -v clang++-19 || find /usr/bin -name 'clang++-[0-9]*' | sort -V | tail -n 1)
[ -n "$compiler" ] || { echo "there is no clang to build the emulator with (apt install clang-19)"; exit 77; }
echo 'int main() {}' | "$compiler" -fsanitize=address,undefined -x c++ - -o /dev/null ||
  { echo "$compiler has no AddressSanitizer (apt install libclang-rt-19-dev)"; exit 77; }
mlx=build/deps/mlx-metal-$(awk '$1 == "mlx-cpu" { print $2 }' cmake/mlx.lock)
[ -f "$mlx/.complete" ] || { echo "MLX's kernels are not there: tools/setup.sh --metal"; exit 1; }
cmake --preset release >/dev/null
cmake --build --preset release -j "${JOBS:-$(nproc)}" --target quire_engine formats_tests -- --quiet
cmake -S tests/metal -B build/metal -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DQUIRE_MLX_METAL="$PWD/$mlx" -DQUIRE_RELEASE="$PWD/build/release"
cmake --build build/metal -j "${JOBS:-$(nproc)}" -- --quiet
python3 tools/metal_variants.py build/metal
export QUIRE_SOURCE_DIR="$PWD"
# Weights are mapped from clones of their files, on a file system that can make them where this machine lets us mount one.
clones=$(mktemp -d)
mkdir "$clones/mounted"
if truncate -s 400M "$clones/image" && mkfs.xfs -q -m reflink=1 "$clones/image" 2>/dev/null &&
  mount -o loop "$clones/image" "$clones/mounted" 2>/dev/null; then
  trap 'umount "$clones/mounted" && rm -r "$clones"' EXIT
  export QUIRE_TEST_CLONE_DIR="$clones/mounted"
  build/release/bin/formats_tests --gtest_brief=1 --gtest_filter='FileSnapshot.*'
else
  echo "no XFS can be mounted here (apt install xfsprogs; root): copies stand for clones of weight files"
  rm -r "$clones"
fi
# Of the tiny models those that differ in what Metal runs: heads with norms, windows, caps, hybrids, experts, bfloat16, quantised weights.
models='*Float32/qwen3:*Float32/qwen35:*Float32/gemma2:*Float32/qwen2_sliding:*Float32/qwen3_4bit:*Float32/qwen3_mxfp4:*Float32/qwen3_gguf_q8:*Float32/qwen3_moe:*Float32/qwen3_moe_4bit:*Float32/qwen35_moe:*Float32/gpt_oss_mxfp4:*Bfloat16*/qwen3_bf16:*Bfloat16*/qwen3_moe_bf16:*Float32/deepseek_v2:*Float32/glm47_flash:MetalAblations*:MetalCaches*:ParityOfFiles.*'
# Several processes share the tests of a program. All of them run; what one says comes in a piece, at its end.
shards=${JOBS:-$(nproc)}
failed=0
for program in build/metal/bin/*_test; do
  filter='*'
  [ "$(basename "$program")" != metal_parity_test ] || filter=$models
  pids=()
  logs=$(mktemp -d)
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i "$program" --gtest_brief=1 --gtest_filter="${1:-$filter}" >"$logs/$i" 2>&1 &
    pids+=($!)
  done
  for ((i = 0; i < shards; ++i)); do
    wait "${pids[i]}" || failed=1
    cat "$logs/$i"
  done
  rm -r "$logs"
done
exit "$failed"
