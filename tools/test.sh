#!/usr/bin/env bash
# Everything that a change must pass, in an order that fails early.
#   tools/test.sh [quick]    quick: the optimised build, the Python package and the clients only, no sanitizers
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
mkdir -p build
tools/setup.sh --python

step() { printf '\n== %s\n' "$*"; }
configure() { cmake --preset "$1" >"build/cmake-$1.log" 2>&1 || { cat "build/cmake-$1.log"; exit 1; }; }

step "release build"
configure release
cmake --build --preset release -j "$jobs" -- --quiet

step "release: unit, property, parity and bits tests"
ctest --preset release -j "$jobs" --output-on-failure --progress >build/ctest-release.log 2>&1 ||
  { tail -n 200 build/ctest-release.log; exit 1; }
tail -n 5 build/ctest-release.log

if [ "${1:-}" != quick ]; then
  step "kernels for 64-bit ARM compile"
  tools/check_neon.sh

  step "dev build (ASan + UBSan)"
  configure dev
  cmake --build --preset dev -j "$jobs" -- --quiet
  # One model of each kind for the bits grid; the release build takes them all.
  ctest --preset dev -j "$jobs" -E 'Models/Bits.*/(quire_demo|mistral|llama3|qwen3_4bit |qwen3_moe_4bit|qwen3_next|qwen35_mlx)' \
    --output-on-failure --progress >build/ctest-dev.log 2>&1 ||
    { tail -n 200 build/ctest-dev.log; exit 1; }
  tail -n 5 build/ctest-dev.log

  step "tsan build: the thread pool, kernels on many threads, the engine under stress, the server"
  configure tsan
  cmake --build --preset tsan -j "$jobs" --target base_tests ops_tests engine_tests server_tests -- --quiet
  ctest --preset tsan -j 1 --output-on-failure \
    -R '(^|/)(ThreadPool|Stress|Http|Server|Mixed.WithAnyNumberOfThreads|PagedAttention.*LongSequence|GatedDeltaRule.Chunks|MoeExperts)' >build/ctest-tsan.log 2>&1 ||
    { tail -n 200 build/ctest-tsan.log; exit 1; }
  tail -n 5 build/ctest-tsan.log
fi

step "an installed tree, moved, and a program that embeds it"
rm -rf build/installed build/moved build/examples
cmake --install build/release --prefix build/installed >build/install.log
mv build/installed build/moved
cmake -S examples -B build/examples -DCMAKE_PREFIX_PATH="$PWD/build/moved" >build/cmake-examples.log
cmake --build build/examples >>build/cmake-examples.log
build/examples/embed models/quire-demo >build/embed.log
grep -q '^0: ' build/embed.log && grep -q '^1: ' build/embed.log
build/moved/bin/quire run build/moved/share/quire/models/quire-demo "What is 123 + 456?" 2>/dev/null | grep -qx '123 + 456 = 579'

step "the Python package: a wheel of the kernels alone, installed, and its tests"
rm -rf build/wheels
CMAKE_BUILD_PARALLEL_LEVEL=$jobs build/venv/bin/python -m pip wheel -q --disable-pip-version-check --no-deps \
  --no-build-isolation -w build/wheels ./bindings/python
build/venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --force-reinstall build/wheels/*.whl
build/venv/bin/python -m pytest -q -rs bindings/python/tests

step "clients against a running server"
build/venv/bin/python -m pytest -q tests/api bench/peers
