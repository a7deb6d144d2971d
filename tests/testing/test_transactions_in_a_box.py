"""Transactional handlers: what they execute counts only if it commits, and queries get the author's rows."""

from typing import Any

from tests.testing.shop import gateway, order
from worker import Registry, Transaction
from worker.testing import Box, Statement


async def test_statements_are_committed_with_the_completion(box: Box) -> None:
    first = await box.deliver(order, {"delivery_id": "d"})
    await box.redeliver(first)
    assert box.database.committed == [Statement("INSERT INTO orders (id) VALUES ($1)", ("d",))]
    assert box.effects.count(order, key="d") == 1


async def test_statements_of_an_attempt_that_failed_are_rolled_back() -> None:
    shop = Registry()
    attempts = []

    @shop.handler("t", scope="jobs", key="id", kind="transactional")
    async def write(message: dict[str, Any], transaction: Transaction) -> None:
        await transaction.executemany("INSERT INTO t VALUES ($1)", [(1,), (2,)])
        attempts.append(message["id"])
        if len(attempts) == 1:
            raise ValueError

    async with Box(shop) as box:
        delivered = await box.deliver(write, {"id": "a"})
        assert (delivered.outcome, delivered.attempts) == ("executed", 1)
        assert [statement.arguments for statement in box.database.committed] == [(1,), (2,)]


async def test_a_claim_that_someone_else_decided_is_rolled_back_and_judged_by_its_row(box: Box) -> None:
    def decide() -> None:
        [entry] = box.tables.entries.values()
        entry.fence += 1
        entry.state, entry.due_at = type(entry.state).FAILED_RETRYABLE, box.tables.clock()
        gateway.behave = lambda: None

    gateway.behave = decide
    delivered = await box.deliver(order, {"delivery_id": "d"})
    assert (delivered.outcome, delivered.runs) == ("executed", 2)
    assert len(box.database.committed) == 1


async def test_queries_are_answered_with_the_rows_the_author_gave() -> None:
    shop = Registry()

    @shop.handler("t", scope="jobs", key="id", kind="transactional")
    async def ask(message: dict[str, Any], transaction: Transaction) -> Any:
        return [
            await transaction.fetch("SELECT id,\n  name FROM people"),
            await transaction.fetchrow("SELECT id FROM people WHERE id = $1", message["id"]),
            await transaction.fetchval("INSERT INTO people DEFAULT VALUES RETURNING id"),
            await transaction.fetchval("SELECT 1 WHERE false"),
            await transaction.execute("UPDATE people SET name = $1", "x"),
            await transaction.execute("INSERT INTO log VALUES (1)"),
        ]

    async with Box(shop) as box:
        box.database.answer("FROM people", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
        box.database.answer("FROM people WHERE id", lambda id_: [(id_,)])
        box.database.answer("RETURNING id", [(7,)])
        box.database.answer("WHERE false", [])
        box.database.answer("UPDATE people", [1, 2, 3])
        delivered = await box.deliver(ask, {"id": 5})
        assert delivered.result == [
            [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
            [5],
            7,
            None,
            "UPDATE 3",
            "INSERT 0 1",
        ]


async def test_a_query_without_an_answer_says_what_is_missing() -> None:
    shop = Registry()

    @shop.handler("t", scope="jobs", key="id", kind="transactional", retries=1)
    async def ask(message: dict[str, Any], transaction: Transaction) -> Any:
        return await transaction.fetchval("SELECT now()")

    async with Box(shop) as box:
        delivered = await box.deliver(ask, {"id": 5})
        assert (delivered.outcome, delivered.reason) == ("dead_lettered", "retries_exhausted")
        assert "database.answer('SELECT now()'" in str(delivered.errors[0])
