#!/usr/bin/env bash
# The tests of the GPU's kernels, on a machine with an NVIDIA GPU: the grids of the ops, the parity goldens and the bits grid,
# with every context on the GPU; and a server on it. Fails where there is none.
# Products and attention are tested once more with the kernels that GPUs without Hopper's machine code and memory run.
#   tools/test_cuda.sh [--sanitize] [BIN]    BIN: where the test programs are (default: build/release/bin)
#     --sanitize  also small cases of the kernels under compute-sanitizer, where it is (tests/cuda/sanitize.sh)
# Each suite runs in a process of its own: a kernel that faults takes the GPU's context with it.
set -uo pipefail
cd "$(dirname "$0")/.."
sanitize=
[ "${1:-}" != --sanitize ] || { sanitize=1; shift; }
bin=${1:-build/release/bin}
export QUIRE_TEST_CUDA=1

# What is about the CPU: its orders of sums, its layouts, its memory, references that read packed weights, plans whose
# kernels are the tests' own, models with operations of MLX in their steps, and 8-bit activations.
cpu_only=(
  'CpuIsa*' 'Int8Linear*' 'PackMatrix*' 'KernelGraphTest*' 'Profile*' 'AttentionPlan*' 'PagedAttentionAmx*'
  'PagedAttentionAvx512Bf16*' Linear.AddsInThePromisedOrder Linear.MatchesItsReference
  LinearFused.TheReferenceComposesTheReferences PagedAttentionBits.AreThoseOfTheScalarModel
  '*Bits.*_int8' '*Bits.ABatchDependentModelIsCaught*' '*Bits.AblationsChangeNothing*' '*Faults.LogitsThatAreNotFinite*'
  GgufLinear.RowsMayBeFetchedForAWhile KvWrite.PoolsMayHaveMoreThan32BitsOfElementsAndAreCommittedLazily
)
left_out=$(IFS=:; echo "${cpu_only[*]}")
failed=()

# Lines of the list that name a suite; the first one is a greeting of googletest.
suites() { "$1" --gtest_list_tests --gtest_filter="$2" | sed -nE 's|^([A-Za-z0-9_/]+)\.( .*)?$|\1|p' | sort -u; }
why() {  # EXIT_STATUS
  if [ "$1" = 124 ]; then echo "not done in 600 s"
  elif [ "$1" -gt 128 ]; then echo "died of SIG$(kill -l $(($1 - 128)))"
  else echo "exit status $1"; fi
}
attempt() {  # NAME HIDDEN_LINES LINES COMMAND...
  local name=$1 hidden=$2 lines=$3 status
  shift 3
  echo "== $name"
  timeout 600 "$@" >"$log" 2>&1
  status=$?
  [ "$status" = 0 ] || { failed+=("$name: $(why "$status")"); lines=200; }
  grep -Ev "$hidden" "$log" | tail -n "$lines"
}
run() {  # PROGRAM FILTER [WHAT]
  local suite names
  names=$(suites "$bin/$1" "$2")
  [ -n "$names" ] || failed+=("$1: no tests")
  for suite in $names; do
    attempt "$1 $suite${3:+, $3}" '^(left out|Running main)' 15 "$bin/$1" --gtest_brief=1 --gtest_filter="$suite.*:-$left_out"
  done
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
attempt "cuda_kernels_test: kernels alone against float64" '^ok' 15 "$bin/cuda_kernels_test"
run ops_tests "*:-$left_out"
export QUIRE_CUDA_KERNELS=plain
attempt "cuda_kernels_test, plain kernels" '^ok' 15 "$bin/cuda_kernels_test" kernel_choice linear attention experts
run ops_tests "*Linear*:*Attention*:*Moe*:*ZeroPoints*:*ColumnOrder*:*Ungated*:-$left_out" "plain kernels"
run engine_tests '*OnTheGpu*' "plain kernels"
unset QUIRE_CUDA_KERNELS
attempt "serving: quire serve --device cuda, answers alone and together" '^$' 15 python3 tests/cuda/serving.py "$bin/quire"
attempt "a lost device ends the process" '^Running main' 15 env QUIRE_TEST_CUDA=1 "$bin/lost_device_tests"
run parity_tests '*Parity*'
run engine_tests '*Models/Bits.*:*Hybrid*:*Models/Faults.*:*Models/Isolation.*:*Models/Stress.*:*OnTheGpu*:*GrammarLoad*:*Pooling*:*Windows*:*Sharing*'
if [ -n "$sanitize" ]; then
  tests/cuda/sanitize.sh "$bin"
  case $? in
    0) ;;
    77) echo "compute-sanitizer: there is none here" ;;
    *) failed+=("compute-sanitizer, see above") ;;
  esac
fi
if [ ${#failed[@]} -gt 0 ]; then printf 'failed: %s\n' "${failed[@]}"; exit 1; fi
