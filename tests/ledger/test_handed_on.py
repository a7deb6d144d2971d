"""A line handed on with its transaction begun: by the commit of one handler, for the next who waits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import asyncpg
import pytest

from tests.ledger.conftest import OpenLedger, Schema
from tests.ledger.locks import Connection, holding, somebody_waits
from tests.ledger.offers import id_of, offers, ok, released
from tests.ledger.wire import Loss, Wire
from worker.errors import ServiceUnavailable
from worker.ledger import transactions
from worker.ledger.ledger import PostgresLedger
from worker.rules.claims import Kind, State
from worker.rules.context import Transaction
from worker.rules.results import Result

Body = Callable[[Transaction], Awaitable[Result]]
Running = asyncio.Task[Result | None]
_KEYS = "abc"


@pytest.fixture
async def effects(ledger_schema: Schema) -> Schema:
    await ledger_schema.execute(
        "CREATE TABLE oncebox.effects (key text CONSTRAINT one_each UNIQUE DEFERRABLE INITIALLY DEFERRED)"
    )
    return ledger_schema


class Line:
    """The only connection of a ledger, and handlers of three keys that want it: each waits while the first runs."""

    def __init__(self, ledger: PostgresLedger, effects: Schema, fence: int) -> None:
        self.ledger = ledger
        self.effects = effects
        self.fence = fence
        self.backends: list[int] = []

    @asynccontextmanager
    async def crowded(self, **bodies: Body) -> AsyncIterator[dict[str, Running]]:
        """Let the first one end only after the block."""
        go = asyncio.Event()

        def gated(key: str) -> Body:
            async def body(transaction: Transaction) -> Result:
                await go.wait()
                self.backends.append(await transaction.fetchval("SELECT pg_backend_pid()"))
                return await bodies.get(key, self.writing(key))(transaction)

            return body

        running = {}
        for key in _KEYS:
            running[key] = asyncio.create_task(self.ledger.transactions.run(id_of(key), self.fence, gated(key)))
            await asyncio.sleep(0)
        try:
            yield running
        finally:
            go.set()
            await asyncio.wait(running.values())

    def writing(self, *keys: str) -> Body:
        async def body(transaction: Transaction) -> Result:
            for key in keys:
                await transaction.execute(self.effects.sql("INSERT INTO oncebox.effects VALUES ($1)"), key)
            return ok()

        return body

    async def kept(self) -> str:
        return "".join(row[0] for row in await self.effects.fetch("SELECT key FROM oncebox.effects ORDER BY key"))

    async def completed(self) -> str:
        return "".join([key for key in _KEYS if (await self.effects.entry(key))["state"] == State.COMPLETED])


Crowd = Callable[..., Awaitable[Line]]


@pytest.fixture
async def line(open_ledger: OpenLedger, effects: Schema) -> Crowd:
    async def make(url: str | None = None) -> Line:
        ledger = await open_ledger(*[url] if url else [], limits={"transaction_connections": 1})
        claimed = await ledger.claims.claim(offers(*_KEYS, kind=Kind.TRANSACTIONAL))
        return Line(ledger, effects, claimed.fence)

    return make


async def test_each_commits_alone_on_one_connection(line: Crowd) -> None:
    one = await line()
    async with one.crowded() as running:
        pass
    assert [task.result() for task in running.values()] == [ok()] * 3
    assert await one.kept() == await one.completed() == _KEYS
    assert len(set(one.backends)) == 1
    assert not one.ledger.fences.held()
    assert await _idle(one), "nobody waited for what the last one could have begun"


async def test_one_that_fails_between_two_takes_nothing_of_theirs_back(line: Crowd) -> None:
    one = await line()

    async def failing(transaction: Transaction) -> Result:
        await one.writing("b")(transaction)
        raise RuntimeError("boom")

    async with one.crowded(b=failing) as running:
        pass
    assert isinstance(running["b"].exception(), RuntimeError)
    assert await one.kept() == await one.completed() == "ac"


async def test_one_whose_commit_is_refused_takes_nothing_of_the_others_back(line: Crowd) -> None:
    one = await line()
    async with one.crowded(a=one.writing("x", "x")) as running:
        pass
    assert isinstance(running["a"].exception(), asyncpg.UniqueViolationError)
    assert (await one.effects.entry("a"))["state"] == State.IN_PROGRESS
    assert await one.kept() == await one.completed() == "bc"


async def test_one_that_someone_else_decided_takes_only_its_own_effect_back(line: Crowd) -> None:
    one = await line()

    async def settled_meanwhile(transaction: Transaction) -> Result:
        await one.ledger.finals.release([released("b", one.fence)])
        return await one.writing("b")(transaction)

    async with one.crowded(b=settled_meanwhile) as running:
        pass
    assert running["b"].result() is None
    assert await one.kept() == await one.completed() == "ac"


@pytest.mark.parametrize(("loss", "committed"), [(Loss.ANSWER, True), (Loss.REQUEST, False)])
async def test_a_commit_without_an_answer_is_decided_by_the_release_and_the_next_begins_anew(
    line: Crowd, wire: Wire, loss: Loss, committed: bool
) -> None:
    one = await line(wire.url)
    wire.lose(loss, transactions.COMMIT_AND_BEGIN)
    async with one.crowded() as running:
        pass
    assert wire.lost == 1
    assert isinstance(running["a"].exception(), ServiceUnavailable)
    assert await one.ledger.finals.release([released("a", one.fence)]) == ({id_of("a")} if committed else set())
    assert await one.kept() == await one.completed() == ("abc" if committed else "bc")


async def test_a_connection_that_dies_under_the_next_leaves_the_first_committed(line: Crowd) -> None:
    one = await line()

    async def dying(transaction: Transaction) -> Result:
        await one.effects.execute("SELECT pg_terminate_backend($1)", one.backends[-1])
        return await one.writing("b")(transaction)

    async with one.crowded(b=dying) as running:
        pass
    assert isinstance(running["b"].exception(), ServiceUnavailable)
    assert await one.kept() == await one.completed() == "ac"
    assert len(set(one.backends)) == 2


async def test_what_one_chose_for_its_transaction_is_not_handed_on(line: Crowd) -> None:
    one = await line()
    seen: list[str] = []

    async def choosing(transaction: Transaction) -> Result:
        await transaction.execute("SET LOCAL search_path TO pg_catalog")
        await transaction.execute("SET CONSTRAINTS ALL IMMEDIATE")
        return ok()

    async def looking(transaction: Transaction) -> Result:
        seen.append(await transaction.fetchval("SHOW search_path"))
        return await one.writing("b", "b")(transaction)

    async with one.crowded(a=choosing, b=looking) as running:
        pass
    assert seen != ["pg_catalog"]
    assert isinstance(running["b"].exception(), asyncpg.UniqueViolationError)
    assert await one.completed() == "ac"


async def test_a_handler_may_nest_blocks_in_what_was_begun_for_it(line: Crowd) -> None:
    one = await line()

    async def nesting(transaction: Transaction) -> Result:
        assert isinstance(transaction, asyncpg.Connection)
        with suppress(ZeroDivisionError):
            async with transaction.transaction():
                await one.writing("x")(transaction)
                raise ZeroDivisionError
        async with transaction.transaction():
            return await one.writing("b")(transaction)

    async with one.crowded(b=nesting):
        pass
    assert await one.kept() == await one.completed() == _KEYS


async def test_what_waited_too_long_to_be_taken_is_begun_anew(line: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_FRESH", 0.0)
    one = await line()
    async with one.crowded():
        pass
    assert await one.kept() == await one.completed() == _KEYS
    assert len(set(one.backends)) == 1


async def test_what_was_begun_before_its_taker_asked_is_begun_anew(line: Crowd) -> None:
    """The next of a line asks when the one ahead of it is committed: its transaction must not be older than that."""
    one = await line()
    run, times = one.ledger.transactions.run, []

    async def telling(transaction: Transaction) -> Result:
        times.append(await transaction.fetchval("SELECT now()"))
        return ok()

    insert = one.effects.sql("INSERT INTO oncebox.effects VALUES ('x') RETURNING key")
    async with holding(one.effects.url, insert) as holder:
        first = asyncio.create_task(run(id_of("a"), one.fence, one.writing("x")))
        gives_up = asyncio.create_task(run(id_of("b"), one.fence, one.writing("b")))
        await somebody_waits(one.effects.admin, holder)
        gives_up.cancel()
        await asyncio.wait([gives_up])
        asked_at = await one.effects.value("SELECT clock_timestamp()")
        third = asyncio.create_task(run(id_of("c"), one.fence, telling))
        await asyncio.sleep(0)
        await holder.execute("ROLLBACK")
        assert (await first, await third) == (ok(), ok())
    assert times[0] >= asked_at
    assert await one.completed() == "ac"


async def test_those_who_give_up_while_theirs_is_begun_leave_no_transaction_open(line: Crowd) -> None:
    one = await line()
    insert = one.effects.sql("INSERT INTO oncebox.effects VALUES ('x') RETURNING key")
    async with holding(one.effects.url, insert) as holder:
        async with one.crowded(a=one.writing("x")) as running:
            pass_on = asyncio.create_task(_cancel_when_stuck(one, holder, running["b"], running["c"]))
        await pass_on
    assert running["a"].result() == ok()
    assert await one.completed() == "a"
    assert await _idle(one)


async def _cancel_when_stuck(one: Line, holder: Connection, *waiting: Running) -> None:
    await somebody_waits(one.effects.admin, holder)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await holder.execute("ROLLBACK")


async def _idle(one: Line) -> bool:
    state = await one.effects.value("SELECT state FROM pg_stat_activity WHERE pid = $1", one.backends[-1])
    return bool(state == "idle")
