"""Time of the kernels beside torch's scaled_dot_product_attention on the same CPU and threads.

    python bindings/python/bench/compare.py [--threads N] [--seconds 0.5]

Decoding reads its keys from pages. torch has no paged attention, so it is timed twice: with the gather of the pages into dense
keys, as a server with a paged cache would need it, and without. Prompts are dense for both. Each figure is the best of several
runs, taken in turns; a ratio over 1 says that these kernels are faster. The first lines are one sequence of 50 keys, where the call
itself counts, and what it takes beyond the kernel: the medians of call and kernel, taken in turns.
"""

import argparse
import os
import time

import call_cost
import torch

import quire_kernels as qk

HEADS, KV_HEADS, DIM, PAGE = 16, 8, 128, 16


def best_of(functions, seconds):
    """The best time of each function, in seconds, all in turns."""
    best = [float("inf")] * len(functions)
    for f in functions:
        f()
    end = time.perf_counter() + seconds * len(functions)
    while time.perf_counter() < end:
        for i, f in enumerate(functions):
            start = time.perf_counter()
            f()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def sdpa(q, k, v, causal):
    return torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal, enable_gqa=True
    )


def decode(dtype, batch, context, seconds):
    pages = batch * (context // PAGE)
    k_cache, v_cache = torch.randn(2, pages, PAGE, KV_HEADS, DIM).to(dtype)
    table = torch.randperm(pages).to(torch.int32).view(batch, -1)
    q = torch.randn(batch, 1, HEADS, DIM).to(dtype)
    gather = lambda cache: cache[table].view(batch, context, KV_HEADS, DIM)  # noqa: E731
    k, v = gather(k_cache), gather(v_cache)
    where = {"cache_seqlens": context, "block_table": table}
    ours = lambda: qk.flash_attn_with_kvcache(q, k_cache, v_cache, causal=True, **where)  # noqa: E731
    theirs = lambda: sdpa(q, gather(k_cache), gather(v_cache), False)  # noqa: E731
    dense = lambda: sdpa(q, k, v, False)  # noqa: E731
    assert torch.allclose(ours().float(), dense().transpose(1, 2).float(), atol=2e-2)
    mine, gathered, bare = best_of([ours, theirs, dense], seconds)
    read = 2 * batch * context * KV_HEADS * DIM * k.itemsize / mine / 1e9
    print(
        f"decode  {str(dtype)[6:]:9} batch {batch:3} context {context:6}: {mine * 1e3:8.3f} ms ({read:5.1f} GB/s); "
        f"sdpa with gather {gathered / mine:5.2f}x, without {bare / mine:5.2f}x"
    )


def call(dtype, seconds):
    pages, context = 64, 50
    k_cache, v_cache = torch.randn(2, pages, PAGE, KV_HEADS, DIM).to(dtype)
    table = torch.randperm(pages)[:4].to(torch.int32)[None]
    q = torch.randn(1, 1, HEADS, DIM).to(dtype)
    k, v = torch.randn(2, 1, 1, KV_HEADS, DIM).to(dtype)
    lens = torch.tensor([context - 1], dtype=torch.int32)
    gather = lambda cache: cache[table].view(1, -1, KV_HEADS, DIM)[:, :context]  # noqa: E731
    ours = lambda: qk.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lens, block_table=table, causal=True)  # noqa: E731
    theirs = lambda: sdpa(q, gather(k_cache), gather(v_cache), False)  # noqa: E731
    mine, kernel, gathered = call_cost.medians([ours, call_cost.kernel_of(ours), theirs], seconds)
    print(
        f"call    {str(dtype)[6:]:9} batch   1 context     50: {mine * 1e6:8.1f} us, {(mine - kernel) * 1e6:.1f} us beyond the kernel; "
        f"sdpa with gather {gathered / mine:5.2f}x"
    )


def prompt(dtype, length, seconds):
    q, k, v = (torch.randn(1, length, h, DIM).to(dtype) for h in (HEADS, KV_HEADS, KV_HEADS))
    mine, theirs = best_of([lambda: qk.flash_attn_func(q, k, v, causal=True), lambda: sdpa(q, k, v, True)], seconds)
    flops = 2 * length * length * HEADS * DIM / mine / 1e9  # half of the square, twice, 2 operations
    print(
        f"prompt  {str(dtype)[6:]:9} length {length:6}:            {mine * 1e3:8.3f} ms ({flops:5.0f} GFLOP/s); "
        f"sdpa {theirs / mine:5.2f}x"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=qk.num_threads())
    parser.add_argument("--seconds", type=float, default=0.5, help="for each figure")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    qk.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    print(f"quire_kernels {qk.isa_name()}, torch {torch.__version__} {torch.backends.cpu.get_cpu_capability()}, "
          f"{arguments.threads} threads of {os.cpu_count()}; {HEADS} heads, {KV_HEADS} kv heads, {DIM} dimensions, pages of {PAGE}")  # fmt: skip
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        call(dtype, arguments.seconds)
        for batch, context in ((1, 1024), (1, 8192), (16, 1024)):
            decode(dtype, batch, context, arguments.seconds)
        for length in (512, 2048):
            prompt(dtype, length, arguments.seconds)


if __name__ == "__main__":
    main()
