#!/usr/bin/env bash
# Installs what the build needs, once: Debian or Ubuntu packages (on macOS Homebrew's), the pinned MLX wheel under build/deps, and a Rust tool chain
# if there is none; where there is an NVIDIA driver, and for tests, the CUDA compiler, too. Uses apt, pip and cargo as they are configured
# (proxies, mirrors), and tries a download three times. Says what it does; a second run does nothing.
# Exits with 77 if this machine cannot have what was asked for.
#   tools/setup.sh [--tests] [--deep] [--cuda] [--arm64] [--metal] [--clients] [--packages] [--proxies]
#     --tests  also build/venv with the packages of the tests that are written in Python, clang-format, and what --cuda brings
#     --deep   also what tools/test_deep.sh needs: torch and transformers, linters, the fuzzers' compiler (it names what is missing)
#     --cuda   also the CUDA compiler (QUIRE_CUDA=ON does the same, QUIRE_CUDA=OFF leaves it out)
#     --arm64  also what the preset arm64 needs
#     --metal  also what tests/metal/run.sh needs: MLX's library and kernels for Macs, and a compiler for Macs
#     --clients  also Node.js and npm, for tests/clients/run.sh
#     --packages  also what `make package` and tests/packages need
#     --proxies  also nginx and Caddy, unpacked below build/deps, for tests/proxies
set -euo pipefail
cd "$(dirname "$0")/.."

system=$(uname)
say() { printf 'setup: %s\n' "$*"; }
lacking() { printf 'setup: %s\n' "$*" >&2; exit 77; }  # what this machine cannot have
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }
thrice() { "$@" || { sleep 5; "$@"; } || { sleep 20; "$@"; }; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }
known() { apt-cache show "$1" >/dev/null 2>&1; }

apt_updated=0
apt_update() {
  if [ $apt_updated = 0 ]; then
    say "apt-get update"
    thrice as_root apt-get update -qq
    apt_updated=1
  fi
}

