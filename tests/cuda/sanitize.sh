#!/usr/bin/env bash
# NVIDIA's compute-sanitizer over small cases of the kernels, on a machine with a GPU: memcheck, racecheck, synccheck. Prints the cases that
# ran under each tool, and fails if one finds something, if a case fails, or if a tool does not find the mistake that was planted for it.
#   tests/cuda/sanitize.sh [BIN] [PART ...]     BIN: where cuda_kernels_test is (default: build/release/bin); PART: its parts (default: all small ones)
# COMPUTE_SANITIZER names the tool, if it is not on the PATH: a CUDA toolkit has it, and the wheel nvidia-cuda-sanitizer-api (that of 13.0 lacks the
# program TreeLauncherSubreaper, without which it starts nothing). SANITIZER_TOOLS: some of the three; SANITIZER_SECONDS: for each part and tool;
# SANITIZER_JOBS: how many programs share a part that takes long (default: one a processor, 8 at most).
# Exits with 77 if there is no tool.
set -uo pipefail
cd "$(dirname "$0")/../.."
bin=${1:-build/release/bin}
[ $# = 0 ] || shift
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(sample long_rows new_keys attention experts state elementwise linear blocks)
tool=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer)} || { echo "no compute-sanitizer"; exit 77; }
seconds=${SANITIZER_SECONDS:-120}
jobs=${SANITIZER_JOBS:-$(($(nproc) < 8 ? $(nproc) : 8))}
declare -A planted=([memcheck]=plant_overrun [racecheck]=plant_race [synccheck]=plant_divergence)
failed=()
log=$(mktemp)
trap 'rm -f "$log" "$log".*' EXIT

under() {  # CHECK PART: leaves the output in $log; the first status that is not 0
  local count=1 pids=() i status=0
  case $2 in linear | blocks) count=$jobs ;; esac
  rm -f "$log".*
  for ((i = 0; i < count; i++)); do
    timeout "$seconds" "$tool" --tool "$1" --error-exitcode 9 "$bin/cuda_kernels_test" few "$i/$count" "$2" >"$log.$i" 2>&1 &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || status=$((status ? status : $?)); done
  cat "$log".* >"$log"
  return $status
}
# The tool's summaries, each kind of them once.
summary() { grep -E 'SUMMARY' "$log" | sed 's/^=* *//' | sort | uniq -c | sed -E 's/^ *1 //; s/^ *([0-9]+) /\1 x /' | paste -sd';'; }

for check in ${SANITIZER_TOOLS:-memcheck racecheck synccheck}; do
  under "$check" "${planted[$check]}"
  status=$?
  echo "== $check ${planted[$check]}: $(summary)"
  if [ $status != 9 ]; then
    failed+=("$check does not find ${planted[$check]} (status $status)")
    tail -n 20 "$log"
    continue
  fi
  for part in "${parts[@]}"; do
    SECONDS=0
    under "$check" "$part"
    status=$?
    echo "== $check $part, $SECONDS s: $(summary)"
    grep -E '^(ok|FAILED) ' "$log" | sed -E 's/ +[0-9.e+-]+ \(bound .*//'
    [ $status = 124 ] && echo "   not done in $seconds s"
    if [ $status != 0 ]; then
      failed+=("$check $part (status $status)")
      grep -Ev '^(ok|FAILED) ' "$log" | head -n 60
    fi
  done
done
if [ ${#failed[@]} -gt 0 ]; then printf 'failed: %s\n' "${failed[@]}"; exit 1; fi
