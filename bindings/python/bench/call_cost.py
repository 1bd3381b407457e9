"""What a call costs beyond its kernel, in seconds; compare.py prints it, tests/test_torch.py limits it."""

import statistics
import time

from quire_kernels import _core, kvcache


def kernel_of(call, function="attend_cache"):
    """A function that repeats what `call`, of flash_attn_with_kvcache, has the extension do: plan, hand-over to threads, kernel.

    The extension is given addresses: the result of `call` is kept here, its arguments by the caller.
    """
    seen = []

    class Watched:
        def __getattr__(self, name):
            attribute = getattr(_core, name)
            if name != function:
                return attribute
            return lambda *arguments: (seen.append(arguments), attribute(*arguments))[1]

    kvcache._core = Watched()
    try:
        kept = call()
    finally:
        kvcache._core = _core
    arguments, attend = seen[-1], getattr(_core, function)

    def kernel():
        attend(*arguments)
        return kept

    return kernel


def medians(functions, seconds):
    """The median time of each function, all in turns."""
    times = [[] for _ in functions]
    for f in functions:
        f()
    end = time.perf_counter() + seconds * len(functions)
    while time.perf_counter() < end:
        for f, taken in zip(functions, times):
            start = time.perf_counter()
            f()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]