apt_install() {
  say "apt-get install $*"
  thrice as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# The first of several packages that is installed, or that apt knows.
pick() {
  local name
  for name in "$@"; do if installed "$name"; then echo "$name"; return; fi; done
  for name in "$@"; do if known "$name"; then echo "$name"; return; fi; done
  fail "none of these packages is available: $*"
}

# macOS itself has curl, libedit and zlib; Homebrew has no RapidCheck, without which two property tests of the engine are left out.
install_formulas() {
  command -v brew >/dev/null || fail "Homebrew is needed: https://brew.sh"
  local name missing=""
  for name in cmake ninja ccache python3 boost cli11 spdlog prometheus-cpp highway xxhash openssl@3 googletest; do
    brew list --versions "$name" >/dev/null 2>&1 || missing="$missing $name"
  done
  [ -n "$missing" ] || return 0
  say "brew install$missing"
  # shellcheck disable=SC2086  # a word each
  thrice brew install -q $missing
}

install_packages() {
  local wanted missing=() name
  # Boost.JSON appeared in 1.75; Debian 12's default is 1.74, so a versioned package is named.
  wanted=(g++ make cmake ninja-build ccache unzip ca-certificates python3 python3-pip python3-venv
    libcli11-dev libspdlog-dev prometheus-cpp-dev libhwy-dev libxxhash-dev libcurl4-openssl-dev libssl-dev libedit-dev
    libgtest-dev libgmock-dev librapidcheck-dev)
  for name in "${wanted[@]}"; do installed "$name" || missing+=("$name"); done
  if ! ls /usr/lib/*/cmake/boost_json-1.*/ >/dev/null 2>&1; then
    apt_update
    local version
    version=$(pick libboost-json1.81-dev libboost-json1.83-dev libboost-json1.88-dev libboost-json-dev)
    missing+=("$version" "${version/-json/}")
  fi
  [ ${#missing[@]} = 0 ] && return
  apt_update
  apt_install "${missing[@]}"
}

# The text library's crates need Rust 1.88 (llguidance). Debian 12's own is 1.63, but it also carries a newer one.
rust_ok() {
  command -v cargo >/dev/null || return 1
  local version
  version=$(cargo --version | cut -d' ' -f2)
  [ "$(printf '1.88\n%s\n' "$version" | sort -V | head -n1)" = 1.88 ]
}
install_rust() {
  rust_ok && return
  apt_update
  local candidates=(cargo-web)
  mapfile -t -O 1 candidates < <(apt-cache search --names-only '^cargo-1\.[0-9]+$' | cut -d' ' -f1 | sort -rV)
  for name in "${candidates[@]}"; do
    known "$name" || continue
    apt_install "$name" "${name/cargo/rustc}" || continue
    rust_ok && return
  done
  fail "cargo 1.88 or newer is needed; install a Rust tool chain (https://rustup.rs) and run this again"
}

# install_mlx ARCH FOLDER: the pinned wheel for this architecture, under FOLDER.
install_mlx() {
  local package version sha_x86_64 sha_aarch64 sha glibc dir wheel
  read -r package version sha_x86_64 sha_aarch64 < <(grep '^mlx-' cmake/mlx.lock)
  case $1 in
    x86_64) sha=$sha_x86_64 ;;
    aarch64) sha=$sha_aarch64 ;;
    *) fail "the pinned MLX wheels are for Linux on x86-64 and 64-bit ARM, this is $1" ;;
  esac
  dir=$2/$package-$version
  [ -f "$dir/.complete" ] && [ -f "$dir/LICENSE" ] && return
  say "pip download $package==$version for $1"
  rm -rf "$dir" "$2/wheel"
  mkdir -p "$dir"
  local platforms=()
  for glibc in 28 31 34 35; do platforms+=(--platform "manylinux_2_${glibc}_$1"); done
  thrice python3 -m pip download -q --no-deps --only-binary=:all: "${platforms[@]}" -d "$2/wheel" "$package==$version"
  wheel=$(ls "$2"/wheel/*.whl)
  echo "$sha  $wheel" | sha256sum -c --quiet - || fail "$wheel is not the pinned one (cmake/mlx.lock)"
  say "unpacking it into $dir"
  # The library finds its BLAS by $ORIGIN/../../mlx_cpu.libs, so both folders stay side by side.
  unzip -q "$wheel" 'mlx/*' 'mlx_cpu.libs/*' -d "$dir"
  unzip -q -j "$wheel" '*.dist-info/licenses/LICENSE' -d "$dir"
  rm -rf "$2/wheel"
  touch "$dir/.complete"
}

# What the preset arm64 needs to compile for 64-bit ARM elsewhere: the cross compiler, an emulator, and this distribution's libraries
# for 64-bit ARM. These are unpacked into a folder of their own (build/deps/arm64/root), since some of their packages
# cannot be installed beside those of the machine itself.
install_arm64() {
  local dir=build/deps/arm64 name missing=()
  mkdir -p $dir
  for name in g++-aarch64-linux-gnu qemu-user; do installed "$name" || missing+=("$name"); done
  if [ ${#missing[@]} -gt 0 ]; then
    apt_update
    for name in "${missing[@]}"; do known "$name" || lacking "apt knows no $name"; done
    apt_install "${missing[@]}"
  fi
  install_mlx aarch64 $dir
  if ! rustc --print target-libdir --target aarch64-unknown-linux-gnu 2>/dev/null | xargs -r ls >/dev/null 2>&1; then
    command -v rustup >/dev/null || lacking "Rust's library for aarch64-unknown-linux-gnu is needed: install rustup"
    say "rustup target add aarch64-unknown-linux-gnu"
    thrice rustup target add aarch64-unknown-linux-gnu
  fi
  [ $dir/.complete -nt tools/setup.sh ] && return
  say "libraries for 64-bit ARM, into $dir/root"
  rm -rf $dir/root $dir/apt
  mkdir -p $dir/root $dir/apt/state/lists/partial $dir/apt/cache/archives/partial
  touch $dir/apt/status
  local apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$PWD/$dir/apt/state"
    -o Dir::State::status="$PWD/$dir/apt/status" -o Dir::Cache="$PWD/$dir/apt/cache" -o APT::Sandbox::User=root)
  thrice "${apt[@]}" update
  local boost
  boost=$(dpkg-query -W -f='${Package} ${Status}\n' 'libboost-json*-dev' | awk '/ok installed/ { print $1; exit }')
  thrice "${apt[@]}" install -y --no-install-recommends --download-only "$boost" "${boost/-json/}" libc6-dev libstdc++6 libcli11-dev \
    libspdlog-dev prometheus-cpp-dev libhwy-dev libxxhash-dev libcurl4-openssl-dev libssl-dev libedit-dev libgtest-dev libgmock-dev librapidcheck-dev
  for name in $dir/apt/cache/archives/*.deb; do dpkg-deb -x "$name" $dir/root; done
  rm -rf $dir/apt
  touch $dir/.complete
}

# The CUDA compiler, from wheels: CMake takes it as it is once lib64 is there.
install_cuda() {
  [ "$(uname -m)" = x86_64 ] || return 0
  local version dir package sha wheel
  version=$(awk '$1 == "nvidia-cuda-nvcc" { print $2 }' cmake/cuda.lock)
  dir=build/deps/cuda-$version
  [ "$dir/.complete" -nt cmake/cuda.lock ] && return
  rm -rf "$dir" build/deps/cuda-wheels
  mkdir -p "$dir" build/deps/cuda-wheels
  while read -r package version sha; do
    say "pip download $package==$version"
    thrice python3 -m pip download -q --no-deps --only-binary=:all: -d build/deps/cuda-wheels "$package==$version" ||
      fail "pip cannot get $package==$version; QUIRE_CUDA=OFF does without the kernels for NVIDIA GPUs"
    wheel=$(ls build/deps/cuda-wheels/"${package//-/_}"-*.whl)
    echo "$sha  $wheel" | sha256sum -c --quiet - || fail "$wheel is not the pinned one (cmake/cuda.lock)"
    unzip -q -o "$wheel" 'nvidia/cu13/*' -d "$dir"
  done < <(grep '^nvidia-' cmake/cuda.lock)
  mv "$dir"/nvidia/cu13/* "$dir"
  rm -rf "$dir/nvidia" build/deps/cuda-wheels
  chmod -R u+x "$dir/bin" "$dir/nvvm/bin"
  ln -s lib "$dir/lib64"
  touch "$dir/.complete"
}

checked() { if command -v sha256sum >/dev/null; then sha256sum -c --quiet -; else shasum -a 256 -c -s -; fi; }

# MLX for Macs: on a Mac all of it, elsewhere its headers, with the text of its kernels, and the library to link with.
install_metal() {
  local version dir package platform sha wheel
  version=$(awk '$1 == "mlx-cpu" { print $2 }' cmake/mlx.lock)
  dir=build/deps/mlx-metal-$version
  [ "$dir/.complete" -nt cmake/metal.lock ] && return
  local parts=('mlx/include/*' mlx/lib/libmlx.dylib)
  [ "$system" != Darwin ] || parts=('mlx/*')
  read -r package platform sha < <(grep '^mlx-metal ' cmake/metal.lock)
  say "pip download $package==$version"
  rm -rf "$dir" build/deps/metal-wheel
  mkdir -p "$dir"
  thrice python3 -m pip download -q --no-deps --only-binary=:all: --platform "$platform" -d build/deps/metal-wheel "$package==$version"
  wheel=$(ls build/deps/metal-wheel/*.whl)
  echo "$sha  $wheel" | checked || fail "$wheel is not the pinned one (cmake/metal.lock)"
  unzip -q "$wheel" "${parts[@]}" -d "$dir"
  unzip -q -j "$wheel" '*.dist-info/licenses/LICENSE' -d "$dir"
  rm -rf build/deps/metal-wheel
  touch "$dir/.complete"
}

# zig's clang, which compiles for Macs on Linux.
install_zig() {
  [ "$(uname -m)" = x86_64 ] || return 0
  local version dir package sha wheel
  read -r package version sha < <(grep '^ziglang ' cmake/metal.lock)
  dir=build/deps/zig-$version
  [ "$dir/.complete" -nt cmake/metal.lock ] && return
  say "pip download $package==$version"
  rm -rf "$dir" build/deps/zig-wheel
  thrice python3 -m pip download -q --no-deps --only-binary=:all: -d build/deps/zig-wheel "$package==$version"
  wheel=$(ls build/deps/zig-wheel/*.whl)
  echo "$sha  $wheel" | sha256sum -c --quiet - || fail "$wheel is not the pinned one (cmake/metal.lock)"
  unzip -q "$wheel" 'ziglang/*' -d "$dir"
  chmod u+x "$dir/ziglang/zig"
  rm -rf build/deps/zig-wheel
  touch "$dir/.complete"
}

pip_install() { thrice build/venv/bin/python -m pip install -q --disable-pip-version-check "$@"; }

install_python() {
  local stamp=build/venv/.complete list missing=0
  local lists=(tests/api/requirements.txt bindings/python/tests/requirements.txt)
  for list in "${lists[@]}"; do [ $stamp -nt "$list" ] || missing=1; done
  [ $missing = 0 ] && return
  say "build/venv: the Python packages of the client tests and of bindings/python"
  python3 -m venv build/venv
  pip_install -r "${lists[0]}" -r "${lists[1]}"
  touch $stamp
}

# Beside the packages of --tests.
install_torch() {
  local list=bindings/python/tests/requirements-torch.txt stamp=build/venv/.torch
  if [ $stamp -nt $list ] && [ $stamp -nt tools/torch_without_cuda.sh ]; then return; fi
  say "build/venv: torch and transformers (0.5 GB)"
  rm -f $stamp
  pip_install --no-deps -r $list || { say "torch cannot be installed here"; return; }
  tools/torch_without_cuda.sh build/venv
  touch $stamp
}

# Clang for the fuzzers: 19 if there is one, else the newest. The compiler for 64-bit ARM. XFS, which
# clones files.
install_compilers() {
  local version missing=() name
  for version in 19 20 18 17 16 15 14; do
    if installed "clang-$version" && installed "libclang-rt-$version-dev"; then break; fi
    apt_update
    if known "clang-$version" && known "libclang-rt-$version-dev"; then break; fi
  done
  for name in "clang-$version" "libclang-rt-$version-dev" g++-aarch64-linux-gnu xfsprogs; do
    installed "$name" || { apt_update; ! known "$name" || missing+=("$name"); }
  done
  [ ${#missing[@]} = 0 ] || apt_install "${missing[@]}" || say "not all of these can be installed here"
}

# The sources can be checked on another machine: what cannot be had here is said and no more.
install_clang_tools() {
  local name
  for name in clang-format-19 clang-tidy-19; do
    ! command -v $name >/dev/null || continue
    known $name || apt_update || true
    known $name && apt_install $name || say "$name cannot be installed here"
  done
}

# rustup's components, or the packages that belong to the cargo that install_rust chose.
install_rust_linters() {
  if command -v cargo-clippy >/dev/null && cargo clippy --version >/dev/null 2>&1 && cargo fmt --version >/dev/null 2>&1; then
    return
  fi
  if command -v rustup >/dev/null; then
    say "rustup component add clippy rustfmt"
    thrice rustup component add clippy rustfmt && return
  fi
  local suffix name
  suffix=$(dpkg-query -S "$(readlink -f "$(command -v cargo)")" 2>/dev/null | cut -d: -f1 | sed 's/^cargo//') || return 0
  for name in "rust$suffix-clippy" "rustfmt$suffix"; do  # rust-web-clippy, rustfmt-1.89
    known "$name" || continue
    apt_install "$name" || true
  done
}

# Any Node.js from 18 on will do, wherever it comes from.
install_node() {
  if command -v npm >/dev/null && command -v node >/dev/null; then return; fi
  apt_update
  known npm || lacking "apt knows no npm: install Node.js 18 or newer"
  apt_install nodejs npm
}

install_package_tools() {
  local name missing=()
  for name in patchelf xz-utils debootstrap strace systemd-container; do installed "$name" || missing+=("$name"); done
  [ ${#missing[@]} = 0 ] && return
  apt_update
  apt_install "${missing[@]}"
}

# Unpacked, not installed: nothing is to listen on this machine.
install_proxies() {
  local dir=$PWD/build/deps/proxies name
  [ -f "$dir/.complete" ] && return
  apt_update
  for name in nginx caddy; do known $name || lacking "apt knows no $name"; done
  say "nginx and caddy, into $dir"
  rm -rf "$dir"
  mkdir -p "$dir"
  (cd "$dir" && thrice apt-get download -qq -o APT::Sandbox::User=root nginx caddy)
  for name in "$dir"/*.deb; do dpkg-deb -x "$name" "$dir"; done
  rm "$dir"/*.deb
  touch "$dir/.complete"
}

asked() { [[ " $arguments " = *" $1 "* ]]; }
arguments="$*"
for argument in "$@"; do
  case $argument in
    --tests | --deep | --cuda | --arm64 | --metal | --clients | --packages | --proxies) ;;
    *) fail "unknown argument $argument" ;;
  esac
done

if [ "$system" = Darwin ]; then
  [ "$(uname -m)" = arm64 ] || fail "MLX has no wheel for Macs with Intel's processors"
  case " $arguments " in
    *" --deep "* | *" --cuda "* | *" --arm64 "* | *" --clients "* | *" --packages "* | *" --proxies "*)
      lacking "of these only --tests and --metal are for macOS: $arguments" ;;
  esac
  install_formulas
  rust_ok || fail "Rust 1.88 or newer is needed: https://rustup.rs"
  install_metal
  ! asked --tests || install_python
  exit 0
fi
install_packages
install_rust
install_mlx "$(uname -m)" build/deps
case ${QUIRE_CUDA:-} in
  OFF) ;;
  ON) install_cuda ;;
  # make test compiles the kernels wherever it runs.
  *) if asked --cuda || asked --tests || asked --deep || [ -e /proc/driver/nvidia/version ]; then install_cuda; fi ;;
esac
if asked --tests || asked --deep; then
  install_python
  install_clang_tools
  install_rust_linters
fi
if asked --deep; then
  install_torch
  install_compilers
fi
if asked --arm64; then install_arm64; fi
if asked --metal; then install_metal; install_zig; fi
if asked --clients; then install_node; fi
if asked --packages; then install_package_tools; fi
if asked --proxies; then install_proxies; fi
