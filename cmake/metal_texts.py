#!/usr/bin/env python3
"""Makes of each kernel's file in Metal's language one text without includes of ours, and a C++ file that holds them all.

    metal_texts.py SOURCE_FOLDER OUTPUT_FOLDER FILE.metal...

OUTPUT_FOLDER gets <op>.metal for each <op>_metal.metal, and metal_texts.cpp. Metal compiles them while the program runs, so a
text has all it needs but Metal's own library. Lines say where they come from (#line). What stands between
`#ifndef __METAL_VERSION__` and its `#endif` is for the host alone, and is left out.
"""
import pathlib
import re
import sys

OWN = re.compile(r'#include "([^"]+)"')
SYSTEM = re.compile(r"#include <([^>]+)>")
HOST_ONLY = "#ifndef __METAL_VERSION__"
PIECE = 8000  # some compilers take 64 KiB at most in one literal


class Text:
    def __init__(self, folder):
        self.folder = folder
        self.lines = []
        self.seen = set()  # headers, ours and the system's

    def add(self, path):
        """Appends a file and what it includes, each header once."""
        name = path.relative_to(self.folder.parent).as_posix()
        self.lines.append(f'#line 1 "{name}"')
        hidden = 0  # conditionals that are open within what is left out
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if hidden:
                hidden += line.startswith("#if") - line.startswith("#endif")
                self.lines.append("")
            elif line.startswith(HOST_ONLY):
                hidden = 1
                self.lines.append("")
            elif match := OWN.match(line):
                if match[1] not in self.seen:
                    self.seen.add(match[1])
                    self.add(self.folder / match[1])
                    self.lines.append(f'#line {number + 1} "{name}"')
                else:
                    self.lines.append("")
            elif line.startswith("#pragma once"):
                self.lines.append("")
            elif (match := SYSTEM.match(line)) and match[1] in self.seen:
                self.lines.append("")
            else:
                if match:
                    self.seen.add(match[1])
                self.lines.append(line)
        if hidden:
            raise SystemExit(f"{path}: {HOST_ONLY} without #endif")


def literal(text):
    if '=metal="' in text:
        raise SystemExit('a text holds =metal="')
    return "".join(f'R"=metal=({text[at:at + PIECE]})=metal="\n' for at in range(0, len(text), PIECE))


def write_if_changed(path, text):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main():
    folder, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    output.mkdir(parents=True, exist_ok=True)
    entries = []
    for file in sorted(sys.argv[3:]):
        text = Text(folder)
        text.add(pathlib.Path(file))
        joined = "\n".join(text.lines) + "\n"
        op = pathlib.Path(file).name.removesuffix("_metal.metal")
        write_if_changed(output / f"{op}.metal", joined)
        entries.append(f'{{"{op}", {literal(joined)}}},\n')
    write_if_changed(output / "metal_texts.cpp",
                     '#include "ops/metal/metal_texts.h"\nnamespace quire::ops {\nconst std::vector<MetalText>& metal_texts() {\n'
                     "static const std::vector<MetalText> texts = {\n" + "".join(entries) + "};\nreturn texts;\n}\n}\n")


if __name__ == "__main__":
    main()
