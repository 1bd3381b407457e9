#!/usr/bin/env bash
# Runs what the preset arm64 has built in an emulator: the tests of the kernels, on NEON, and a demo model. What it shows is
# that results are right and have the promised bits; it says nothing of speed. Takes a quarter of an hour on two cores.
#   tools/test_arm64.sh [GTEST_FILTER]
set -euo pipefail
cd "$(dirname "$0")/.."
bin=build/arm64/bin
shards=${JOBS:-$(nproc)}
emulate() { QUIRE_SOURCE_DIR=$PWD qemu-aarch64 -L build/deps/arm64/root "$@"; }
# What looks at the memory of its process would see the emulator's, too.
filter="${1:-*}:-*CommittedLazily"

running=()
for ((i = 0; i < shards; i++)); do
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i emulate $bin/ops_tests --gtest_brief=1 --gtest_filter="$filter" &
  running+=($!)
done
for process in "${running[@]}"; do wait "$process"; done

question="What is 123 + 456?"
answer=$(emulate $bin/quire run models/quire-demo --temperature 0 --threads 2 "$question")
echo "$question $answer"
grep -q 579 <<<"$answer" || { echo "that is wrong"; exit 1; }
