"""What the filter costs per key, in microseconds of this process's CPU: `python -m tests.filter.cost`."""

import asyncio
import gc
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import uvloop

from worker.filter.filter import Filter
from worker.rules.claims import State, Status
from worker.rules.entries import Row
from worker.rules.fingerprint import FORMAT
from worker.rules.results import ContentType, Result
from worker.stack import start

KEYS = 500
ROUNDS = 7
CALLS = 60


async def show(name: str, call: Callable[[], Awaitable[object]], keys: int = KEYS) -> None:
    await call()
    best = wall = float("inf")
    for _ in range(ROUNDS):
        cpu, begun = time.process_time(), time.perf_counter()
        for _ in range(CALLS):
            await call()
        best = min(best, (time.process_time() - cpu) / CALLS / keys)
        wall = min(wall, (time.perf_counter() - begun) / CALLS)
    print(f"{best * 1e6:8.2f} us of CPU per key  {wall * 1e3:6.2f} ms per call  {name}")


async def main(url: str) -> None:
    made = Filter(
        url,
        timeout=1.0,
        ledger_id=secrets.token_bytes(16),
        key=secrets.token_bytes(32),
        now=time.time,
        alive=lambda: True,
        notice=print,
    )
    expires = datetime.now(UTC) + timedelta(days=1)
    result = Result(Status.OK, ContentType.JSON, b"x" * 60)
    rows = [
        Row(
            secrets.token_bytes(16),
            State.COMPLETED,
            1000 + n,
            secrets.token_bytes(32),
            FORMAT,
            0,
            0,
            result,
            None,
            None,
            expires,
        )
        for n in range(KEYS)
    ]
    wanted = {row.id: row.fingerprint for row in rows}
    absent = {secrets.token_bytes(16): row.fingerprint for row in rows}
    forged = {row.id: secrets.token_bytes(32) for row in rows}
    one = {rows[0].id: rows[0].fingerprint}

    async def write() -> None:
        made.remember(rows)
        await asyncio.wait([task for task in asyncio.all_tasks() if task.get_name() == "filter writer"])

    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)  # as a worker does
    await show(f"remember {KEYS} rows", write)
    assert len(await made.look_up(wanted)) == KEYS
    await show(f"look up {KEYS}: all hits, bodies of 60 bytes", lambda: made.look_up(wanted))
    await show(f"look up {KEYS}: all misses", lambda: made.look_up(absent))
    await show(f"look up {KEYS}: all of another fingerprint", lambda: made.look_up(forged))
    await show("look up 1: a hit", lambda: made.look_up(one), keys=1)
    await made.close()


if __name__ == "__main__":
    with start(["redis"], say=lambda _: None) as stack:
        assert stack.redis is not None
        uvloop.run(main(stack.redis.url))
