#!/usr/bin/env python3
"""What paging costs and saves on an NVIDIA GPU: Quire's attention over scattered blocks beside torch's over keys and
values that are gathered first, and over ones that lie in order already. One query token a sequence, bfloat16.

    python3 bench/gather_attention.py [--kernels build/release/bin/cuda_kernels_test]

Times are medians of captured graphs, on data that no cache holds. torch's attention is the faster of its FlashAttention,
cuDNN and memory-efficient kernels that run the shape, each with and without repeated heads.
"""

import argparse
import re
import statistics
import subprocess

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attend

BLOCK, DIM, RUNS = 16, 128, 20
KERNELS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
LINE = re.compile(r"paging (\d+)/(\d+) batch (\d+) context (\d+)  paged ([\d.]+) us")


def time_us(run) -> float:
    """Of one of RUNS in a graph; run(i) is its i-th."""
    run(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(RUNS):
            run(i)
    times = []
    for _ in range(7):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / RUNS)
    return statistics.median(times)


def fastest(run) -> tuple[float, str]:
    found = []
    for kernel in KERNELS:
        for repeats in (False, True):
            try:
                with sdpa_kernel(kernel):
                    found.append((time_us(lambda i: run(i, repeats)), kernel.name))
            except RuntimeError:  # not for this shape
                torch.cuda.synchronize()
    return min(found)


def measure(heads: int, kv_heads: int, batch: int, context: int) -> tuple[float, float, str]:
    """Microseconds: attention over gathered keys, gathering included; and over keys in order."""
    blocks = batch * context // BLOCK
    pools = max(1, (300 << 20) // (2 * blocks * BLOCK * kv_heads * DIM * 2))
    shape = (pools, blocks, BLOCK, kv_heads, DIM)
    k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    q = torch.randn((batch, heads, 1, DIM), device="cuda", dtype=torch.bfloat16)
    table = torch.randperm(blocks, device="cuda")

    def attention(keys, values, repeats):
        keys, values = (x.view(batch, context, kv_heads, DIM).transpose(1, 2) for x in (keys, values))
        if repeats:
            keys, values = (x.repeat_interleave(heads // kv_heads, 1) for x in (keys, values))
        return attend(q, keys, values, enable_gqa=not repeats)

    def gathered(i, repeats):
        pool = i % pools
        attention(k[pool].index_select(0, table), v[pool].index_select(0, table), repeats)

    gathers, kernel = fastest(gathered)
    in_order, _ = fastest(lambda i, repeats: attention(k[i % pools], v[i % pools], repeats))
    return gathers, in_order, kernel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default="build/release/bin/cuda_kernels_test")
    args = parser.parse_args()
    lines = subprocess.run([args.kernels, "bench_designs"], capture_output=True, text=True, check=True).stdout
    print(lines, torch.cuda.get_device_name(), torch.__version__, flush=True)
    print("| heads | sequences | context | paged, us | gather and attend | keys in order | ratio | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for heads, kv_heads, batch, context, paged in LINE.findall(lines):
        gathers, in_order, kernel = measure(int(heads), int(kv_heads), int(batch), int(context))
        ratios = f"{gathers / float(paged):.2f} | {in_order / float(paged):.2f}"
        shape = f"{heads}/{kv_heads} | {batch} | {context}"
        print(f"| {shape} | {paged} | {gathers:.1f} ({kernel}) | {in_order:.1f} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
