#!/usr/bin/env python3
"""Writes what Apple's compiler gets, and the kernels that must come of it: metal_variants.py [FOLDER]    default: build/metal

FOLDER/texts/<op>.metal are the texts that the programs carry (cmake/metal_texts.py), FOLDER/variants.txt has a line for each
kernel: its op, its host name, and the function constants of the text, which the pipelines of a running program fix.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def expanded(text):
    """The text after the C preprocessor, which joins the names of kernels that macros make."""
    own = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(("#include <", "#line")))
    return subprocess.run(["c++", "-E", "-P", "-x", "c++", "-D__METAL_VERSION__=310", "-"], input=own, check=True, capture_output=True,
                          text=True).stdout


def kernels(text):
    """Host names: those of templates' instances, and the names of kernels that are no templates."""
    instances = ["".join(re.findall(r'"(.*?)"', name)) for name in re.findall(r'host_name\(((?:\s*"[^"]*")+)\s*\)', text)]
    plain = [m[2] for m in re.finditer(r"(template\s*<[^<>]*>\s*)?\[\[\s*kernel\s*\]\]\s*void\s+(\w+)\s*\(", text) if not m[1]]
    return sorted(instances + plain)


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/metal")
    texts = folder / "texts"
    sources = sorted((ROOT / "src/ops").glob("*/*_metal.metal"))
    subprocess.run([sys.executable, ROOT / "cmake/metal_texts.py", ROOT / "src", texts, *sources], check=True)
    lines = []
    for file in sorted(texts.glob("*.metal")):
        text = expanded(file.read_text())
        constants = ",".join(re.findall(r"(\w+) \[\[\s*function_constant\(k", text)) or "-"
        found = kernels(text)
        if not found:
            raise SystemExit(f"{file} has no kernel")
        lines += [f"{file.stem} {name} {constants}\n" for name in found]
    (folder / "variants.txt").write_text("".join(lines))
    print(f"{len(lines)} kernels in {folder / 'variants.txt'}")


if __name__ == "__main__":
    main()
