"""A client that asks, and one that goes away in the middle; and what the server's metrics and memory say."""
import asyncio
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "api"))

from conftest import start_server  # noqa: E402, F401

import kinds  # noqa: E402


def _bytes(server, request):
    body = request.text()
    head = (f"POST {request.path} HTTP/1.1\r\nHost: {server.host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n")
    return head.encode() + body


def _dechunked(body):
    parts, at = [], 0
    while True:
        line = body.index(b"\r\n", at)
        size = int(body[at:line], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(body[line + 2 : line + 2 + size])
        at = line + 4 + size


async def _read(reader):
    answer = await reader.read()
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1]) if head else 0
    return status, _dechunked(body) if b"transfer-encoding: chunked" in head.lower() else body


async def ask(server, request):
    """(status, body) over a connection of its own; the connection is reset if the caller gives up."""
    reader, writer = await asyncio.open_connection(server.host, server.port, limit=1 << 24)
    try:
        writer.write(_bytes(server, request))
        answer = await _read(reader)
        writer.close()
        return answer
    finally:
        writer.transport.abort()


async def leave(server, request, rng):
    """Goes away while sending, while waiting or while reading; with a FIN or a reset. Returns nothing: it may have been late."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        data = _bytes(server, request)
        if rng.random() < 0.2:
            data = data[: rng.randrange(len(data))]
        writer.write(data)
        await asyncio.wait_for(reader.read(), rng.expovariate(1 / 0.1))
    except (asyncio.TimeoutError, ConnectionError):
        pass
    finally:
        writer.close() if rng.random() < 0.5 else writer.transport.abort()


async def answer(server, request):
    """The comparable answer; fails unless it is a 200."""
    status, body = await ask(server, request)
    assert status == 200, f"{request.kind}: {status} {body[:300]!r} to {request.text()[:300]!r}"
    return kinds.answer_of(request, body)


async def solo_answers(server, requests):
    """Each alone in an idle server."""
    return [await answer(server, request) for request in requests]


async def check(server, request, want):
    got = await answer(server, request)
    assert got == want, f"{request.kind}: not the solo answer\nrequest {request.text()!r}\ngot  {got}\nwant {want}"


async def client(server, known, seconds, kill_share, seed):
    """Asks for `known` [(request, its solo answer)] in random order, for so long; returns (answers, kills)."""
    rng, loop = random.Random(seed), asyncio.get_running_loop()
    end, answers, kills = loop.time() + seconds, 0, 0
    while loop.time() < end:
        request, want = rng.choice(known)
        if rng.random() < kill_share:
            await leave(server, request, rng)
            kills += 1
        else:
            await check(server, request, want)
            answers += 1
    return answers, kills


async def all_clients(server, known, seconds, kill_share, count):
    results = await asyncio.gather(*(client(server, known, seconds, kill_share, seed) for seed in range(count)))
    return tuple(map(sum, zip(*results)))


def assert_nothing_is_held(server):
    """Blocks, state slots and requests back at none, within 20 s."""
    server.wait_until(server.is_idle)
    names = ["quire:kv_blocks_used"]
    if "quire:state_slots_used" in server.get("/metrics").body.decode():
        names.append("quire:state_slots_used")
    server.wait_until(lambda: all(server.metric(name) == 0 for name in names))


def resident_kib(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def slope_per_minute(samples):
    """Least squares through [(seconds, value)]."""
    n = len(samples)
    mean_t, mean_v = (sum(x) / n for x in zip(*samples))
    spread = sum((t - mean_t) ** 2 for t, _ in samples)
    return 60 * sum((t - mean_t) * (v - mean_v) for t, v in samples) / spread
