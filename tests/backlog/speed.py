"""How fast a dry run is beside reading the topic and looking its keys up: `python -m tests.backlog.speed [RECORDS]`."""

import asyncio
import json
import secrets
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import orjson
from asyncpg.pgproto.pgproto import UUID

from tests.backlog.shop import TO_THE_END, Shop, body
from tests.backlog.telling import Telling
from tests.engine.site import Site
from tests.stack.client import Sent
from worker.app.choosing import Plan
from worker.app.forecast import Glass, forecast, open_glass
from worker.engine.classify import read_records
from worker.kafka.reader import open_reader
from worker.observe.logs import notice
from worker.rules.document import Document
from worker.rules.fingerprint import FORMAT
from worker.rules.record import Record
from worker.stack import KafkaOptions, start


async def main(records: int) -> dict[str, Any]:
    with start(["kafka", "postgres"], say=lambda _: None, kafka_options=KafkaOptions(real=True)) as stack:
        assert stack.kafka is not None
        assert stack.postgres is not None
        folder = Path(tempfile.mkdtemp())
        site = Site(stack.kafka.url, stack.postgres.url, f"t_{secrets.token_hex(3)}", "g", folder)
        await site.migrate()
        shop = Shop(site.topic(4))
        keys = [secrets.token_hex(12) for _ in range(records)]
        sent = [Sent(body(key, amount=5, note="x" * 200), key=key.encode()) for key in keys]
        await asyncio.to_thread(site.produce, shop.topic, sent)
        await remember_half(site, shop, keys)
        ways = {"look_up": look_up, "identify_and_look_up": identify_and_look_up, "dry_run": dry_run}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(5):
            # By turns: on a busy machine all meet the same neighbours.
            for name, way in ways.items():
                found[name].append(await measured(way(site, shop, records)))
        site.close()
    best = {name: min(each) for name, each in found.items()}
    rates = {f"{name}_per_s": round(records / wall) for name, (wall, _) in best.items()}
    cpu = {f"{name}_cpu_us": round(min(busy for _, busy in found[name]) / records * 1e6, 1) for name in best}
    return {"records": records, **rates, **cpu}


async def measured(work: Awaitable[None]) -> tuple[float, float]:
    """Seconds by the clock, and of this process."""
    began, busy = time.perf_counter(), time.process_time()
    await work
    return time.perf_counter() - began, time.process_time() - busy


async def remember_half(site: Site, shop: Shop, keys: list[str]) -> None:
    """Completed entries for every second key, as a worker would have left them."""
    async with open_glass(site.settings(), shop.registry) as glass:
        [route] = glass.routes
    connection = await asyncpg.connect(site.database_url)
    columns = ["fence", "expires_at", "operation", "state", "kind", "result_status", "format", "id", "fingerprint"]
    expiry = datetime.now(UTC) + timedelta(days=7)
    rows = [
        (1, expiry, 1, 2, 3, 1, FORMAT, UUID(route.identity.entry_id(b"acme", key.encode())),
         route.fingerprint.digest(Document(body(key, amount=5, note="x" * 200))))
        for key in keys[::2]
    ]  # fmt: skip
    await connection.copy_records_to_table("entries", schema_name=site.schema, records=rows, columns=columns)
    await connection.execute(f'ANALYZE "{site.schema}".entries')
    await connection.close()


async def look_up(site: Site, shop: Shop, records: int) -> None:
    """Fetch every record, take its key, and look it up; nothing else."""

    def ids(glass: Glass, batch: Sequence[Record]) -> list[bytes]:
        [route] = glass.routes
        return [route.identity.entry_id(b"acme", orjson.loads(r.value or b"")["id"].encode()) for r in batch]

    await read_all(site, shop, records, ids)


async def identify_and_look_up(site: Site, shop: Shop, records: int) -> None:
    """Fetch every record, identify it as a worker does, validation and fingerprint included, and look it up."""

    def ids(glass: Glass, batch: Sequence[Record]) -> list[bytes]:
        return [read.item.id for read in read_records(glass.intake, batch)]

    await read_all(site, shop, records, ids)


async def read_all(site: Site, shop: Shop, records: int, ids: Callable[[Glass, Sequence[Record]], list[bytes]]) -> None:
    settings = site.settings()
    async with open_reader(settings.kafka, shop.topic, notice) as reader, open_glass(settings, shop.registry) as glass:
        reader.begin(await reader.spans(TO_THE_END))
        seen = 0
        async for _, batch, _ in reader.everything(most=2000):
            await glass.looking.look_at(ids(glass, batch))
            seen += len(batch)
        assert seen == records


async def dry_run(site: Site, shop: Shop, records: int) -> None:
    report = await forecast(site.settings(), shop.registry, Plan(shop.topic, TO_THE_END), Telling())
    assert report is not None
    assert report["classes"] == {"run": records // 2, "replay": records - records // 2}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))))
