#!/usr/bin/env bash
# The checks that take long: sanitizers and other builds. Run them before a larger change is called done.
#   tools/test_deep.sh [PART...]    neon asan tsan; all of them if none is named
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
# shellcheck source=tools/stages.sh
source tools/stages.sh
parts=(neon asan tsan)
[ $# -eq 0 ] || parts=("$@")

part_neon() { tools/check_neon.sh; }

part_asan() {
  build dev
  # One model of each kind for the bits grid; the release build takes them all.
  run_ctest dev -j "$jobs" -E 'Models/Bits.*/(quire_demo|mistral|llama3|qwen3_4bit |qwen3_moe_4bit|qwen3_next|qwen35_mlx)'
}

# The thread pool, kernels on many threads, the engine under stress, the server.
part_tsan() {
  build tsan --target base_tests ops_tests engine_tests server_tests
  run_ctest tsan -j 1 \
    -R '(^|/)(ThreadPool|Stress|Http|Server|Mixed.WithAnyNumberOfThreads|PagedAttention.*LongSequence|GatedDeltaRule.Chunks|MoeExperts)'
}

for part in "${parts[@]}"; do
  declare -F "part_$part" >/dev/null || { echo "there is no part $part"; exit 2; }
done
stage setup tools/setup.sh --deep || { finish; exit 1; }
for part in "${parts[@]}"; do stage "$part" "part_$part" || true; done
finish
