#!/usr/bin/env bash
# Installs what the build needs, once: Debian or Ubuntu packages, the pinned MLX wheel under build/deps, and a Rust tool chain
# if there is none. Uses apt, pip and cargo as they are configured (proxies, mirrors). Says what it does; a second run does
# nothing. `tools/setup.sh --python` also makes build/venv with the client tests' packages.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }
known() { apt-cache show "$1" >/dev/null 2>&1; }

apt_updated=0
apt_update() {
  if [ $apt_updated = 0 ]; then
    say "apt-get update"
    as_root apt-get update -qq
    apt_updated=1
  fi
}

# The first of several packages that is installed, or that apt knows.
pick() {
  local name
  for name in "$@"; do if installed "$name"; then echo "$name"; return; fi; done
  for name in "$@"; do if known "$name"; then echo "$name"; return; fi; done
  fail "none of these packages is available: $*"
}

install_packages() {
  local wanted missing=() name
  # Boost.JSON appeared in 1.75; Debian 12's default is 1.74, so a versioned package is named.
  wanted=(g++ make cmake ninja-build ccache unzip ca-certificates python3 python3-pip python3-venv
    libcli11-dev libspdlog-dev prometheus-cpp-dev libhwy-dev libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev)
  for name in "${wanted[@]}"; do installed "$name" || missing+=("$name"); done
  if ! ls /usr/lib/*/cmake/boost_json-1.*/ >/dev/null 2>&1; then
    apt_update
    local version
    version=$(pick libboost-json1.81-dev libboost-json1.83-dev libboost-json1.88-dev libboost-json-dev)
    missing+=("$version" "${version/-json/}")
  fi
  [ ${#missing[@]} = 0 ] && return
  apt_update
  say "apt-get install ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
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
    say "apt-get install $name ${name/cargo/rustc}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$name" "${name/cargo/rustc}" \
      >/dev/null || continue
    rust_ok && return
  done
  fail "cargo 1.88 or newer is needed; install a Rust tool chain (https://rustup.rs) and run this again"
}

install_mlx() {
  local package version sha dir wheel
  read -r package version sha < <(grep '^mlx-' cmake/mlx.lock)
  dir=build/deps/$package-$version
  [ -f "$dir/.complete" ] && return
  [ "$(uname -m)" = x86_64 ] || fail "the pinned MLX wheel is for x86-64 Linux, this is $(uname -m)"
  say "pip download $package==$version"
  rm -rf "$dir" build/deps/wheel
  mkdir -p "$dir"
  python3 -m pip download -q --no-deps --only-binary=:all: -d build/deps/wheel "$package==$version"
  wheel=$(ls build/deps/wheel/*.whl)
  echo "$sha  $wheel" | sha256sum -c --quiet - || fail "$wheel is not the pinned one (cmake/mlx.lock)"
  say "unpacking it into $dir"
  # The library finds its BLAS by $ORIGIN/../../mlx_cpu.libs, so both folders stay side by side.
  unzip -q "$wheel" 'mlx/*' 'mlx_cpu.libs/*' -d "$dir"
  rm -rf build/deps/wheel
  touch "$dir/.complete"
}

install_python() {
  local stamp=build/venv/.complete
  local lists=(tests/api/requirements.txt bindings/python/tests/requirements.txt)
  if [ -f $stamp ] && [ $stamp -nt "${lists[0]}" ] && [ $stamp -nt "${lists[1]}" ]; then return; fi
  say "build/venv: the Python packages of the client tests and of bindings/python"
  python3 -m venv build/venv
  build/venv/bin/python -m pip install -q --disable-pip-version-check -r "${lists[0]}" -r "${lists[1]}"
  touch $stamp
}

install_packages
install_rust
install_mlx
if [ "${1:-}" = --python ]; then install_python; fi
