#!/usr/bin/env bash
# What every change must pass: an optimised build and its tests, the installed tree, the Python package, clients against a
# running server, the cross-build for Macs. Sanitizers, fuzzers and whatever takes long are in tools/test_deep.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc 2>/dev/null || sysctl -n hw.ncpu)}
# shellcheck source=tools/stages.sh
source tools/stages.sh

# An installed tree, moved, and a program that embeds it.
installed_tree() {
  rm -rf build/installed build/moved build/examples
  cmake --install build/release --prefix build/installed
  mv build/installed build/moved
  cmake -S examples -B build/examples -DCMAKE_PREFIX_PATH="$PWD/build/moved"
  cmake --build build/examples
  build/examples/embed models/quire-demo >build/embed.log
  grep -q '^0: ' build/embed.log
  grep -q '^1: ' build/embed.log
  build/moved/bin/quire run build/moved/share/quire/models/quire-demo --temperature 0 "What is 123 + 456?" | grep -x '123 + 456 = 579'
}

# Without torch and transformers, whose tests the deep ring runs.
python_package() {
  build_wheel
  run_pytest package bindings/python/tests
}

# ops, models and engine for a Mac, and the ops' tests linked with MLX's library for Macs. Nothing of it can run here.
cross_build() {
  tools/setup.sh --metal
  python3 tests/metal/cross/build.py --jobs "$jobs"
}

stage setup tools/setup.sh --tests
if ! passed; then
  for name in format build sources unit installed-tree clients python-package macos; do not_run "$name" "the setup failed"; done
  finish
fi
stage format tools/check.sh --format
stage build build release
if passed; then
  # clang-tidy looks for a minute at what changed last; what it leaves is named.
  stage sources env TIDY_SECONDS=60 tools/check.sh --built
  stage unit run_tests release --jobs "$jobs"
  stage installed-tree installed_tree
  stage clients run_pytest clients tests/api tests/hub tests/soak tests/tools bench/peers
else
  for name in sources unit installed-tree clients; do not_run "$name" "the build failed"; done
fi
stage python-package python_package
if [ "$(uname -sm)" = "Linux x86_64" ]; then
  stage macos cross_build
else
  not_run macos "the pinned compiler for Macs runs on x86-64 Linux"
fi
finish
