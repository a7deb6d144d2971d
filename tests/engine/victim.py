"""A worker process that dies at a named point, once: `python -m tests.engine.victim [POINT]`.

The points outside the handler are reached by wrapping the real adapters; nothing in the product knows of them. With
VICTIM_BUG it has one of the bugs below, so that tests can show that they would notice.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn

from aiokafka.conn import AIOKafkaConnection
from pydantic import BaseModel

from tests.engine.witness import once, testify, witnessed
from worker import Context, Effect, NotExecuted, Reconcile, Registry, Transaction, Verdict, field
from worker.app import run
from worker.engine.pipeline import Pipeline
from worker.kafka.consumer import Consumer
from worker.ledger.claims import Claims
from worker.ledger.doubts import Doubts
from worker.ledger.finals import Finals
from worker.ledger.transactions import Transactions
from worker.rules.entries import Won
from worker.rules.lanes import Lane
from worker.rules.record import Record
from worker.rules.watermark import Watermark
from worker.rules.writes import Claimed
from worker.settings import load_settings


class Message(BaseModel):
    """What the tests send."""

    id: str
    amount: int = 0
    dies: bool = False
    seconds: float | None = None
    fails: int = 0
    stalls: str = ""  # where it waits for a while if the process is one that stalls: before, inside


class Victim:
    """The handlers of one such process, and the point at which it dies."""

    def __init__(self, point: str) -> None:
        self._point = point
        self._slow = float(os.environ.get("VICTIM_SECONDS", "0.002"))

    def registry(self) -> Registry:
        topics = dict(pair.split("=") for pair in os.environ["VICTIM_TOPICS"].split(","))
        results = os.environ.get("VICTIM_RESULTS")
        registry = Registry()
        if topic := topics.get("external"):
            how: dict[str, Any] = {"timeout": os.environ.get("VICTIM_TIMEOUT", "30s"), "result_topic": results}
            if reconcile := os.environ.get("VICTIM_RECONCILE"):
                how["reconcile"] = Reconcile(**json.loads(reconcile))
            if horizon := os.environ.get("VICTIM_HORIZON"):
                how["effect_horizon"] = horizon
            external = registry.handler(topic, scope="payments", key=field("id"), **how)(self._external())
            if reconcile:
                external.reconciler(search)
        if topic := topics.get("transactional"):
            registry.handler(topic, scope="jobs", key=field("id"), kind="transactional")(self._transactional())
        if topic := topics.get("repeatable"):
            registry.handler(topic, scope="webhooks", key=field("id"), kind="repeatable")(self._repeatable())
        return registry

    def die(self, point: str, message: Message | None = None) -> None:
        poison = self._point == "poison" and point == "inside_effect" and message is not None and message.dies
        if poison or (point == self._point and (message is None or message.dies) and once(point)):
            os.kill(os.getpid(), signal.SIGKILL)

    @staticmethod
    def _fail(message: Message, context: Context) -> None:
        """Nothing was executed yet: tried again."""
        if context.attempt <= message.fails:
            raise NotExecuted("not yet")

    async def _stall(self, where: str, message: Message) -> None:
        if message.stalls == where and (seconds := os.environ.get("VICTIM_STALLS")):
            testify("stalls", message.id)
            await asyncio.sleep(float(seconds))

    async def _work(self, message: Message) -> None:
        await asyncio.sleep(self._slow if message.seconds is None else message.seconds)

    def _external(self) -> Callable[..., Any]:
        async def external(message: Message, context: Context, effect: Effect) -> dict[str, Any]:
            """Calls someone else's system: the witness."""
            self.die("before_effect", message)
            self._fail(message, context)
            await self._stall("before", message)
            async with effect:
                await self._stall("inside", message)
                testify("start", message.id, fence=context.fence, late=context.out_of_order, place=str(context.source))
                self.die("inside_effect", message)
                await self._work(message)
                testify("end", message.id, fence=context.fence)
            self.die("after_effect", message)
            return {"id": message.id, "amount": message.amount}

        return external

    def _transactional(self) -> Callable[..., Any]:
        async def transactional(message: Message, context: Context, transaction: Transaction) -> dict[str, Any]:
            """Writes through the transaction."""
            self.die("before_effect", message)
            effects = f'"{os.environ["ONCEBOX_SCHEMA"]}".effects'
            await transaction.execute(f"INSERT INTO {effects} (key, fence) VALUES ($1, $2)", message.id, context.fence)
            self.die("inside_effect", message)
            await self._work(message)
            self._fail(message, context)
            self.die("after_effect", message)
            return {"id": message.id}

        return transactional

    def _repeatable(self) -> Callable[..., Any]:
        async def repeatable(message: Message, context: Context) -> None:
            """May run twice."""
            self.die("before_effect", message)
            self._fail(message, context)
            testify("repeat", message.id)
            self.die("inside_effect", message)
            await self._work(message)
            self.die("after_effect", message)

        return repeatable

    def wrap(self) -> None:
        """Make the adapters die at their points."""
        Claims.claim = self._dying("before_claim", Claims.claim, after=False)  # type: ignore[method-assign]
        Claims.claim = self._dying("after_claim", Claims.claim, after=True)  # type: ignore[method-assign]
        Finals.complete = self._dying("after_completion", Finals.complete, after=True)  # type: ignore[method-assign]
        Transactions.run = self._dying("after_completion", Transactions.run, after=True)  # type: ignore[method-assign]
        Consumer.commit = self._dying("before_commit", Consumer.commit, after=False)  # type: ignore[method-assign]
        Doubts.rule = self._dying("before_verdict", Doubts.rule, after=False)  # type: ignore[method-assign]
        Doubts.rule = self._dying("after_verdict", Doubts.rule, after=True)  # type: ignore[method-assign]
        Doubts.reported = self._dying("before_report", Doubts.reported, after=False)  # type: ignore[method-assign]

    def _dying(self, point: str, call: Callable[..., Awaitable[Any]], *, after: bool) -> Any:
        async def wrapped(*arguments: Any, **named: Any) -> Any:
            if not after:
                self.die(point)
            answer = await call(*arguments, **named)
            if after:
                self.die(point)
            return answer

        return wrapped


