#!/usr/bin/env bash
# Builds the fuzzers and runs each for some seconds, two at a time, from its committed corpus; prints a line for each.
# Exits with 77 where there is no clang with libFuzzer.
#   tests/fuzz/run.sh [seconds = 20] [name ...]
# New inputs are kept in build/fuzz/corpus/NAME, so a later run goes on from there; findings in build/fuzz/findings, and
# `build/fuzz/bin/fuzz_NAME FILE` plays one again. Runs of less than two minutes, those of `make test-deep`, all take the same
# way: what has passed once does not fail on the next machine. From two minutes on the way is another each time, and the
# Rust library's branches guide the search, too: that builds its crates a second time.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-20}
shift || true
findings=build/fuzz/findings
mkdir -p $findings

compiler=$(command -v clang++-19 || find /usr/bin -name 'clang++-[0-9]*' | sort -V | tail -n 1)
[ -n "$compiler" ] || { echo "there is no clang to build the fuzzers with (apt install clang-19)"; exit 77; }
echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
  "$compiler" -fsanitize=fuzzer,address,undefined -x c++ - -o build/fuzz/trial ||
  { echo "$compiler has no libFuzzer (apt install libclang-rt-19-dev)"; exit 77; }
coverage=OFF seed=1
[ "$seconds" -lt 120 ] || coverage=ON seed=0  # 0: libFuzzer draws one
cmake --preset fuzz -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_C_COMPILER="${compiler/++/}" -DQUIRE_FUZZ_RUST=$coverage \
  >build/cmake-fuzz.log 2>&1 || { cat build/cmake-fuzz.log; exit 1; }
cmake --build --preset fuzz --target fuzzers -j "${JOBS:-$(nproc)}" -- --quiet

fuzz_one() {
  local name=$1 log=build/fuzz/$1.log ok=ok
  mkdir -p "build/fuzz/corpus/$name"
  local options=(-max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -max_len=16384 -print_final_stats=1
    -seed=$seed -artifact_prefix="$findings/$name-")
  [ ! -f "tests/fuzz/$name.dict" ] || options+=(-dict="tests/fuzz/$name.dict")
  "build/fuzz/bin/fuzz_$name" "${options[@]}" "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1 || ok=FAILED
  printf '%-14s %-6s %s runs, coverage %s, %s inputs\n' "$name" $ok \
    "$(awk '/stat::number_of_executed_units/ {print $2}' "$log")" \
    "$(grep -o 'cov: [0-9]*' "$log" | tail -n 1 | cut -d' ' -f2)" "$(find "build/fuzz/corpus/$name" -type f | wc -l)"
  [ $ok = ok ] || { grep -E 'check failed|panicked|ERROR|SUMMARY|runtime error|Test unit written' "$log" | head -n 12; return 1; }
}
export -f fuzz_one
export seconds seed findings

if [ $# = 0 ]; then
  mapfile -t names < <(find tests/fuzz/corpus -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | sort)
  set -- "${names[@]}"
fi
printf '%s\n' "$@" | xargs -P 2 -I NAME bash -c 'fuzz_one NAME'
