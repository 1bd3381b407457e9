#!/usr/bin/env bash
# Whether spreading weights and caches over NUMA nodes pays on this machine:
#   bench/numa.sh build/release/bin/quire MODEL [THREADS]
# Prints the machine's nodes. If there are several: three rounds of decode of 1, 8 and 32 streams and of prefill, with
# --spread-memory auto and off in turns, where the process's pages lay, and the ratio of the medians.
set -uo pipefail
quire=${1:?QUIRE} model=${2:?MODEL} threads=${3:-0}
lscpu | grep -E 'Model name|^CPU\(s\)|Socket|Core|Thread|NUMA'
nodes=$(ls -d /sys/devices/system/node/node[0-9]* 2>/dev/null | wc -l)
for node in /sys/devices/system/node/node[0-9]*; do
  echo "$(basename "$node"): cpus $(cat "$node/cpulist"), $(awk '/MemTotal/ { printf "%.1f GiB", $4 / 1048576 }' "$node/meminfo")"
done
grep -E 'Cpus_allowed_list|Mems_allowed_list' /proc/self/status
[ "$nodes" -gt 1 ] || { echo "one node: nothing to compare"; exit 0; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
once() {  # MODE ROUND
  "$quire" bench throughput "$model" --device cpu --threads "$threads" --spread-memory "$1" --input-len 512 --output-len 64 \
    --concurrency 1,8,32 --output-json "$out/$1-$2.json" >"$out/log" 2>&1 &
  local pid=$! seen=""
  while kill -0 $pid 2>/dev/null; do
    # Pages by node, of the largest mappings: N0=.. N1=..
    seen=$(awk '{ for (i = 1; i <= NF; ++i) if ($i ~ /^N[0-9]+=/) { split(substr($i, 2), p, "="); k = 4; for (j = 1; j <= NF; ++j) if ($j ~ /^kernelpagesize_kB=/) { split($j, q, "="); k = q[2] } mib[p[1]] += p[2] * k / 1024 } }
      END { for (n in mib) printf "node %s %.0f MiB  ", n, mib[n] }' /proc/$pid/numa_maps 2>/dev/null) && [ -n "$seen" ] && last=$seen
    sleep 0.5
  done
  wait $pid || { tail -5 "$out/log"; return; }
  grep -E '^cpu |not spread' "$out/log"
  echo "  $1, round $2: ${last:-}"
}
for round in 1 2 3; do
  if [ $((round % 2)) = 1 ]; then modes="auto off"; else modes="off auto"; fi
  for mode in $modes; do once $mode $round; done
done
python3 - "$out" <<'P'
import glob, json, os, statistics, sys
rows = {}
for file in sorted(glob.glob(sys.argv[1] + "/*.json")):
    mode = os.path.basename(file).split("-")[0]
    for row in json.load(open(file)):
        for key in ("decode_tokens_per_second", "prefill_tokens_per_second"):
            rows.setdefault((row["concurrency"], key), {}).setdefault(mode, []).append(row[key])
for (streams, key), by in sorted(rows.items()):
    a, o = by.get("auto", []), by.get("off", [])
    if a and o:
        print(f"{streams:3} streams {key.split('_')[0]:8} spread {statistics.median(a):9.1f} ({min(a):.1f}-{max(a):.1f})  "
              f"off {statistics.median(o):9.1f} ({min(o):.1f}-{max(o):.1f})  ratio {statistics.median(a) / statistics.median(o):.2f}")
P
