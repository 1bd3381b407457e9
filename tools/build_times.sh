#!/usr/bin/env bash
# What a build has cost: the ten files that took longest, and the seconds of each room. For times that compare, build with
# an empty compiler cache and nothing beside it: CCACHE_DISABLE=1 cmake --build --preset release --clean-first
#   tools/build_times.sh [BUILD = build/release]
set -euo pipefail
cd "$(dirname "$0")/.."
log=${1:-build/release}/.ninja_log
[ -f "$log" ] || { echo "there is no $log: build first" >&2; exit 1; }

# Start and end in ms, a time, the output, a hash; the last line of an output counts.
awk -F '\t' '
  /^#/ { next }
  { seconds[$4] = ($2 - $1) / 1000 }
  END {
    for (output in seconds) {
      name = output
      sub(/^.*\/build\/rust\//, "rust/", name)
      if (name ~ /\.(o|gch)$/) {
        room = name
        sub(/\/CMakeFiles\/.*/, "", room)
        if (name ~ /_test\.cpp\.o$/) room = room " tests"
        gsub(/\/CMakeFiles\/[^\/]*\.dir/, "", name)
        sub(/\.o$/, "", name)
        objects++
      } else if (name ~ /libquire_text\.a$/) {
        room = "rust"
      } else if (name ~ /^bin\//) {
        room = "linking"
      } else {
        continue
      }
      rooms[room] += seconds[output]
      files[name] = seconds[output]
      all += seconds[output]
    }
    printf "%.0f seconds of compilers and linkers, %d objects\n", all, objects
    for (name in files) printf "file %8.1f s  %s\n", files[name], name
    for (room in rooms) printf "room %8.1f s  %s\n", rooms[room], room
  }' "$log" | {
  read -r total
  echo "$total"
  sort -k1,1 -k2,2nr | awk '$1 == "file" && ++files <= 10 || $1 == "room"' | sed -E 's/^(file|room)//'
}
