#!/usr/bin/env bash
# Checks of the sources: their format, what linters say of them, and the Rust crate's unit tests. Needs the release build
# (clang-tidy reads its commands). TIDY_SECONDS: how long clang-tidy may look. A tool that this machine lacks is named at the end, never passed over in silence.
#   tools/check.sh --format  the format alone, which takes seconds and needs no build
#   tools/check.sh --built   all but the format
#   tools/check.sh [BASE]    BASE: clang-tidy looks at the files that have changed since this commit (default: where this
#                            branch left the remote's main branch; on that branch itself, ten commits before)
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
tidy_seconds=${TIDY_SECONDS:-1200}
part=all
case ${1:-} in --format | --built) part=${1#--}; shift ;; esac
unchecked=()
failed=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

have() { command -v "$1" >/dev/null || { unchecked+=("$2: there is no $1"); return 1; }; }
check() {  # NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$log" 2>&1; then
    echo "$name: ok ($((SECONDS - start)) s)"
  else
    echo "$name: FAILED"
    tail -n 60 "$log"
    failed+=("$name")
  fi
}

# The latest changes first, of what the release build compiles: its headers are precompiled by another compiler, which clang says and
# does without; files for CUDA are in it only where there is a compiler for them.
changed_sources() {
  local base=${1:-} main
  git rev-parse -q --verify HEAD >/dev/null 2>&1 || { unchecked+=("clang-tidy: this tree has no history to compare with"); return; }
  if [ -z "$base" ]; then
    main=$(git rev-parse -q --verify origin/HEAD || git rev-parse -q --verify origin/main || true)
    base=$(git merge-base HEAD "${main:-HEAD}" || true)
    # A push may have brought several commits, and a clone may not hold ten.
    [ "$base" != "$(git rev-parse HEAD)" ] || base=$(git rev-list --first-parent --max-count=11 HEAD | tail -n 1)
  fi
  [ "$base" != "$(git rev-parse HEAD)" ] || unchecked+=("clang-tidy: no earlier commit to compare with")
  mapfile -t changed < <({
    git diff --name-only HEAD -- 'src/*.cpp'
    git log --name-only --format= "$base..HEAD" -- 'src/*.cpp'
  } | awk '!seen[$0]++' | while read -r name; do ! grep -qF "/$name\"" build/release/compile_commands.json || echo "$name"; done)
}

# FILE SECONDS. A file for which there was not enough time is no failure.
tidy_file() {
  local rc=0
  timeout --kill-after=5 "$2" clang-tidy-19 -p build/release --quiet --extra-arg=-Wno-unknown-warning-option \
    --extra-arg=-Wno-ignored-gch "$1" || rc=$?
  [ $rc != 124 ] || { echo "TOO LONG $1"; return 0; }
  return $rc
}
export -f tidy_file

# In turns until the time is up: what is left is named, so a large change is looked at in part.
tidy() {
  local start=$SECONDS at=0 left names
  while left=$((tidy_seconds - SECONDS + start)); [ $at -lt ${#changed[@]} ] && [ $left -gt 0 ]; do
    names=("${changed[@]:at:jobs}")
    check "clang-tidy ${names[*]}" xargs -P "$jobs" -I FILE bash -c 'tidy_file FILE "$0"' "$left" <<<"$(printf '%s\n' "${names[@]}")"
    mapfile -t names < <(sed -n 's/^TOO LONG //p' "$log")
    [ ${#names[@]} = 0 ] || unchecked+=("clang-tidy: ${names[*]}, which take longer than $left s")
    at=$((at + jobs))
  done
  [ $at -ge ${#changed[@]} ] || unchecked+=("clang-tidy: $((${#changed[@]} - at)) of ${#changed[@]} changed files, after $tidy_seconds s")
}

in_crate() { (cd rust/quire-text && "$@"); }
format() {
  if have clang-format-19 "format of C++"; then
    local names sources
    names=$(tools/source_files.py '*.h' '*.cpp' '*.cu' '*.cuh' '*.metal')
    mapfile -t sources <<<"$names"
    check "format of C++" clang-format-19 --dry-run -Werror "${sources[@]}"
  fi
  if have cargo-fmt "format of Rust"; then check "format of Rust" in_crate cargo fmt --check; fi
}

# In the folder that clones share, with what the build has compiled there of other people's crates. Not optimising this one
# saves most of what its tests take.
rust() {
  local cargo=(--release --locked --target-dir "$(cat build/rust/target-dir)")
  if have cargo-clippy "clippy"; then check "clippy" cargo_build clippy "${cargo[@]}" --all-targets -- -D warnings; fi
  cargo+=(--config profile.release.package.quire-text.opt-level=0)
  check "unit tests of Rust compile" cargo_build test --no-run --lib "${cargo[@]}"
  check "unit tests of Rust" in_crate ../../build/rust/unit_tests --quiet
}
cargo_build() { in_crate python3 ../../cmake/cargo_build.py ../../build/rust cargo "$@"; }

finish() {
  if [ ${#unchecked[@]} -gt 0 ]; then printf 'NOT CHECKED: %s\n' "${unchecked[@]}"; fi
  if [ ${#failed[@]} -gt 0 ]; then printf 'failed: %s\n' "${failed[@]}"; exit 1; fi
  exit 0
}
[ "$part" = built ] || format
[ "$part" != format ] || finish
rust
if have clang-tidy-19 "clang-tidy"; then
  changed=()
  changed_sources "${1:-}"
  tidy
fi
finish
