#!/usr/bin/env python3
"""Turns a kernel's preprocessed text into C++ that the emulator runs.

    translate.py [--types] NAME.ii NAME.cpp ROOT

ROOT is left out of the names of files. --types keeps the words of address spaces, as those of clang: such text is for its
compiler's errors, it cannot run.

What Metal has and C++ has not is four things, and nothing else of the text is touched:
  - Words of address spaces are left out, but for constant, which is const: the host has one space.
  - `threadgroup T x[N];` becomes a static variable, which the emulator fills before each group. Function constants become
    variables that it sets.
  - Explicit instantiations with a host name, and kernels that are no templates, are entered in the emulator's registry,
    with a call that finds each argument by its attribute.
  - `float4(a, b)` becomes a call: clang's vectors have no constructors.
Line markers stay, so that every message names the line of the original.
"""
import re
import sys

POSITIONS = {
    "thread_position_in_grid", "threadgroup_position_in_grid", "threadgroups_per_grid", "thread_position_in_threadgroup",
    "threads_per_threadgroup", "threads_per_grid", "thread_index_in_threadgroup", "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup", "simdgroups_per_threadgroup", "threads_per_simdgroup",
    "quadgroup_index_in_threadgroup", "thread_index_in_quadgroup",
}
SPACE = {"device": "", "constant": "const", "thread": "", "threadgroup": ""}
TYPED_SPACE = {"device": "__attribute__((address_space(1)))", "constant": "const __attribute__((address_space(2)))",
               "thread": "", "threadgroup": "__attribute__((address_space(3)))"}
MARKER = re.compile(r'^# (\d+) "((?:[^"\\]|\\.)*)"(.*)$')
SPACES = re.compile(r"\b(?:device|constant|thread|threadgroup)\b(?!\s*\()")
VECTOR = re.compile(
    r"\b((?:metal::)?(?:(?:char|uchar|short|ushort|int|uint|long|ulong|half|bfloat|float)[234]|vec<[^<>;(){}]*>))\s*(?=\((?!\s*[&*]))")
CONSTANT = re.compile(
    r"\bconstant\s+(?:const\s+)?(\w+)\s+(\w+)\s*\[\[\s*function_constant\(\s*(\w+)\s*\)\s*\]\]\s*;")
KERNEL = re.compile(r"(?:\[\[\s*kernel\b[^\]]*\]\]|\bkernel\b)\s*void\s+(\w+)\s*\(")
INSTANCE = re.compile(
    r'\btemplate\s*\[\[\s*host_name\(\s*((?:"[^"]*"\s*)+)\)\s*\]\]\s*\[\[\s*kernel\s*\]\]\s*decltype\((.*?)\)\s*(\w+)[^;]*;',
    re.S)


class Kernels:
    def __init__(self):
        self.parameters = {}  # of each kernel: C++ expressions and indices of buffers
        self.templates = set()


def closing(text, start, opening="(", end=")"):
    """Where the bracket that opens at `start` closes."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == opening) - (text[i] == end)
        if depth == 0:
            return i
    raise SystemExit(f"{text[start:start + 60]!r} does not end")


def split(text):
    """Splits at commas outside brackets."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{<") - (c in ")]}>")
        if c == "," and depth == 0:
            parts.append(text[last:i])
            last = i + 1
    return parts + [text[last:]] if text.strip() else []


def argument(kernel, text, buffers):
    """The expression that finds a parameter's value."""
    text = re.sub(r"^# .*$", " ", text, flags=re.M)
    attributes = re.findall(r"\[\[(.*?)\]\]", text, re.S)
    if not attributes:  # Metal counts
        attributes = [f"buffer({len(buffers)})"]
        text += "[["
    names = [a.strip() for a in split(",".join(attributes))]
    declaration = text[: text.index("[[")]
    present = "true"
    for name in names:
        if switch := re.fullmatch(r"function_constant\(\s*(\w+)\s*\)", name):
            present = switch[1]
    for name in names:
        if buffer := re.fullmatch(r"buffer\(\s*(\w+)\s*\)", name):
            buffers.append(buffer[1])
            how = "reference" if "&" in declaration else "buffer"
            return f"quire_arguments.{how}({buffer[1]}, {present})"
        if memory := re.fullmatch(r"threadgroup\(\s*(\w+)\s*\)", name):
            return f"quire_arguments.threadgroup({memory[1]})"
        if name in POSITIONS:
            return f"::quire::emulator::Where::{name}()"
    raise SystemExit(f"{kernel}: unknown attribute in {text.strip()}")


def find_kernels(text, kernels):
    for match in KERNEL.finditer(text):
        end = closing(text, match.end() - 1)
        if not re.match(r"\s*(#[^\n]*\n\s*)*\{", text[end + 1:]):
            continue  # a declaration
        buffers = []
        arguments = [argument(match[1], p, buffers) for p in split(text[match.end():end])]
        if match[1] in kernels.parameters:
            raise SystemExit(f"two kernels are called {match[1]}")
        kernels.parameters[match[1]] = arguments, buffers
        before = text[:match.start()].rstrip()
        if before.endswith(">"):
            kernels.templates.add(match[1])


