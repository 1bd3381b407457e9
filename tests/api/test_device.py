"""Which device answers, on a machine without a GPU that could: the program starts without any library of CUDA's, and says
why a GPU cannot be had."""
import os
import pathlib
import shutil
import subprocess

import pytest

from conftest import BIN, MODEL, ROOT, start_server

DRIVER = pathlib.Path("/proc/driver/nvidia/version")
# A driver that leaves word when it is loaded, and knows how old it is.
FAKE_DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
__attribute__((constructor)) static void loaded(void) {
  FILE* file = fopen(getenv("FAKE_DRIVER_WORD"), "w");
  if (file) fclose(file);
}
int cuDriverGetVersion(int* version) {
  *version = atoi(getenv("FAKE_DRIVER_VERSION"));
  return 0;
}
int cuInit(unsigned flags) { return 100; /* CUDA_ERROR_NO_DEVICE */ }
int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags, int* found);
int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags, int* found) {
  *function = strcmp(name, "cuDriverGetVersion") == 0 ? (void*)cuDriverGetVersion
              : strcmp(name, "cuInit") == 0           ? (void*)cuInit
              : strcmp(name, "cuGetProcAddress") == 0 ? (void*)cuGetProcAddress_v2
                                                      : 0;
  if (found) *found = *function ? 0 : 1;
  return *function ? 0 : 500;
}
"""


def quire(*arguments, **environment):
    done = subprocess.run([BIN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout


def run_on(device, **environment):
    return quire("run", MODEL, "Hello", "--max-tokens", "1", "--device", device, **environment)


def has_kernels():
    return b"cudaGetDeviceProperties" in BIN.read_bytes() or b"no NVIDIA driver is installed" in BIN.read_bytes()


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """The environment in which the program finds a driver of that version; and where it leaves word."""
    folder = tmp_path_factory.mktemp("driver")
    source = folder / "driver.c"
    source.write_text(FAKE_DRIVER)
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", source], check=True)
    word = folder / "loaded"

    def environment(version):
        word.unlink(missing_ok=True)
        return {"LD_LIBRARY_PATH": str(folder), "FAKE_DRIVER_WORD": str(word), "FAKE_DRIVER_VERSION": str(version)}
    return environment, word


def test_the_program_needs_no_library_of_cuda():
    if not shutil.which("readelf"):
        pytest.skip("no readelf")
    needed = subprocess.run(["readelf", "-d", BIN], capture_output=True, text=True, check=True).stdout
    names = [line for line in needed.splitlines() if "NEEDED" in line]
    assert any("libmlx" in line for line in names), needed
    assert not [line for line in names if "cuda" in line.lower() or "nvidia" in line.lower()], needed


@pytest.mark.skipif(DRIVER.exists(), reason="there is a driver")
def test_without_a_gpu_cuda_is_an_error_and_auto_the_cpu():
    code, text = run_on("cuda")
    assert code == 1, text
    assert "no NVIDIA driver is installed here" in text if has_kernels() else "this build has no kernels" in text
    code, text = run_on("auto")
    assert code == 0 and "\ncpu " in text and "GPU" not in text, text


def test_a_driver_is_loaded_unless_the_cpu_is_asked_for(driver):
    if not has_kernels():
        pytest.skip("this build has no kernels for NVIDIA GPUs")
    environment, word = driver
    assert run_on("cpu", **environment(13000))[0] == 0
    assert not word.exists()
    assert run_on("auto", **environment(13000))[0] == 0
    assert word.exists()


def test_a_driver_that_is_too_old_is_named(driver):
    if not has_kernels():
        pytest.skip("this build has no kernels for NVIDIA GPUs")
    environment, _ = driver
    told = "the NVIDIA driver here is for CUDA 12.4, but the kernels need one for CUDA 13.0 (version 580) or newer"
    code, text = run_on("cuda", **environment(12040))
    assert code == 1 and f"--device cuda: {told}" in text, text
    code, text = run_on("auto", **environment(12040))
    assert code == 0 and f"the GPU is not used: {told}" in text, text


def test_a_driver_without_a_gpu_is_named(driver):
    if not has_kernels():
        pytest.skip("this build has no kernels for NVIDIA GPUs")
    environment, _ = driver
    code, text = run_on("cuda", **environment(13000))
    assert code == 1 and "--device cuda: " in text and "no GPU" in text, text


def test_an_apple_gpu_is_refused_by_builds_for_other_systems():
    code, text = run_on("metal")
    assert code == 1 and "--device metal: only builds on macOS run on Apple GPUs; take --device cpu" in text, text
    code, text = quire("run", MODEL, "Hello", "--device", "metal", "--profile")
    assert code == 1 and "--device metal: only the CPU has --profile" in text, text


@pytest.mark.parametrize("flag", ["--gather-pages", "--delta-rule-in-turn"])
def test_ablations_of_metals_kernels_are_refused_elsewhere(flag):
    code, text = quire("bench", "throughput", MODEL, "--device", "cpu", flag)
    assert code == 1 and f"{flag} is about Metal's kernels, but cpu computes; leave it out, or take --device metal" in text, text


def test_what_only_the_cpu_has_is_refused_by_name_on_cuda():
    for flag in (("--portable-bits",), ("--quant-activations", "int8")):
        code, text = quire("run", MODEL, "Hello", "--device", "cuda", *flag)
        assert code == 1 and f"--device cuda: only the CPU has {flag[0]}" in text, text
    code, text = quire("serve", MODEL, "--port", "0", "--device", "cuda", "--lora-modules", f"sql={ROOT}/tests/parity/adapters/qwen3/some")
    assert code == 1 and "--device cuda: only the CPU has --lora-modules" in text, text
    code, text = run_on("cuda", QUIRE_USE_REFERENCE="1")
    assert code == 1 and "QUIRE_USE_REFERENCE" in text, text


def test_what_only_a_gpu_has_is_refused_by_name_on_the_cpu():
    code, text = quire("run", MODEL, "Hello", "--device", "cpu", "--gpu-memory-utilization", "0.5")
    assert code == 1 and "--gpu-memory-utilization" in text and "--kv-cache-memory" in text, text


def test_a_server_says_what_computes():
    with start_server("--device", "cpu") as server:
        told = server.get("/version").json()
        assert told["device"] == "cpu" and " kernels" in told["device_description"]  # memory may be over several NUMA nodes
        assert told["batch_invariant"] is True
        assert server.metric("quire:device_info", 'device="cpu"') == 1
        assert any(line.startswith("cpu ") for line in server.log)