async def search(context: Context) -> Verdict:
    """A naive reconciler: whatever the provider's search does not find was not executed. It lags behind the writes."""
    if context.key.startswith("nobody"):
        return Verdict.unknown()
    seen = time.monotonic() - float(os.environ.get("VICTIM_LAG", "0"))
    found = any(w["what"] == "start" and w["at"] <= seen for w in witnessed(context.key))
    return Verdict.executed({"id": context.key, "found": True}) if found else Verdict.not_executed()


def runs_every_duplicate() -> None:
    """Takes a claim for won when it was lost."""
    Claimed.winner = lambda self, id_: Won(self.fence)  # type: ignore[method-assign]


def commits_what_it_has_read() -> None:
    """Commits the position instead of the first unfinished offset."""
    advance = Watermark.advance

    def highest(self: Watermark[Any]) -> int:
        advance(self)
        return self._position

    Watermark.advance = highest  # type: ignore[method-assign]


def drops_the_last_of_a_batch() -> None:
    """Loses a record of each fetch."""
    take = Pipeline.take

    def losing(self: Pipeline, lane: Lane, records: Sequence[Record], position: int, *, more: bool = False) -> None:
        take(self, lane, records[:-1] if len(records) > 1 else records, position, more=more)

    Pipeline.take = losing  # type: ignore[method-assign]


def resets_connections() -> None:
    """Now and then a request finds its connection just closed, and the event loop says so as uvloop does."""
    send, chance, requests = AIOKafkaConnection.send, random.Random(1), itertools.count()

    def refuse(data: bytes) -> NoReturn:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    def resetting(self: Any, *arguments: Any, **named: Any) -> Any:
        # Not while it starts: a worker that cannot reach Kafka at all may refuse to.
        if self._writer is not None and next(requests) > 50 and chance.random() < 0.02:
            self._writer.transport.abort()
            self._writer.write = refuse
        return send(self, *arguments, **named)

    AIOKafkaConnection.send = resetting


BUGS = {
    bug.__name__: bug
    for bug in (runs_every_duplicate, resets_connections, commits_what_it_has_read, drops_the_last_of_a_batch)
}


def main(words: Sequence[str]) -> None:
    victim = Victim(words[0] if words else "")
    victim.wrap()
    if bug := os.environ.get("VICTIM_BUG"):
        BUGS[bug]()
    sys.exit(run(load_settings(), victim.registry()))


if __name__ == "__main__":
    main(sys.argv[1:])
