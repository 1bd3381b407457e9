"""The package itself: its signatures, and that it stands alone."""

import inspect
import multiprocessing
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import quire_kernels as qk

# FlashAttention 2's parameters, in its order. What it has not is given by name only.
SIGNATURES = {
    "flash_attn_with_kvcache": "q k_cache v_cache k=None v=None rotary_cos=None rotary_sin=None cache_seqlens=None "
    "cache_batch_idx=None cache_leftpad=None block_table=None softmax_scale=None causal=False window_size=(-1,-1) softcap=0.0 "
    "rotary_interleaved=True alibi_slopes=None num_splits=0 return_softmax_lse=False",
    "flash_attn_varlen_func": "q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p=0.0 softmax_scale=None "
    "causal=False window_size=(-1,-1) softcap=0.0 alibi_slopes=None deterministic=False return_attn_probs=False block_table=None",
    "flash_attn_func": "q k v dropout_p=0.0 softmax_scale=None causal=False window_size=(-1,-1) softcap=0.0 alibi_slopes=None "
    "deterministic=False return_attn_probs=False",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    parameters = list(inspect.signature(getattr(qk, name)).parameters.values())
    by_name = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    assert [(p.name, p.default) for p in by_name] == [("s_aux", None)] and parameters[-1:] == by_name
    parameters = parameters[:-1]
    written = " ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}".replace(" ", "") for p in parameters)
    assert written == SIGNATURES[name]


def test_imports_nothing_else():
    """Neither MLX nor torch, nor the engine."""
    code = "import quire_kernels, sys; print(*sorted(m for m in sys.modules if m.split('.')[0] in ('mlx', 'torch', 'quire')))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip() == ""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the libraries with ldd")
def test_needs_only_the_system_and_itself():
    module = pathlib.Path(qk._core.__file__)
    for line in subprocess.run(["ldd", module], check=True, capture_output=True, text=True).stdout.splitlines():
        name, _, path = line.strip().partition(" => ")
        own = pathlib.Path(path.split(" (")[0]).parent == module.parent
        system = name.split(".")[0] in ("libstdc++", "libm", "libgcc_s", "libc", "libpthread", "linux-vdso") or "ld-linux" in name
        assert own or system, line


def _child(queue):
    x = np.ones((1, 200, 4, 32), dtype=np.float32)
    before = len(os.listdir("/proc/self/task"))
    total = float(qk.flash_attn_func(x, x, x).sum())
    queue.put((total, qk.num_threads(), len(os.listdir("/proc/self/task")) - before))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_works_after_a_fork(threads):
    """A child has none of its parent's threads: it starts as many of its own."""
    threads(3)
    x = np.ones((1, 200, 4, 32), dtype=np.float32)
    want = float(qk.flash_attn_func(x, x, x).sum())
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue,))
    child.start()
    total, count, started = queue.get(timeout=120)
    child.join(120)
    assert total == want and count == 3 and child.exitcode == 0
    assert started >= 2  # the caller is the third
