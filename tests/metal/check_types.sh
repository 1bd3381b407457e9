#!/usr/bin/env bash
# Compiles a file in Metal's language with its address spaces as clang's own, for the types alone: a pointer from one space
# in another, or a write to constant memory, is an error.
#   check_types.sh CLANG FILE OUT [REFUSED]    makes OUT.ok; REFUSED: it must fail, and say this
set -euo pipefail
compiler=$1 source=$2 out=$3 refused=${4:-}
here=$(cd "$(dirname "$0")" && pwd)
root=${here%/tests/metal}
mkdir -p "$(dirname "$out")"
# The emulator's headers, which are system headers, are in C++20; the text is C++17 at most.
includes=(-isystem "$here/emulator/include" -isystem "$here/emulator" "-I$root/src")
"$compiler" -E -x c++ -std=c++20 -DQUIRE_METAL_TYPES "${includes[@]}" -MD -MF "$out.d" -MT "$out.ok" -o "$out.ii" "$source"
python3 "$here/emulator/translate.py" --types "$out.ii" "$out.cpp" "$root/"
flags=(-std=c++20 -fsyntax-only -Wall -Wextra -Werror -Wno-unknown-attributes -Wno-duplicate-decl-specifier -Wno-unused-const-variable -Wno-unused-function
  -Wno-undefined-internal -Wno-for-loop-analysis -Wno-null-dereference -Wpre-c++20-compat -Wdouble-promotion -Wimplicit-float-conversion)
if [ -z "$refused" ]; then
  "$compiler" "${flags[@]}" "$out.cpp"
elif "$compiler" "${flags[@]}" "$out.cpp" >"$out.log" 2>&1; then
  echo "$source compiles, and must not"
  exit 1
else
  grep -qF "$refused" "$out.log" || { cat "$out.log"; echo "$source is refused for another reason than: $refused"; exit 1; }
fi
touch "$out.ok"
