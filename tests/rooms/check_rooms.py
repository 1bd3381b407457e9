#!/usr/bin/env python3
"""A room may include only the rooms that it builds on. Prints every #include that breaks this; exits 1 if any.

`--self-test` checks the checker: it must catch a forbidden edge.
"""
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tools"))
from source_files import source_files  # noqa: E402

ROOMS = {
    "base": [],
    "formats": ["base"],
    "hub": ["base", "formats"],
    "text": ["base", "formats"],
    "dialects": ["base"],
    "ops": ["base"],
    "models": ["base", "formats", "ops"],
    "engine": ["base", "text", "ops", "models"],
    "server": ["base", "text", "dialects", "engine"],
    "bench": ["base", "formats", "text", "ops", "models", "engine"],
    "cli": ["base", "formats", "hub", "text", "dialects", "ops", "models", "engine", "server", "bench"],
}
# Rooms that must stay free of MLX: they are tested in milliseconds, under every sanitizer. The same holds for the
# sources of HOST_LIBRARY, for DOOR, and for whatever headers they include, directly or not.
NO_MLX_ROOMS = ["base", "formats", "hub", "text", "dialects", "server"]
HOST_LIBRARY = ("src/engine/CMakeLists.txt", "engine_host")
DOOR = "server/engine_client.h"  # what the server sees of the engine
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def includes(text):
    """(line number, path, line) of every #include."""
    for number, line in enumerate(text.splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match.group(1), line.strip()


def room_of(path):
    """A file's room is its folder, but an op's bench cases, which lie beside the op, are the bench's."""
    return "bench" if path.endswith("_bench.cpp") else path.split("/")[0]


def violations(path, text):
    room = room_of(path)
    for number, included, line in includes(text):
        target = included.split("/")[0]
        if target in ROOMS and target != room and target not in ROOMS[room]:
            yield f"src/{path}:{number}: {room} may not include {target}: {line}"
        if target == "mlx" and room in NO_MLX_ROOMS:
            yield f"src/{path}:{number}: {room} must not include MLX: {line}"


def library_sources(cmake, name):
    """The sources of quire_room(name ...), as CMake's text lists them."""
    match = re.search(rf"quire_room\(\s*{name}\s+SOURCES\s+([^)]*?)\s+DEPENDS", cmake)
    assert match, f"no quire_room({name} SOURCES ... DEPENDS ...)"
    return match.group(1).split()


def host_violations(sources, read):
    """Files that the host library's `sources` reach through includes, and that include MLX. `read` gives the text of a
    path below src, or None."""
    reached = {source: source for source in sources}  # file -> how it was reached
    queue = list(sources)
    while queue:
        path = queue.pop()
        for number, included, line in includes(read(path) or ""):
            if included.split("/")[0] == "mlx":
                yield f"src/{path}:{number}: the engine's host library must not reach MLX ({reached[path]}): {line}"
            elif included not in reached and read(included) is not None:
                reached[included] = f"{reached[path]} > {included}"
                queue.append(included)


def self_test():
    assert list(violations("ops/x.cpp", '#include "engine/engine.h"\n'))
    assert list(violations("server/x.cpp", "#include <mlx/mlx.h>\n"))
    assert list(violations("ops/x/x.cpp", '#include "bench/ops/op_bench.h"\n'))
    assert not list(violations("ops/x/x_bench.cpp", '#include "bench/ops/op_bench.h"\n#include "ops/x/x.h"\n'))
    assert list(violations("ops/x/x_bench.cpp", '#include "cli/flags.h"\n'))
    assert not list(violations("engine/engine.cpp", '#include "models/model.h"\n#include <mlx/mlx.h>\n'))
    cmake = "quire_room(engine_host\n  SOURCES scheduler.cpp scheduler_plan.cpp\n          sequence.cpp\n  DEPENDS x)\n"
    assert library_sources(cmake, "engine_host") == ["scheduler.cpp", "scheduler_plan.cpp", "sequence.cpp"]
    files = {"engine/scheduler_plan.cpp": '#include "engine/plan.h"\n#include <vector>\n',
             "engine/plan.h": '#include "ops/layout.h"\n', "ops/layout.h": "#include <mlx/array.h>\n"}
    [found] = host_violations(["engine/scheduler_plan.cpp"], files.get)
    assert found.startswith("src/ops/layout.h:1:") and "engine/plan.h" in found
    files["ops/layout.h"] = "#pragma once\n"
    assert not list(host_violations(["engine/scheduler_plan.cpp"], files.get))
    # The real list: every file that it names is there.
    cmake_path, name = HOST_LIBRARY
    for source in library_sources((SOURCE / cmake_path).read_text(), name):
        assert (SOURCE / cmake_path).with_name(source).exists(), source


def main():
    if "--self-test" in sys.argv:
        self_test()
    src = SOURCE / "src"
    found = []
    for name in source_files(*(f"src/*.{ending}" for ending in ("h", "cpp", "cu", "cuh", "kernel"))):
        found += violations(name.removeprefix("src/"), (SOURCE / name).read_text())
    cmake_path, name = HOST_LIBRARY
    folder = pathlib.PurePosixPath(cmake_path).relative_to("src").parent
    sources = [str(folder / source) for source in library_sources((SOURCE / cmake_path).read_text(), name)]
    found += host_violations(
        [*sources, DOOR], lambda path: (src / path).read_text() if (src / path).is_file() else None)
    print("\n".join(found) if found else "rooms: every include follows the room order")
    sys.exit(1 if found else 0)


main()
