# Sourced by test.sh and test_deep.sh: runs stages one after another, whatever fails, and says at the end what each one came to.
#   stage NAME COMMAND...   runs COMMAND (a function or a program) with `set -e`; its output goes to build/test/NAME.log.
#                           Where may_skip=1 is set, exit status 77 means skipped, and the last line of the log says why;
#                           elsewhere it is a failure like any other. Call it as a plain command:
#                           within `if`, `||` or `&&` bash would ignore `set -e` in the stage, too.
#   passed                  whether the last stage did
#   finish                  the report; its status is 0 if nothing failed
stage_logs=$PWD/build/test
mkdir -p "$stage_logs"
rm -f "$stage_logs"/*.log
# What a shell may have set for other runs: all but QUIRE_CUDA, which tools/setup.sh and build() read.
for name in "${!GTEST_@}" "${!QUIRE_@}" "${!PYTEST_@}" PYTHONOPTIMIZE PYTHONPATH; do
  [ "$name" = QUIRE_CUDA ] || unset "$name"
done
: >"$stage_logs/failed"  # gets the names of tests that failed
: >"$stage_logs/flaky"  # and of those that failed once and passed when they were run again, alone
may_skip=
stage_pid=  # of the stage that runs
stage_lines=()
stages_failed=()
stages_skipped=0  # or not run

# A signal to this shell alone ends what it has started, too; tools/run_tests.py in turn ends its tests.
end_stage() {
  trap '' INT TERM HUP
  if [ -n "$stage_pid" ]; then
    kill -TERM -- "-$stage_pid" 2>/dev/null || true
    wait "$stage_pid" || true
  fi
  exit "$1"
}
trap 'end_stage 130' INT
trap 'end_stage 143' TERM
trap 'end_stage 129' HUP

stage() {
  local name=$1 start=$SECONDS log=$stage_logs/$1.log rc result
  shift
  printf '== %d min: %s\n' $((SECONDS / 60)) "$name"
  set +e
  set -m  # a process group of its own, which end_stage ends whole
  (
    set +m -e
    "$@"
  ) >"$log" 2>&1 </dev/null &
  stage_pid=$!
  set +m
  wait "$stage_pid"
  rc=$?
  stage_pid=
  set -e
  case $rc$may_skip in
    0*) result=passed ;;
    771) stages_skipped=$((stages_skipped + 1)); result="skipped ($(tail -n 1 "$log"))" ;;
    *) result=FAILED; stages_failed+=("$name") ;;
  esac
  result=$(printf '%-18s %5d s  %s' "$name" $((SECONDS - start)) "$result")
  stage_lines+=("$result")
  printf '%s\n' "$result"
  stage_rc=$rc
}

passed() { [ "$stage_rc" = 0 ]; }

# What would fail only because an earlier stage did.
not_run() {
  stages_skipped=$((stages_skipped + 1))
  stage_lines+=("$(printf '%-18s %5s    not run: %s' "$1" '' "$2")")
}

cpu_name() { sysctl -n machdep.cpu.brand_string 2>/dev/null || sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1; }

finish() {
  local name
  printf '\n== %d min, by stage, on %s\n' $((SECONDS / 60)) "$(cpu_name)"
  printf '%s\n' "${stage_lines[@]}"
  grep -hE '^(NOT CHECKED|LEFT RUNNING)' "$stage_logs"/*.log || true
  if [ -s "$stage_logs/flaky" ]; then
    printf '\n== FLAKY: failed once, passed when run again alone; each is a defect to mend\n'
    cat "$stage_logs/flaky"
  fi
  for name in ${stages_failed[@]+"${stages_failed[@]}"}; do  # bash 3.2 takes an empty list for an unset one
    printf '\n== FAILED: %s; %s has all of it\n' "$name" "$stage_logs/$name.log"
    # What tools/run_tests.py says of each failed test, or else the end.
    if grep -q '^FAILED: ' "$stage_logs/$name.log"; then
      awk '/^FAILED: / { found = 1 } found && lines++ < 400' "$stage_logs/$name.log"
    else
      tail -n 40 "$stage_logs/$name.log"
    fi
  done
  if [ -s "$stage_logs/failed" ]; then
    printf '\n== failed tests\n'
    head -n 100 "$stage_logs/failed"
  fi
  local all=${#stage_lines[@]} bad=${#stages_failed[@]}
  [ "$bad" = 0 ] || printf '\nfailed: %s\n' "${stages_failed[*]}"
  printf '\nstages: %d passed, %d failed, %d skipped\n' $((all - bad - stages_skipped)) "$bad" $stages_skipped
  [ "$bad" = 0 ]
}

# The Python package: a wheel of the kernels alone, installed in build/venv.
build_wheel() {
  rm -rf build/wheels
  CMAKE_BUILD_PARALLEL_LEVEL=$jobs build/venv/bin/python -m pip wheel -q --disable-pip-version-check --no-deps \
    --no-build-isolation -w build/wheels ./bindings/python
  build/venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --force-reinstall build/wheels/*.whl
}

# build PRESET TARGETS...
build() {
  local cuda=()
  if [ "$1" = release ] && [ -n "${QUIRE_CUDA:-}" ]; then cuda=(-DQUIRE_CUDA="$QUIRE_CUDA"); fi
  cmake --preset "$1" ${cuda[@]+"${cuda[@]}"}  # bash 3.2 takes an empty list for an unset one
  cmake --build --preset "$1" -j "$jobs" "${@:2}" -- --quiet
}

# run_tests PRESET ARGS...: the tests of a build (tools/run_tests.py).
run_tests() {
  python3 tools/run_tests.py "build/$1" --flaky "$stage_logs/flaky" --failed "$stage_logs/failed" "${@:2}"
}

# keys FILE [FILE]: the keys of a JSON object, a line each; without those of a second one.
keys() {
  python3 -c '
import json, pathlib, sys
first, *second = (json.loads(pathlib.Path(name).read_text()) if pathlib.Path(name).exists() else {} for name in sys.argv[1:])
print("".join(f"{key}\n" for key in first if not any(key in other for other in second)), end="")' "$@"
}

# run_pytest NAME ARGS...: the same for Python's tests.
run_pytest() {
  local cache=build/pytest/$1 rc=0
  local pytest=(build/venv/bin/python -m pytest -q -rfEs -o "cache_dir=$PWD/$cache")
  local last=$cache/v/cache/lastfailed
  shift
  rm -rf "$cache"
  "${pytest[@]}" "$@" || rc=$?
  [ $rc -eq 1 ] || return $rc  # 1: tests failed; more: pytest itself
  cp "$last" "$cache.failed"
  rc=0
  "${pytest[@]}" --last-failed "$@" || rc=$?
  keys "$cache.failed" "$last" >>"$stage_logs/flaky"
  [ $rc -eq 0 ] || keys "$last" >>"$stage_logs/failed"
  return $rc
}
