# Sourced by test.sh and test_deep.sh: runs stages one after another, whatever fails, and says at the end what each one came to.
#   stage NAME COMMAND...   runs COMMAND (a function or a program) with `set -e`; its output goes to build/test/NAME.log.
#                           Exit status 77 means skipped; the last line of the log says why. Call it as a plain command:
#                           within `if`, `||` or `&&` bash would ignore `set -e` in the stage, too.
#   passed                  whether the last stage did
#   finish                  the report; its status is 0 if nothing failed
stage_logs=$PWD/build/test
mkdir -p "$stage_logs"
rm -f "$stage_logs"/*.log
# What a shell may have set for other runs.
unset "${!GTEST_@}" QUIRE_BASE_URL QUIRE_TEST_MODEL QUIRE_BIN QUIRE_CPU_ISA QUIRE_DEEP_TESTS PYTEST_ADDOPTS
: >"$stage_logs/flaky"  # gets the names of tests that failed and passed when they were run again, alone
stage_lines=()
stages_failed=()
stages_skipped=0  # or not run

stage() {
  local name=$1 start=$SECONDS log=$stage_logs/$1.log rc result
  shift
  printf '== %d min: %s\n' $((SECONDS / 60)) "$name"
  set +e
  (
    set -e
    "$@"
  ) >"$log" 2>&1 </dev/null
  rc=$?
  set -e
  case $rc in
    0) result=passed ;;
    77) stages_skipped=$((stages_skipped + 1)); result="skipped ($(tail -n 1 "$log"))" ;;
    *) result=FAILED; stages_failed+=("$name") ;;
  esac
  stage_lines+=("$(printf '%-18s %5d s  %s' "$name" $((SECONDS - start)) "$result")")
  printf '%s\n' "${stage_lines[-1]}"
  stage_rc=$rc
}

passed() { [ "$stage_rc" = 0 ]; }

# What would fail only because an earlier stage did.
not_run() {
  stages_skipped=$((stages_skipped + 1))
  stage_lines+=("$(printf '%-18s %5s    not run: %s' "$1" '' "$2")")
}

finish() {
  local name
  printf '\n== %d min, by stage, on %s\n' $((SECONDS / 60)) "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)"
  printf '%s\n' "${stage_lines[@]}"
  grep -h '^NOT CHECKED' "$stage_logs"/*.log || true
  if [ -s "$stage_logs/flaky" ]; then
    printf '\n== FLAKY: failed once, passed when run again alone; each is a defect to mend\n'
    cat "$stage_logs/flaky"
  fi
  for name in "${stages_failed[@]}"; do
    printf '\n== FAILED: %s; %s has all of it\n' "$name" "$stage_logs/$name.log"
    # What tools/run_tests.py says of each failed test, or else the end.
    if grep -q '^FAILED: ' "$stage_logs/$name.log"; then
      awk '/^FAILED: / { found = 1 } found && lines++ < 400' "$stage_logs/$name.log"
    else
      tail -n 40 "$stage_logs/$name.log"
    fi
  done
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
  cmake --preset "$1"
  cmake --build --preset "$1" -j "$jobs" "${@:2}" -- --quiet
}

# run_tests PRESET ARGS...: the tests of a build (tools/run_tests.py).
run_tests() {
  python3 tools/run_tests.py "build/$1" --flaky "$stage_logs/flaky" "${@:2}"
}

# run_pytest NAME ARGS...: the same for Python's tests.
run_pytest() {
  local cache=build/pytest/$1 rc
  local pytest=(build/venv/bin/python -m pytest -q -rs -o "cache_dir=$PWD/$cache")
  shift
  rm -rf "$cache"
  if "${pytest[@]}" "$@"; then return 0; else rc=$?; fi
  [ $rc -eq 1 ] || return $rc  # 1: tests failed; more: pytest itself
  cp "$cache/v/cache/lastfailed" "$cache.failed"
  "${pytest[@]}" --last-failed "$@" || return
  python3 -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$cache.failed" >>"$stage_logs/flaky"
}
