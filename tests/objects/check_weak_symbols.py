#!/usr/bin/env python3
"""No code for one instruction set may be what the linker picks for everybody.

The linker keeps one copy of each inline function and template instance. If that copy comes from a file or a region
compiled for AVX2, AVX-512 or AMX, the program dies with SIGILL on CPUs without it. So, in every object of a kernel:
  - a file compiled whole for one instruction set (*_amx_cpu.cpp, *_avx512*_cpu.cpp, *_neon_*_cpu.cpp) has no such function at all;
  - in any other, such a function either carries the target's namespace (hwy::N_AVX3, ...) in its name, or its code is
    plain x86-64.

  check_weak_symbols.py OBJECT_FOLDER [COMPILER]
With a compiler the check first checks itself on an object that breaks the rule and one that does not.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ONE_ISA_FILE = re.compile(r"_(amx|avx512\w*|neon_\w+)_cpu\.cpp\.o$")
KERNEL_FILE = re.compile(r"_cpu\.cpp\.o$")
# Highway's namespaces for targets beyond the baseline, as they are mangled: N_AVX2, N_AVX3_ZEN4, ...
TARGET_NAMESPACE = re.compile(r"\d+N_(SSSE3|SSE4|AVX)")
# What a plain x86-64 CPU does not have: VEX and EVEX encodings (objdump starts them with v, or k for masks), BMI, AMX.
BEYOND_BASELINE = re.compile(
    r"%[yz]mm|%k[0-7]\b|%tmm|^(v(?!err|erw)\w+|k(mov|or|and|not|xor|unpck|test|add|shift)\w*|mulx|[sr][ah]?[lr]x|rorx|shlx|"
    r"bzhi|pdep|pext|andn|bextr|bls\w+|tzcnt|lzcnt|popcnt|movbe|t(ile\w+|dp\w+))\b")


def run(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


def weak_functions(path):
    """Mangled names of the functions that the linker merges with those of other objects."""
    for line in run("readelf", "--wide", "--symbols", path).splitlines():
        fields = line.split()
        if len(fields) == 8 and fields[3] in ("FUNC", "IFUNC") and fields[4] in ("WEAK", "UNIQUE") and fields[6] != "UND":
            yield fields[7]


def foreign_instructions(path, names):
    """{function: first instruction that a baseline CPU lacks} for the weak functions of `names`."""
    found, current = {}, None
    command = ["objdump", "--disassemble", "--no-show-raw-insn"]
    for name in names:  # each has a section of its own; a function's cold part lies in another one
        command += ["-j", f".text.{name}", "-j", f".text.unlikely.{name}"]
    for line in run(*command, path).splitlines():
        if start := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            current = start.group(1)
        elif (parts := line.split("\t")) and len(parts) >= 2 and current:
            instruction = parts[-1].strip()
            if current not in found and BEYOND_BASELINE.search(instruction):
                found[current] = instruction
    return found


def violations(path):
    names = list(weak_functions(path))
    if ONE_ISA_FILE.search(path.name):
        return [f"{path.name}: {name} is in a file compiled for one instruction set" for name in names]
    common = [name for name in names if not TARGET_NAMESPACE.search(name)]
    if not common:
        return []
    return [f"{path.name}: {name} has `{instruction}`" for name, instruction in foreign_instructions(path, common).items()]


def self_test(compiler):
    template = "template <class T> __attribute__((noinline)) T twice(T* p) {{ T s = 0; for (int i = 0; i < 64; ++i) s += p[i] * p[i]; return s; }}\n" \
               "{target} float use(float* p) {{ return twice(p); }}\n"
    with tempfile.TemporaryDirectory() as folder:
        def compiled(name, flags):
            source, target = pathlib.Path(folder, "x.cpp"), pathlib.Path(folder, name)
            source.write_text(template.format(target=""))
            run(compiler, "-O2", *flags, "-c", source, "-o", target)
            return violations(target)
        assert compiled("x_amx_cpu.cpp.o", ["-mavx2"]), "a template in a file for one instruction set"
        assert compiled("x_cpu.cpp.o", ["-mavx2", "-mfma"]), "a template compiled for AVX2"
        assert not compiled("x_cpu.cpp.o", []), "a template compiled for everybody"


def main():
    if len(sys.argv) > 2:
        self_test(sys.argv[2])
    objects = sorted(path for path in pathlib.Path(sys.argv[1]).rglob("*.o") if KERNEL_FILE.search(path.name))
    if not objects:
        sys.exit(f"no kernel objects under {sys.argv[1]}")
    found = [line for path in objects for line in violations(path)]
    print("\n".join(found) if found else f"weak symbols: none of the {len(objects)} kernel objects offers code for one "
          "instruction set to the others")
    sys.exit(1 if found else 0)


main()
