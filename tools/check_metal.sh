#!/usr/bin/env bash
# Finishes on a Mac what no other machine can prove: builds Quire, compiles every kernel in Metal's language with Apple's compiler,
# runs the ops' grids and the engine's parity goldens on the Mac's GPU, and measures. Writes one file to send back;
# docs/metal.md says what is expected in it.
#   tools/check_metal.sh [REPORT]    REPORT: the file (default: build/metal/report.txt)
# Runs with macOS' own bash (3.2). Fails if a step does; needs Xcode's Metal compiler for the second one.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
if [ "$(uname -sm)" != "Darwin arm64" ]; then
  echo "tools/check_metal.sh needs a Mac with Apple silicon; this is $(uname -sm)"
  exit 77
fi
mkdir -p build/metal
report=${1:-build/metal/report.txt}
model=${MODEL:-models/quire-demo}
jobs=${JOBS:-$(sysctl -n hw.ncpu)}
bin=build/release/bin
log=$(mktemp "${TMPDIR:-/tmp}/check_metal.XXXXXX")
trap 'rm -f "$log"' EXIT
failed=()
: >"$report"

say() { printf '%s\n' "$*" | tee -a "$report"; }
# step NAME LINES COMMAND...: its status, time and last lines go to the report; all of them if it fails, up to 400.
step() {
  local name=$1 lines=$2 start=$SECONDS status
  shift 2
  say "== $name"
  "$@" >"$log" 2>&1 </dev/null
  status=$?
  if [ $status -ne 0 ]; then
    failed+=("$name")
    lines=400
  fi
  tail -n "$lines" "$log" | tee -a "$report"
  say "-- $([ $status = 0 ] && echo passed || echo "FAILED with status $status"), $((SECONDS - start)) s"
  return $status
}

machine() {
  sw_vers
  sysctl -n machdep.cpu.brand_string hw.memsize hw.perflevel0.physicalcpu
  system_profiler SPDisplaysDataType | grep -E 'Chipset|Cores|Metal' || true
  xcrun -sdk macosx metal --version || echo "no Metal compiler: xcode-select --install, or xcodebuild -downloadComponent MetalToolchain"
  git log -1 --format='commit %H' 2>/dev/null || echo "no commit: this tree is no clone"
  git status --porcelain 2>/dev/null | head -n 20 || true
}

build() {
  tools/setup.sh || return
  cmake --preset release || return
  cmake --build --preset release -j "$jobs" --target quire formats_tests models_tests ops_tests parity_tests
}

# One text, as MLX has it compiled when the program runs: without fast arithmetic. All kernels that it names must come of it.
compile() {  # OP TEXT
  local out=build/metal/apple
  mkdir -p $out || return
  xcrun -sdk macosx metal -std=metal3.1 -fno-fast-math -Wall -Wextra -Wno-unused-function -c "$2" -o "$out/$1.air" || return
  xcrun -sdk macosx metallib "$out/$1.air" -o "$out/$1.metallib" || return
  awk -v op="$1" '$1 == op { print $2 }' build/metal/variants.txt | while read -r kernel; do
    grep -aq "$kernel" "$out/$1.metallib" || { echo "$kernel is not in $1.metallib"; exit 1; }
  done
}

# Clones of files, which APFS must make, and arrays over them.
mapped() {
  env QUIRE_TEST_CLONE_DIR="${TMPDIR:-/tmp}" "$bin/formats_tests" --gtest_filter='FileSnapshot.*' &&
    env QUIRE_SOURCE_DIR="$PWD" MTL_DEBUG_LAYER=1 "$bin/models_tests" --gtest_filter='MappedFiles.*'
}

gpu_tests() { env QUIRE_TEST_METAL=1 QUIRE_SOURCE_DIR="$PWD" MTL_DEBUG_LAYER=1 "$bin/$1" --gtest_brief=1 --gtest_filter="$2"; }
# The ops' suites, each in a process of its own: one that hangs the GPU does not take the others along.
grids() {
  local suite names
  names=$("$bin/ops_tests" --gtest_list_tests --gtest_filter="*:-$left_out" | sed -nE 's|^([A-Za-z0-9_/]+)\.( .*)?$|\1|p' | sort -u)
  if [ -z "$names" ]; then
    say "FAILED: ops_tests has no tests"
    failed+=(ops_tests)
  fi
  for suite in $names; do step "ops_tests $suite" 5 gpu_tests ops_tests "$suite.*:-$left_out"; done
}
# No test at all would pass, too.
parity() {
  [ -n "$models" ] && gpu_tests parity_tests "$models" && "$bin/parity_tests" --gtest_list_tests --gtest_filter="$models" | grep '^  ' >/dev/null
}

answer() {
  local said
  said=$("$bin/quire" run "$model" --device metal --temperature 0 "What is 123 + 456?") || return
  echo "$said"
  [ "$said" = "123 + 456 = 579" ]
}

# What is about the CPU or about CUDA, and what Metal has no kernels for.
cpu_only=(
  'CpuIsa*' 'Int8Linear*' 'PackMatrix*' 'KernelGraphTest*' 'Profile*' 'AttentionPlan*' 'PagedAttentionAmx*' 'PagedAttentionAvx512Bf16*'
  'CudaBlocks*' 'LoraAdd*' Linear.AddsInThePromisedOrder
  Linear.MatchesItsReference LinearFused.TheReferenceComposesTheReferences PagedAttentionBits.AreThoseOfTheScalarModel
  KvWrite.PoolsMayHaveMoreThan32BitsOfElementsAndAreCommittedLazily
)
left_out=$(IFS=:; echo "${cpu_only[*]}")
# The tiny models that the emulator runs, too.
models=$(sed -n "s/^models='\(.*\)'$/\1/p" tests/metal/run.sh)

step machine 40 machine
step build 5 build || { say "failed: build"; exit 1; }
step variants 3 python3 tools/metal_variants.py build/metal
for text in build/metal/texts/*.metal; do
  op=$(basename "$text" .metal)
  step "compile $op" 40 compile "$op" "$text"
done
grids
step mapped 20 mapped
step "parity_tests $models" 20 parity
step answer 20 answer
step "decode, $model" 20 "$bin/quire" bench latency "$model" --device metal
step "decode on the CPU, $model" 20 "$bin/quire" bench latency "$model" --device cpu
step "ablations, $model" 30 "$bin/quire" bench ablations "$model" --device metal --no-kernels
step "bench ops, the CPU's kernels" 60 "$bin/quire" bench ops
say "== $((${#failed[@]})) steps failed"
for name in ${failed[@]+"${failed[@]}"}; do say "failed: $name"; done
echo "send $report back"
[ ${#failed[@]} -eq 0 ]
