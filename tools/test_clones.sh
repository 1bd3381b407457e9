#!/usr/bin/env bash
# A clone in another folder must find in the compiler cache what the first clone left there: at least 95 % of its objects.
# Builds two clones of HEAD with a cache of their own.
#   tools/test_clones.sh [TARGET...]    default: programs of all kinds, kernels, tests and the server among them
set -euo pipefail
cd "$(dirname "$0")/.."
command -v ccache >/dev/null || { echo "there is no ccache"; exit 77; }
git rev-parse -q --verify HEAD >/dev/null 2>&1 || { echo "this tree is no clone"; exit 77; }
[ $# -gt 0 ] || set -- quire base_tests text_tests server_tests models_tests
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export CCACHE_DIR=$scratch/cache

build_clone() {  # FOLDER TARGETS...
  git clone -q . "$1"
  mkdir -p "$1/build"
  cp -a build/deps "$1/build/deps"
  (cd "$1" && cmake --preset release >build/cmake.log && cmake --build --preset release --target "${@:2}" -- --quiet)
}
count() { ccache --print-stats | awk -v name="$1" '$1 == name { print $2 }'; }

build_clone "$scratch/first" "$@"
ccache --zero-stats >/dev/null
build_clone "$scratch/a/folder/further/down" "$@"
hits=$(($(count direct_cache_hit) + $(count preprocessed_cache_hit)))
all=$((hits + $(count cache_miss)))
echo "the second clone found $hits of $all objects"
[ "$all" -gt 0 ] && [ $((100 * hits)) -ge $((95 * all)) ]
