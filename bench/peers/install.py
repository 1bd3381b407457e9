"""Installs the peer engines and makes the models, each once: a step that is done is skipped.

WORK/venv, WORK/export-packages, WORK/llama.cpp/bin, WORK/models/*/*: delete one to have it made again.
"""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LLAMA_CPP_PYTHON = "0.3.36"  # its source package carries llama.cpp whole
LLAMA_TOOLS = ("llama-bench", "llama-batched-bench", "llama-quantize", "llama-server")
# Of tools/bench/make_random_model.py, and the formats that are compared: as published, or quantised by each engine.
SHAPES = {
    "qwen3-0.6b": ("bf16", "8-bit", "4-bit"),
    "qwen3.5-0.8b": ("bf16", "8-bit", "4-bit"),
    "gemma3-1b": ("bf16", "8-bit", "4-bit"),
    "glm-4.7-flash": ("bf16", "8-bit", "4-bit"),
    "gpt-oss-20b": ("mxfp4",),
}


class Installation:
    """Paths of what was installed under `work`; the properties of the same name as a step make it."""

    def __init__(self, work: pathlib.Path, binary: pathlib.Path, jobs: int, shape: str = "qwen3-0.6b",
                 layers: int | None = None):
        """`binary`: Quire's, which is also what probes memory and loads every server. `layers`: fewer than the shape has,
        for machines that the whole model does not fit."""
        self.work, self.jobs, self.shape, self.layers = work.resolve(), jobs, shape, layers
        self.binary = binary.resolve()
        self.formats = SHAPES[shape]
        self.python = self.work / "venv/bin/python"
        self.models = self.work / "models" / (f"{shape}-{layers}-layers" if layers else shape)
        self.checkpoint = self.models / "checkpoint"
        self.llama = self.work / "llama.cpp/bin"
        self.llama_source = self.work / f"llama.cpp/llama_cpp_python-{LLAMA_CPP_PYTHON}/vendor/llama.cpp"
        self.models.mkdir(parents=True, exist_ok=True)

    def run(self, *command, **more) -> None:
        print("peers:", *command, flush=True)
        log = self.work / "install.log"
        with log.open("a") as out:
            done = subprocess.run(
                [str(part) for part in command], stdout=out, stderr=subprocess.STDOUT, **more
            )
        if done.returncode:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise RuntimeError(f"{command[0]} failed ({done.returncode}); the end of {log}:\n{tail}")

    def make(self, target: pathlib.Path, step) -> None:
        """Runs step(part) and renames `part` to `target`, so that a broken step leaves no target."""
        if target.exists():
            return
        part = target.with_name(target.name + ".part")
        shutil.rmtree(part, ignore_errors=True) if part.is_dir() else part.unlink(missing_ok=True)
        step(part)
        part.rename(target)

    def packages(self, requirements: str = "requirements.txt") -> None:
        stamp = self.work / "venv" / ("." + requirements)
        if not stamp.exists():
            if not self.python.exists():
                self.run(sys.executable, "-m", "venv", self.work / "venv")
            self.run(self.python, "-m", "pip", "install", "-q", "-r", HERE / requirements)
            stamp.touch()

    def export_packages(self, part: pathlib.Path) -> None:
        self.run(
            *(self.python, "-m", "pip", "install", "-q", "--no-deps", "--target", part),
            *("-r", HERE / "requirements-export.txt"),
        )

    def build_llama(self, part: pathlib.Path) -> None:
        folder = part.parent
        folder.mkdir(exist_ok=True)
        self.run(
            *(self.python, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation"),
            *("--no-binary", "llama-cpp-python", "-d", folder),
            f"llama-cpp-python=={LLAMA_CPP_PYTHON}",
        )
        self.run("tar", "xf", folder / f"llama_cpp_python-{LLAMA_CPP_PYTHON}.tar.gz", "-C", folder)
        keep_tile_config(self.llama_source / "ggml/src/ggml-cpu/amx/mmq.cpp")
        cmake, build = self.python.with_name("cmake"), folder / "build"
        self.run(
            *(cmake, "-S", self.llama_source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"),
            *("-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_OPENSSL=OFF"),
            *("-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF"),
            f"-DCMAKE_MAKE_PROGRAM={self.python.with_name('ninja')}",
        )
        self.run(cmake, "--build", build, "-j", self.jobs, "--target", *LLAMA_TOOLS)
        part.mkdir()
        for tool in LLAMA_TOOLS:
            shutil.copy2(build / "bin" / tool, part)

    def random_model(self, part: pathlib.Path) -> None:
        script = ROOT / "tools/bench/make_random_model.py"
        layers = ("--layers", self.layers) if self.layers else ()
        self.run(self.python, script, "--shape", self.shape, "--out", part, *layers)

    def gguf(self, kind: str, part: pathlib.Path) -> None:
        if kind == "bf16":
            self.run(self.python, HERE / "make_gguf.py", self.checkpoint, part)
        else:  # "q4_0-head": the tables of tokens in that type, too
            kind, _, head = kind.partition("-")
            tables = ("--token-embedding-type", kind, "--output-tensor-type", kind) if head else ()
            self.run(self.llama / "llama-quantize", *tables, self.models / "bf16.gguf", part, kind)

    def openvino(self, kind: str, part: pathlib.Path) -> None:
        path = {"PYTHONPATH": str(self.work / "export-packages")}
        script = HERE / "make_openvino.py"
        self.run(self.python, script, self.checkpoint, part, kind, env=os.environ | path)

    def quire(self, bits: int, part: pathlib.Path) -> None:
        self.run(
            *(self.binary, "quantize", self.checkpoint, part, "--bits", bits, "--group-size", 64),
        )

    def common(self) -> None:
        if not self.binary.exists():
            raise RuntimeError(f"{self.binary} is missing: make build")
        self.packages()
        self.make(self.checkpoint, self.random_model)


def keep_tile_config(path: pathlib.Path) -> None:
    """g++ 12 tells the optimizer that _tile_loadconfig reads 8 bytes of the 64, so at -O3 the other
    stores go away and the first AMX product dies of SIGSEGV. An empty asm that touches the whole
    struct keeps them; no other instruction changes."""
    text, call = path.read_text(), "    _tile_loadconfig(&tc);\n"
    barrier = '    __asm__ volatile("" : "+m"(tc));\n'
    if barrier in text:
        return
    if call not in text:
        raise RuntimeError(f"{path}: no _tile_loadconfig(&tc) to guard; is it fixed upstream?")
    path.write_text(text.replace(call, barrier + call))
