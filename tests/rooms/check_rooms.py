#!/usr/bin/env python3
"""A room may include only the rooms that it builds on. Prints every #include that breaks this; exits 1 if any.

`--self-test` checks the checker: it must catch a forbidden edge.
"""
import pathlib
import re
import sys

ROOMS = {
    "base": [],
    "formats": ["base"],
    "text": ["base", "formats"],
    "dialects": ["base"],
    "ops": ["base"],
    "models": ["base", "formats", "ops"],
    "engine": ["base", "text", "ops", "models"],
    "server": ["base", "text", "dialects", "engine"],
    "cli": ["base", "formats", "text", "dialects", "ops", "models", "engine", "server"],
}
# Rooms, and single files of a room, that must stay free of MLX: they are tested in milliseconds, under every sanitizer.
NO_MLX_ROOMS = ["base", "formats", "text", "dialects", "server"]
NO_MLX_FILES = ["engine/scheduler", "engine/block_manager", "engine/prefix_cache", "engine/sequence", "engine/request",
                "engine/engine_stats"]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def violations(path, text):
    room, name = path.split("/")[0], path.rsplit(".", 1)[0]
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(1).split("/")[0]
        if target in ROOMS and target != room and target not in ROOMS[room]:
            yield f"src/{path}:{number}: {room} may not include {target}: {line.strip()}"
        if target == "mlx" and (room in NO_MLX_ROOMS or name in NO_MLX_FILES):
            yield f"src/{path}:{number}: {name} must not include MLX: {line.strip()}"


def main():
    if "--self-test" in sys.argv:
        assert list(violations("ops/x.cpp", '#include "engine/engine.h"\n'))
        assert list(violations("engine/scheduler.cpp", "#include <mlx/mlx.h>\n"))
        assert not list(violations("engine/engine.cpp", '#include "models/model.h"\n#include <mlx/mlx.h>\n'))
    src = pathlib.Path(__file__).resolve().parents[2] / "src"
    found = []
    for path in sorted(src.rglob("*")):
        if path.suffix in (".h", ".cpp", ".kernel"):
            found += violations(path.relative_to(src).as_posix(), path.read_text())
    print("\n".join(found) if found else "rooms: every include follows the room order")
    sys.exit(1 if found else 0)


main()
