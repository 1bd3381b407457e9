"""Every kind of request under every configuration of the server, among noise that aborts: tokens and log probabilities are those of
solo runs, compared by `==`.

    build/venv/bin/python tests/soak/chaos.py [--seconds 20] [--configurations NAME ...] [--models DIR ...]

What changes the arithmetic (8-bit keys and values, portable bits) is compared with solo runs under the same arithmetic.
"""
import argparse
import asyncio
from dataclasses import dataclass

import kinds
import clients
import soak


@dataclass(frozen=True)
class Configuration:
    flags: tuple = ()  # that must not change a bit
    arithmetic: tuple = ()  # that may


# Of 760 tokens, which one request may have.
LONGEST = "760"
TIGHT = ("--num-gpu-blocks-override", "48")
CONFIGURATIONS = {
    "usual": Configuration(),
    "odd blocks": Configuration(("--block-size", "7")),
    "small chunks": Configuration(("--max-num-batched-tokens", "48")),
    "no prefix cache": Configuration(("--no-enable-prefix-caching",)),
    "no lookahead": Configuration(("--no-async-scheduling",)),
    "int8 keys and values": Configuration(("--block-size", "32"), ("--kv-cache-dtype", "int8")),
    "tight memory": Configuration(TIGHT),
    "one thread": Configuration(("--threads", "1")),
    "portable bits": Configuration(("--threads", "3"), ("--portable-bits",)),
    "few sequences by priority": Configuration(("--scheduling-policy", "priority", "--max-num-seqs", "5")),
    "all at once": Configuration(
        ("--scheduling-policy", "priority", "--block-size", "3", "--max-num-batched-tokens", "33", "--num-gpu-blocks-override", "260",
         "--no-async-scheduling", "--threads", "3"), ("--kv-cache-dtype", "int8")),
}  # fmt: skip


def serve(model, flags):
    return clients.start_server("--disable-access-log", "--max-model-len", LONGEST, *flags, model=model)


def solo(model, requests, arithmetic):
    # Priorities need their policy, which changes nothing for one request at a time.
    with serve(model, ("--scheduling-policy", "priority", *arithmetic)) as server:
        return asyncio.run(clients.solo_answers(server, requests))


async def grid(server, known, seconds, count):
    """Each request once, so that no kind is left out; then at random, with noise beside it, for `seconds`."""
    await asyncio.gather(*(clients.check(server, *one) for one in known))
    (answers, _), (_, kills) = await asyncio.gather(
        clients.all_clients(server, known, seconds, 0, count), clients.all_clients(server, known, seconds, 1, count)
    )
    return answers + len(known), kills


def chaos(model, name, requests, answers, options):
    configuration = CONFIGURATIONS[name]
    known = list(zip(requests, answers))
    if "priority" not in configuration.flags:
        known = [(request, answer) for request, answer in known if request.kind != kinds.PRIORITY]
    with serve(model, configuration.flags + configuration.arithmetic) as server:
        asked, kills = asyncio.run(grid(server, known, options.seconds, options.clients))
        clients.assert_nothing_is_held(server)
        preempted = server.metric("vllm:num_preemptions_total")
    print(f"{model}, {name}: {asked} answers equal to solo ones, {kills} aborted, {preempted:.0f} preemptions", flush=True)
    assert asked > 0 and kills > 0
    if "--num-gpu-blocks-override" in configuration.flags:
        assert preempted > 0, "the memory was not tight"
    return asked


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="for each configuration")
    parser.add_argument("--clients", type=int, default=24, help="that ask, and as many that abort")
    parser.add_argument("--each", type=int, default=3, help="requests of each kind")
    parser.add_argument("--configurations", nargs="+", default=list(CONFIGURATIONS), choices=list(CONFIGURATIONS))
    parser.add_argument("--models", nargs="+", default=soak.MODELS)
    return parser.parse_args(arguments)


def main(arguments=None):
    options, asked = parse(arguments), 0
    requests = kinds.make_all(seed=2, each=options.each)
    for model in options.models:
        answers = {}  # of solo runs, by arithmetic
        for name in options.configurations:
            arithmetic = CONFIGURATIONS[name].arithmetic
            if arithmetic not in answers:
                answers[arithmetic] = solo(model, requests, arithmetic)
            asked += chaos(model, name, requests, answers[arithmetic], options)
    return asked


if __name__ == "__main__":
    main()
