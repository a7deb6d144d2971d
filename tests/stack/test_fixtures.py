"""The fixtures every other test stands on."""

import asyncpg
import redis

from tests.conftest import ConsumeAll, MakeTopic, Produce
from tests.stack.client import Sent


def test_what_is_produced_is_read_back_with_key_headers_and_place(
    topic: MakeTopic, produce: Produce, consume_all: ConsumeAll
) -> None:
    name = topic(2, retention_ms=3_600_000)
    places = produce(name, [b"a", Sent(b"b", key=b"k", headers=[("h", b"1"), ("n", None)], partition=1)])
    assert len(set(places)) == 2
    seen = {(one.partition, one.offset): one for one in consume_all(name)}
    assert set(seen) == set(places)
    last = seen[places[1]]
    assert (last.key, last.value, last.headers) == (b"k", b"b", (("h", b"1"), ("n", None)))


async def test_a_schema_name_is_free_to_use(database_url: str, schema: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(f"CREATE SCHEMA {schema}")
        await connection.execute(f"CREATE TABLE {schema}.t (id int)")
    finally:
        await connection.close()


def test_redis_answers(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.ping()
