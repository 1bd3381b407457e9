#!/usr/bin/env bash
# The checks that take long: sanitizers, fuzzers, linters, tests against torch, what measures time, other builds. Run them
# before a larger change is called done.
#   tools/test_deep.sh [PART...]    all parts if none is named; a part that this machine cannot run is skipped and says why
# FUZZ_SECONDS (20), SOAK_MINUTES (12, six for each model, from which on the growth of the memory is looked at) and TIDY_SECONDS (1200) set how long these parts look.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
# shellcheck source=tools/stages.sh
source tools/stages.sh
parts=(sources clones neon amx arm64 cuda metal asan tsan fuzz grids torch llama_cpp timed clients page terminal packages proxies neighbour chaos soak)
[ $# -eq 0 ] || parts=("$@")

# Format, clippy, unit tests of Rust, as in make test, and clang-tidy for longer. The build is there for clang-tidy, which reads its commands.
part_sources() {
  build release
  tools/check.sh
}

# The compiler cache serves a clone in any folder.
part_clones() { tools/test_clones.sh; }

part_neon() { tools/check_neon.sh; }

# Kernels for AMX, on a tile unit in software.
part_amx() {
  if grep -qw amx_bf16 /proc/cpuinfo; then echo "this machine has AMX: make test is the test"; return 77; fi
  grep -qw avx512_bf16 /proc/cpuinfo || { echo "AVX512-BF16 is needed beside the tile unit"; return 77; }
  build emulated-amx --target ops_tests
  run_tests emulated-amx --jobs "$jobs" --programs ops_tests --only '^(AffineLinear|Int8Linear|BlockFloat|Linear|HeadLinear|GgufLinear|Float8|MoeExperts|ZeroPoints|ColumnOrder|PagedAttention|LatentAttention|ChunkedAttention|Mixed)'
}

# 64-bit ARM, linked here and run in an emulator.
part_arm64() {
  [ "$(uname -m)" != aarch64 ] || { echo "this machine is 64-bit ARM: make test is the test"; return 77; }
  command -v rustup >/dev/null || { echo "rustup is needed: it brings Rust's library for 64-bit ARM"; return 77; }
  tools/setup.sh --arm64
  build arm64 --target ops_tests parity_tests engine_tests quire
  tools/test_arm64.sh --flaky "$stage_logs/flaky" --failed "$stage_logs/failed"
}

# On an NVIDIA GPU; make test compiles the kernels on any x86-64 Linux.
part_cuda() {
  [ -e /proc/driver/nvidia/version ] || { echo "there is no NVIDIA driver"; return 77; }
  build release --target quire cuda_kernels_test ops_tests parity_tests engine_tests engine_grammar_tests lost_device_tests
  tools/test_cuda.py
}

# Metal's kernels on an emulator, and the emulator on MLX's. The rooms that make test does not compile for Macs; text's headers are
# made by the release build.
part_metal() {
  tools/setup.sh --metal
  tests/metal/run.sh
  [ "$(uname -sm)" = "Linux x86_64" ] || return 0
  python3 tests/metal/cross/build.py --jobs "$jobs" --no-link hub text dialects server bench cli
}

part_asan() {
  build dev --target quire_tests
  # One model of each kind for the bits grid; the release build takes them all.
  run_tests dev --jobs "$jobs" --without 'Models/Bits.*/(quire_demo|mistral|llama3|qwen3_4bit$|qwen3_moe_4bit|qwen3_next|qwen35_mlx)'
}

# The thread pool, loading and kernels on many threads, the engine under stress, the server.
part_tsan() {
  local programs=(base_tests formats_tests ops_tests models_tests engine_tests engine_grammar_tests server_tests)
  build tsan --target "${programs[@]}"
  local threads='ThreadPool|Mixed.WithAnyNumberOfThreads|PagedAttention.*LongSequence|GatedDeltaRule.Chunks|MoeExperts'
  local loading='FirstFailure|StagedTensor|ContentDigest|PackMatrix|LoadingThreads'
  local engine='Stress|Sharing|Admission|MaskWorkers'
  local server='Http|Server|TenantsTest|Tls|WireTest|Ledger|WorkQueue|Log\.'
  run_tests tsan --jobs 1 --programs "${programs[@]}" --only "(^|/)($threads|$loading|$engine|$server)"
}

part_fuzz() { tests/fuzz/run.sh "${FUZZ_SECONDS:-20}"; }

# Grids of which `make test` takes a part: schedules on one thread and on two, groups of heads for every dtype.
part_grids() {
  build release --target engine_tests ops_tests
  QUIRE_DEEP_TESTS=1 run_tests release --jobs "$jobs" --programs engine_tests ops_tests \
    --only 'SoloEqualsEverySchedule|PagedAttention|ChunkedAttention'
}

# The Python package against torch, transformers and kernels; without them pytest would leave these tests out.
part_torch() {
  [ -e build/venv/.torch ] || { echo "torch and transformers could not be installed (build/test/setup.log)"; return 77; }
  build/venv/bin/python -c 'import torch, transformers, kernels'
  build_wheel
  run_pytest torch bindings/python/tests
}

# Token ids of GGUF files, beside llama.cpp's: of the vocabularies in its source, and of the tiny models with a family's tokenizer.
part_llama_cpp() {
  local peer=build/peers found texts=(tests/parity/models/*/text.json)
  build release --target quire
  found=$(python3 bench/peers/llama_cpp.py $peer --jobs "$jobs" | tail -n 2)
  $peer/venv/bin/python tools/parity/check_gguf_tokens.py --quire build/release/bin/quire --llama-cpp "${found##*$'\n'}" \
    --llama-server "${found%%$'\n'*}/llama-server" --random 100 --files "${texts[@]/text.json/model.gguf}"
}

# What measures time: for a machine that does nothing else. `make test` runs these tests, too, with limits that only a hang
# reaches.
part_timed() {
  build release
  export QUIRE_DEEP_TESTS=1
  run_tests release --jobs 1 --only 'BadWords\.Lookups|GrammarLimits|Neighbour|AStoppedText|DecodingStops|EventsOfOneRequest'
  run_pytest timed tests/api/test_stopping.py tests/api/test_bench.py
  build/release/bin/quire bench guard
}

# Other people's programs against a server.
part_clients() {
  build release --target quire
  tests/clients/run.sh
}

# The chat page in a browser.
part_page() {
  build release --target quire
  tests/page/run.sh
}

# The chat in a terminal, as tmux shows it.
part_terminal() {
  command -v tmux >/dev/null || { echo "tmux is needed (apt install tmux)"; return 77; }
  build release --target quire
  run_pytest terminal tests/terminal
}

# Packages, on other systems than this one.
part_packages() {
  [ "$(uname -m)" = x86_64 ] || { echo "packages are for x86-64"; return 77; }
  tools/setup.sh --packages
  build release --target quire
  python3 package/package.py
  python3 tests/packages/make_roots.py
  run_pytest packages tests/packages
}

# The guide's configurations for nginx and Caddy.
part_proxies() {
  tools/setup.sh --proxies
  build release --target quire
  run_pytest proxies tests/proxies
}

part_neighbour() {
  build release
  run_pytest neighbour tests/neighbour
}

part_chaos() {
  build release
  build/venv/bin/python tests/soak/chaos.py
}

part_soak() {
  build release
  build/venv/bin/python tests/soak/soak.py --minutes "${SOAK_MINUTES:-12}"
}

for part in "${parts[@]}"; do
  declare -F "part_$part" >/dev/null || { echo "there is no part $part"; exit 2; }
done
stage setup tools/setup.sh --deep
if passed; then
  may_skip=1
  for part in "${parts[@]}"; do stage "$part" "part_$part"; done
else
  for part in "${parts[@]}"; do not_run "$part" "the setup failed"; done
fi
finish
