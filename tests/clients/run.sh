#!/usr/bin/env bash
# Other people's programs against Quire:
#   tests/clients/run.sh [pytest's arguments]
# Makes their environments under build/clients (pinned versions, from the registries of Python's and Node.js's packages, as pip and npm
# are configured; a download is tried three times), starts servers of the demo models and prints a table of what passed.
# QUIRE_BIN names the program (build/release/bin/quire).
set -euo pipefail
cd "$(dirname "$0")/../.."
env=build/clients
mkdir -p $env

thrice() { "$@" || { sleep 5; "$@"; } || { sleep 20; "$@"; }; }

# A stamp that is newer than the list of packages says that they are there. A new list makes a new environment.
#   python_env NAME LIST [pip's arguments]
python_env() {
  local dir=$env/$1 list=$2 stamp=$env/.$1
  if [ $stamp -nt "$list" ]; then return; fi
  echo "clients: Python packages into $dir"
  rm -rf "$dir" $stamp
  python3 -m venv "$dir"
  thrice "$dir/bin/python" -m pip install -q --disable-pip-version-check "${@:3}" -r "$list"
  touch $stamp
}

#   node_env NAME LIST
node_env() {
  local dir=$env/$1 list=$2 stamp=$env/.$1
  if [ $stamp -nt "$list" ]; then return; fi
  echo "clients: npm packages into $dir"
  rm -rf "$dir" $stamp
  mkdir -p "$dir"
  cp "$list" "$dir/package.json"
  (cd "$dir" && thrice npm install --no-package-lock --no-audit --no-fund --silent)
  touch $stamp
}

tools/setup.sh --clients
python_env python tests/clients/requirements.txt
python_env instructor tests/clients/requirements-instructor.txt # wants a jiter that the openai package of the others does not take
python_env lm-eval tests/clients/requirements-lm-eval.txt
python_env load tests/clients/requirements-load.txt
node_env node tests/clients/node/package.json
node_env agents tests/clients/agents/package.json
# Nothing of the caller's reaches the clients, and nothing of theirs the caller's home or the network beyond loopback.
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
env -i PATH="$PATH" HOME="$home" LANG=C.UTF-8 ${QUIRE_BIN:+QUIRE_BIN="$QUIRE_BIN"} ${LD_LIBRARY_PATH:+LD_LIBRARY_PATH="$LD_LIBRARY_PATH"} \
  DO_NOT_TRACK=1 QUIRE_CLIENTS_ENV="$PWD/$env" \
  $env/python/bin/python -m pytest -q -p no:cacheprovider --disable-warnings -o asyncio_mode=auto tests/clients "$@"
