#!/usr/bin/env python3
"""Files stay under 500 lines (kernels 700) and functions under 60; half of all files stay under 150.

Prints every file and function that breaks this and is not in ALLOWED, every entry of ALLOWED that is no longer needed,
and exits 1 if there are any. `--self-test` checks the counters first; `--list` prints the longest functions.
"""
import argparse
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from source_files import source_files  # noqa: E402

MAX_FILE, MAX_KERNEL_FILE, MAX_FUNCTION, COMMON_FILE = 500, 700, 60, 150
KERNEL = re.compile(r"src/ops/.*(_cpu\.cpp|-inl\.h|\.cuh?)$")

# "path" or "path: function" and the reason why it may stay too long.
ALLOWED = {
    "src/cli/flags.cpp: add_model_flags": "a table of flags, one statement each",
    "src/formats/gguf/gguf_test.cpp: TEST(Gguf,RefusesBadHeaders)": "a table of bad headers",
    "src/formats/safetensors_test.cpp: TEST(Safetensors,RefusesBadHeaders)": "a table of bad headers",
    "src/text/grammar_limits_test.cpp: schemas": "a table of hostile schemas",
    "tests/cuda/elementwise_checks.cpp: check_rope": "one kernel beside its composition: argument lists, one after another",
    "tests/cuda/expert_checks.cpp: check": "argument lists and an oracle of nested loops",
    "tools/demo_model/generate.py": "the demo model's training texts: phrases, not logic",
    "tools/demo_model/generate.py: tool_case": "phrases of one kind of conversation",
    "tools/demo_model/train.py: main": "a script's flags and its one loop",
    "tools/parity/op_cases.py: rope": "a table of cases",
    "tools/parity/op_cases.py: attention": "a table of cases",
}

# What a brace counter must not see: comments, raw strings, strings and characters (not a digit's separator or a Rust
# lifetime).
OPAQUE = re.compile(
    r'//[^\n]*|/\*.*?\*/|b?r#*"(?s:.*?)"#+|R"([^(]*)\((?s:.*?)\)\1"|"(?:\\.|[^"\\])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\[^\n']{1,9}|[^\\'\n])'", re.S)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def visible(text):
    """The text with its lines kept, without comments, literals and preprocessor lines."""
    text = OPAQUE.sub(blank, text)
    return re.sub(r"^[ \t]*#[^!\[](?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def brace_kind(head, rust):
    """What a brace after `head` (the text since the last `;`, `{` or `}`) opens at the level of declarations."""
    if rust:
        return "function" if re.search(r"\bfn\s+\w+", head) else "scope"
    without_templates = re.sub(r"template\s*<[^;{]*?>\s*(?=\w)", " ", head)
    if "(" not in head or re.match(r'\s*(typedef\s+)?(class|struct|union|enum|namespace|extern)\b(?!.*\)\s*(const)?\s*$)',
                                   without_templates, re.S):
        return "scope"
    in_initialisers = re.search(r"\)\s*(noexcept)?\s*:(?!:)", head)
    if in_initialisers and re.search(r"[\w>]\s*$", head):
        return "value"
    if re.search(r"=\s*$", head) or re.search(r"=\s*[\w:<>]+\s*$", head):
        return "value"
    return "function"


def name_of(head):
    if (match := re.search(r"\bfn\s+(\w+)", head)) or (match := re.search(r"\b(TEST\w*\([^)]*\))", head)):
        return re.sub(r"\s+", "", match.group(1))
    match = re.search(r"([\w:~]+|operator\s*\S+)\s*\(", head)
    return match.group(1) if match else "?"


def brace_functions(text, rust=False):
    """(name, line, length) of every function with a body in C++ or Rust; a lambda counts with the function around it."""
    text, line, head, stack = visible(text), 1, "", []
    for char in text:
        if char == "\n":
            line += 1
        inside = any(kind != "scope" for kind, _, _ in stack)
        if char == "{":
            kind = "inner" if inside else brace_kind(head, rust)
            stack.append((kind, name_of(head) if kind == "function" else "", line))
            if not inside and kind != "value":
                head = ""
        elif char == "}" and stack:
            kind, name, first = stack.pop()
            if kind == "function":
                yield name, first, line - first + 1
            if kind in ("function", "scope"):
                head = ""
        elif not inside:
            head = "" if char == ";" and head.count("(") == head.count(")") else head + char


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def functions(path, text):
    if path.endswith(".py"):
        return python_functions(text)
    return brace_functions(text, rust=path.endswith(".rs"))


def too_long(path, text):
    """(key, message) of everything in a file that exceeds a limit."""
    lines, limit = text.count("\n"), MAX_KERNEL_FILE if KERNEL.match(path) else MAX_FILE
    if lines > limit:
        yield path, f"{path}: {lines} lines, {limit} are allowed"
    for name, line, length in functions(path, text):
        if length > MAX_FUNCTION:
            yield f"{path}: {name}", f"{path}:{line}: {name} has {length} lines, {MAX_FUNCTION} are allowed"


def self_test():
    body = "  x();\n" * 61
    for start in ["int f() {\n", "A::A(int x) : a_{x}, b_(y) {\n", "TEST(A, B) {\n", "auto f(int (*g)(int)) -> int {\n",
                  "template <class T = void>\nstruct A f() const {\n", "bool operator==(A a) {\n"]:
        wrapped = "namespace q {\nstruct S {\n" + start + body + "}\n};\n}\n"
        assert len(list(too_long("a.cpp", wrapped))) == 1, start
    assert not list(too_long("a.cpp", "namespace {\nconst char* s = R\"({)\"; // {\nint f() {\n return '{'; }\n" + body * 2))
    assert not list(too_long("a.h", "struct S {\n" + "  int x = 1;\n" * 100 + "};\nconst int a[] = {\n" + "1,\n" * 90 + "};\n"))
    assert list(too_long("a.rs", "impl<'a> A<'a> {\n  pub fn f(&self) -> u8 {\n" + body + "  }\n}\n"))
    assert not list(too_long("a.rs", "mod a {\n" + "  fn f() { b'{' }\n" * 70 + "}\n"))
    assert list(too_long("a.py", "def f():\n" + "    x()\n" * 61))
    assert list(too_long("a.cpp", "\n" * 501)) and not list(too_long("src/ops/x/x_cpu.cpp", "\n" * 501))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        self_test()
    listed = source_files("*.h", "*.cpp", "*.cu", "*.cuh", "*.rs", "*.py")
    texts = {path: (ROOT / path).read_text() for path in listed}
    if args.list:
        every = [(length, path, name) for path, text in texts.items() for name, _, length in functions(path, text)]
        print("\n".join(f"{length:4} {path}: {name}" for length, path, name in sorted(every, reverse=True)[:40]))
    found = dict(pair for path, text in texts.items() for pair in too_long(path, text))
    problems = [message for key, message in found.items() if key not in ALLOWED]
    problems += [f"{key}: is short enough now, or gone; take it off the list" for key in ALLOWED if key not in found]
    common = sum(text.count("\n") <= COMMON_FILE for text in texts.values())
    if common * 2 < len(texts):
        problems.append(f"only {common} of {len(texts)} files have at most {COMMON_FILE} lines")
    print("\n".join(problems) if problems else
          f"sizes: {len(texts)} files and their functions are within the limits, {len(ALLOWED)} known exceptions; "
          f"{100 * common // max(1, len(texts))} % of the files have at most {COMMON_FILE} lines")
    sys.exit(1 if problems else 0)


main()
