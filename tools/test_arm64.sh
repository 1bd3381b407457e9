#!/usr/bin/env bash
# Runs what the preset arm64 has built in an emulator: the tests of the kernels, on NEON and on the portable code, and a demo
# model. What it shows is that results are right and have the promised bits; it says nothing of speed.
#   tools/test_arm64.sh [GTEST_FILTER]
set -euo pipefail
cd "$(dirname "$0")/.."
bin=build/arm64/bin
emulate() { QUIRE_SOURCE_DIR=$PWD qemu-aarch64 -L build/deps/arm64/root "$@"; }

emulate $bin/ops_tests --gtest_brief=1 --gtest_filter="${1:-*}"

question="What is 123 + 456?"
answer=$(emulate $bin/quire run models/quire-demo --temperature 0 --threads 2 "$question")
echo "$question $answer"
grep -q 579 <<<"$answer" || { echo "that is wrong"; exit 1; }
