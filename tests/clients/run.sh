#!/usr/bin/env bash
# Other people's programs against Quire:
#   tests/clients/run.sh [pytest's arguments]
# Makes their environments under build/clients (pinned versions, from PyPI and npm), starts servers of the demo models and prints a
# table of what passed. QUIRE_BIN names the program (build/release/bin/quire).
set -euo pipefail
cd "$(dirname "$0")/../.."
env=build/clients
mkdir -p $env

# A stamp that is newer than the list of packages says that they are there.
install_python() {
  local list=tests/clients/requirements.txt stamp=$env/.python
  [ $stamp -nt $list ] && return
  echo "clients: Python packages into $env/python"
  python3 -m venv $env/python
  $env/python/bin/python -m pip install -q --disable-pip-version-check -r $list
  touch $stamp
}

install_node() {
  local list=tests/clients/node/package.json stamp=$env/.node
  command -v npm >/dev/null || { echo "clients: npm is missing; the clients for Node.js are skipped" >&2; return; }
  [ $stamp -nt $list ] && return
  echo "clients: npm packages into $env/node"
  mkdir -p $env/node
  cp $list $env/node/
  (cd $env/node && npm install --no-package-lock --no-audit --no-fund --silent)
  touch $stamp
}

install_python
install_node
# Nothing of the caller's reaches the clients, and nothing of theirs the caller's home or the network beyond loopback.
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
env -i PATH="$PATH" HOME="$home" LANG=C.UTF-8 ${QUIRE_BIN:+QUIRE_BIN="$QUIRE_BIN"} ${LD_LIBRARY_PATH:+LD_LIBRARY_PATH="$LD_LIBRARY_PATH"} \
  DO_NOT_TRACK=1 QUIRE_CLIENTS_ENV="$PWD/$env" \
  $env/python/bin/python -m pytest -q -p no:cacheprovider -o asyncio_mode=auto tests/clients "$@"