def registration(kernels, file, host_name, call, number):
    name = re.match(r"\w+", call)[0]
    if name not in kernels.parameters:
        raise SystemExit(f"{host_name}: there is no kernel {name}")
    arguments, buffers = kernels.parameters[name]
    return (f'static const ::quire::emulator::DeclareKernel quire_kernel_{number}({file}, {host_name}, {{{", ".join(buffers)}}}, '
            f'[](const ::quire::emulator::Arguments& quire_arguments) {{ (void)quire_arguments; decltype({call})* quire_function = {call}; quire_function({", ".join(arguments)}); }});')


def instantiation(call):
    return f"template decltype({call}) {call};" if "<" in call else ""


def typed_memory(statement):
    """References of the types that are declared: a variable would need a constructor for its address space."""
    base, out = None, []
    for declarator in split(statement):
        kind, name, dimensions = re.fullmatch(r"\s*(.*?)\s*(\w+)\s*((?:\[.*)?)", declarator, re.S).groups()
        base = base or kind
        out.append(f"typedef {base} quire_{name}{dimensions}; "
                   f"threadgroup quire_{name}& {name} = *(threadgroup quire_{name}*)nullptr;")
    return " ".join(out)


def threadgroup_memory(text, types):
    """Statements that begin with `threadgroup` and declare neither pointers nor references."""
    out, last = [], 0
    for match in re.finditer(r"\bthreadgroup\b(?!_)", text):
        before = re.sub(r"#[^\n]*\n?\s*$", "", text[max(0, match.start() - 400):match.start()].rstrip()).rstrip()
        if before and before[-1] not in ";{}":
            continue
        end = text.index(";", match.start())
        statement = text[match.end():end]
        declarators = statement
        while "[" in declarators:
            at = declarators.index("[")
            declarators = declarators[:at] + "\0" + declarators[closing(declarators, at, "[", "]") + 1:]
        if re.search(r"[*&=(){}]", re.sub(r"<[^<>]*>", "", declarators)):
            continue
        names = re.findall(r"(\w+)\s*\0*\s*(?=,|$)", re.sub(r"<[^<>]*>", "", declarators))
        calls = " ".join(f"::quire::emulator::declare_threadgroup_memory(&{name}, sizeof({name}));" for name in names)
        out.append(text[last:match.start()] + (typed_memory(statement) if types else f"static {statement.strip()}; {calls}"))
        last = end + 1
    return "".join(out) + text[last:]


def translate(text, file, kernels, instances, types):
    def constant(match):
        kind, name, index = match.groups()
        if types:
            return f"extern constant {kind} {name};"
        return (f"static {kind} {name}; static const ::quire::emulator::DeclareConstant quire_constant_{name}"
                f'({file}, {index}, &{name}, sizeof({name}), "{name}");')

    def instance(match):
        newlines = "\n" * match[0].count("\n")
        instances.append((match[1].strip(), " ".join(match[2].split())))
        return newlines

    find_kernels(text, kernels)
    text = CONSTANT.sub(constant, text)
    text = INSTANCE.sub(instance, text)
    text = threadgroup_memory(text, types)
    text = VECTOR.sub(r"::quire::emulator::make_vector<\1>", text)
    text = SPACES.sub(lambda match: (TYPED_SPACE if types else SPACE)[match[0]], text)
    return re.sub(r"\bkernel\s+(?=void\b)", "", text)


def main():
    types = sys.argv[1] == "--types"
    source, target, root = sys.argv[1 + types:]
    file = '"' + source.replace("\\", "\\\\") + '"'
    kernels, instances, out, own, is_system = Kernels(), [], [], [], False

    def flush():
        if own:
            out.append(translate("".join(own), file, kernels, instances, types))
            own.clear()

    # Text of the emulator and of the system is passed on as it is. What belongs to kernels is translated between two
    # of its includes, so no construct may reach across one.
    with open(source) as lines:
        for line in lines:
            if (marker := MARKER.match(line)) and marker[1]:
                now_system = "3" in marker[3].split() or marker[2].startswith("<")
                line = line.replace(f'"{root}', '"', 1)
                if now_system != is_system:
                    flush()
                    is_system = now_system
            (out if is_system else own).append(line)
    flush()
    if not any(kernels.parameters):
        raise SystemExit(f"{source} has no kernel")
    instances += [(f'"{name}"', name) for name in kernels.parameters if name not in kernels.templates]
    for i, (host_name, call) in enumerate(instances):
        out.append("\n" + (instantiation(call) if types else registration(kernels, file, host_name, call, i)))
    with open(target, "w") as f:
        f.write("".join(out) + "\n")


if __name__ == "__main__":
    main()
