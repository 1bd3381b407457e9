#!/usr/bin/env bash
# Runs what the preset arm64 has built in an emulator: a demo model and three small checkpoints beside transformers, on CPUs
# with and without DotProd and BF16; the tests of the kernels, on all instruction sets of 64-bit ARM; and some schedules of the
# bits grid on each of them. What it shows is that results are right and have the promised bits; it says nothing of speed.
#   tools/test_arm64.sh [ARGS...]    ARGS: of tools/run_tests.py, --flaky FILE say
set -euo pipefail
cd "$(dirname "$0")/.."
export QUIRE_EMULATED=1  # large cases are cut (src/ops/runtime/test_util.h)
jobs=${JOBS:-$(nproc)}
arguments=("$@")
failed=

# A CPU without the instructions must find that out, or it dies of them. Neoverse N1 has DotProd alone.
cpus=(cortex-a57:neon neoverse-n1:neon_dotprod max:neon_bf16)

run() {  # CPU ARGS...
  echo "== on $1"
  QEMU_CPU=$1 python3 tools/run_tests.py build/arm64 --jobs "$jobs" --limit 1800 "${@:2}" ${arguments[@]+"${arguments[@]}"} || failed=1
}

question="What is 123 + 456?"
for has in "${cpus[@]}"; do
  cpu=${has%:*}
  answer=$(QEMU_CPU=$cpu qemu-aarch64 -L build/deps/arm64/root build/arm64/bin/quire run models/quire-demo --temperature 0 \
    --threads 2 "$question" 2>build/arm64/said) || { echo "$cpu: exit status $?"; cat build/arm64/said; failed=1; continue; }
  isa=$(sed -n 's/^cpu  *\([^ ]*\) kernels.*/\1/p' build/arm64/said)
  echo "$cpu, $isa: $question $answer"
  [ "$isa" = "${has#*:}" ] || { echo "that should be ${has#*:}"; cat build/arm64/said; failed=1; }
  grep -q 579 <<<"$answer" || { echo "that is wrong"; failed=1; }
done
for has in "${cpus[@]}"; do
  run "${has%:*}" --programs parity_tests --only 'ParityBfloat16.*/(qwen3_bf16|qwen3_4bit)$|ParityInt8.*/qwen3_packed_bf16$'
done
# What looks at the memory of its process would see the emulator's, too.
run max --programs ops_tests --without 'CommittedLazily$'
run max --programs engine_tests --only 'BitsOnIsa|BitsAcrossIsas'
[ -z "$failed" ]
