"""A long time under load: memory does not grow, nothing stays held, every complete answer is the solo answer.

    build/venv/bin/python tests/soak/soak.py [--minutes 20] [--active 512] [--idle 2000]

against `quire serve` of the dense and of the hybrid demo model, half of the time each. 30 % of the connections are killed at random
moments. Six minutes for a model or more measure the memory's slope, too, after a warm-up that ends when so many requests have been
answered; on a slow machine that takes longer than was asked for.
"""
import argparse
import asyncio
import random
import resource
import time

import kinds
import clients

ROOT = clients.pathlib.Path(__file__).resolve().parents[2]
MODELS = [str(ROOT / "models/quire-demo"), str(ROOT / "models/quire-demo-hybrid")]
SLOPE_LIMIT_KIB = 1024  # a minute
# Small pools, which fill_pools fills: what is larger is address space that is touched for the first time bit by bit, which looks like
# a leak. Dense models take the flag of hybrid ones, too.
SEQUENCES, CHECKPOINTS, KV_TOKENS = 128, 256, 196608
FLAGS = ("--disable-access-log", "--max-model-len", "2048", "--kv-cache-memory", "192MiB", "--max-num-seqs", str(SEQUENCES),
         "--state-checkpoint-slots", str(CHECKPOINTS))
SHORTEST_FOR_SLOPE = 240  # seconds
# Caches and the allocator's heaps have grown to what this load needs after 8,000 answers, however long these took.
WARM_UP_ANSWERS = 10_000


def is_slope_measured(seconds):
    return seconds * 2 / 3 >= SHORTEST_FOR_SLOPE


async def hold_idle(server, count, over):
    """`count` connections that say nothing, until `over` is set; one that the server closes is opened again."""
    writers = []
    try:
        while not over.is_set():
            writers = [(r, w) for r, w in writers if not r.at_eof() and not w.is_closing()]
            while len(writers) < count:
                writers.append(await asyncio.open_connection(server.host, server.port))
            await asyncio.sleep(0.5)
        return len(writers)
    finally:
        for _, writer in writers:
            writer.close()


async def fill_pools(server):
    """As many sequences at once as may run, and more tokens and recurrent states than the pools can keep."""
    rng, length = random.Random(7), 600
    count = max(CHECKPOINTS, KV_TOKENS // length) + SEQUENCES
    prompts = [[rng.randint(0, 4000) for _ in range(length)] for _ in range(count)]
    body = {"max_tokens": 200, "temperature": 0, "ignore_eos": True}
    free = asyncio.Semaphore(2 * SEQUENCES)

    async def one(prompt):
        async with free:
            await clients.answer(server, kinds.Request("fill", "/v1/completions", {"prompt": prompt, **body}))

    await asyncio.gather(*map(one, prompts))


async def sample_memory(server, seconds):
    """[(seconds, KiB)]"""
    begin, samples = time.monotonic(), []
    while (now := time.monotonic() - begin) < seconds:
        samples.append((now, clients.resident_kib(server)))
        await asyncio.sleep(min(2, seconds / 20))
    return samples


async def warm_up(load):
    """Load until there have been WARM_UP_ANSWERS; returns (answers, kills)."""
    answers = kills = 0
    while answers < WARM_UP_ANSWERS:
        more_answers, more_kills = await load(20)
        answers, kills = answers + more_answers, kills + more_kills
    return answers, kills


async def under_load(server, options, seconds):
    async def load(some_seconds):
        return await clients.all_clients(server, known, some_seconds, 0.3, options.active)

    end, over = time.monotonic() + seconds, asyncio.Event()
    requests = kinds.make_all(seed=1, each=options.each, with_priority=False)
    known = list(zip(requests, await clients.solo_answers(server, requests)))
    idle = asyncio.create_task(hold_idle(server, options.idle, over))
    before = (0, 0)
    if is_slope_measured(seconds):
        await fill_pools(server)
        before = await warm_up(load)
        seconds = max(end - time.monotonic(), SHORTEST_FOR_SLOPE)
    counts, samples = await asyncio.gather(load(seconds), sample_memory(server, seconds))
    over.set()
    assert await idle == options.idle
    answers, kills = map(sum, zip(before, counts))
    return answers, kills, samples


def soak(model, options):
    seconds = options.minutes * 60 / len(options.models)
    with clients.start_server(*FLAGS, model=model) as server:
        answers, kills, samples = asyncio.run(under_load(server, options, seconds))
        clients.assert_nothing_is_held(server)
        slope = clients.slope_per_minute(samples)
        if not is_slope_measured(seconds):
            print(f"{model}: {seconds:.0f} s are too short to see whether memory grows")
        course = " ".join(f"{kib / 1024:.0f}" for _, kib in samples[:: max(1, len(samples) // 8)])
        print(f"{model}: {answers} answers equal to solo ones, {kills} connections killed, {slope / 1024:+.2f} MiB a minute "
              f"(after warm-up {course} MiB)", flush=True)
        assert answers > 0 and kills > 0
        if is_slope_measured(seconds):
            assert slope < SLOPE_LIMIT_KIB, f"{slope:.0f} KiB a minute"
    return answers, kills


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--active", type=int, default=512)
    parser.add_argument("--idle", type=int, default=2000)
    parser.add_argument("--each", type=int, default=3, help="requests of each kind")
    parser.add_argument("--models", nargs="+", default=MODELS)
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    wanted = options.active + options.idle + 200  # files of this process, and as many of the server, which inherits the limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return [soak(model, options) for model in options.models]


if __name__ == "__main__":
    main()
