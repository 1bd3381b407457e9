#!/usr/bin/env bash
# The chat page in a headless Chromium, against servers of the demo model:
#   tests/page/run.sh
# Makes its environment under build/page (playwright-core, from npm's registry) and leaves screenshots in build/page/shots.
# QUIRE_BIN names the program (build/release/bin/quire), CHROMIUM the browser (Debian: apt install chromium).
set -euo pipefail
cd "$(dirname "$0")/../.."
chromium=${CHROMIUM:-$(command -v chromium || true)}
[ -n "$chromium" ] || { echo "chromium is needed (apt install chromium)"; exit 77; }
command -v npm >/dev/null || { echo "npm is needed"; exit 77; }
env=build/page
mkdir -p $env/shots
if [ ! $env/.stamp -nt tests/page/package.json ]; then
  cp tests/page/package.json $env/
  (cd $env && npm install --no-package-lock --no-audit --no-fund --silent)
  touch $env/.stamp
fi
# A module is looked for beside the file that imports it.
cp tests/page/*.mjs $env/
CHROMIUM=$chromium QUIRE_BIN=${QUIRE_BIN:-$PWD/build/release/bin/quire} QUIRE_ROOT=$PWD node --test --test-concurrency=1 $env/page_test.mjs
