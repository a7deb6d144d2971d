"""A worker process that dies at a named point, once: `python -m tests.engine.victim [POINT]`.

The points outside the handler are reached by wrapping the real adapters; nothing in the product knows of them. With
VICTIM_BUG it has one of the bugs below, so that tests can show that they would notice.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic import BaseModel

from tests.engine.witness import once, testify
from worker import Context, Effect, Registry, Transaction, field
from worker.app import run
from worker.engine.pipeline import Pipeline
from worker.kafka.consumer import Consumer
from worker.ledger.claims import Claims
from worker.ledger.finals import Finals
from worker.ledger.transactions import Transactions
from worker.rules.entries import Won
from worker.rules.lanes import Lane
from worker.rules.record import Record
from worker.rules.watermark import Watermark
from worker.rules.writes import Claimed
from worker.settings import load_settings

POINT = sys.argv[1] if len(sys.argv) > 1 else ""
SLOW = float(os.environ.get("VICTIM_SECONDS", "0.002"))
TOPICS = dict(pair.split("=") for pair in os.environ["VICTIM_TOPICS"].split(","))
RESULTS = os.environ.get("VICTIM_RESULTS")

registry = Registry()


class Message(BaseModel):
    """What the tests send."""

    id: str
    amount: int = 0
    dies: bool = False
    seconds: float = SLOW


def die(point: str, message: Message | None = None) -> None:
    poison = POINT == "poison" and point == "inside_effect" and message is not None and message.dies
    if poison or (point == POINT and (message is None or message.dies) and once(point)):
        os.kill(os.getpid(), signal.SIGKILL)


@registry.handler(TOPICS.get("external", "-external"), scope="payments", key=field("id"), result_topic=RESULTS)
async def external(message: Message, context: Context, effect: Effect) -> dict[str, Any]:
    """Calls someone else's system: the witness."""
    die("before_effect", message)
    async with effect:
        testify("start", message.id, fence=context.fence, place=str(context.source))
        die("inside_effect", message)
        await asyncio.sleep(message.seconds)
        testify("end", message.id, fence=context.fence)
    die("after_effect", message)
    return {"id": message.id, "amount": message.amount}


@registry.handler(TOPICS.get("transactional", "-transactional"), scope="jobs", key=field("id"), kind="transactional")
async def transactional(message: Message, context: Context, transaction: Transaction) -> dict[str, Any]:
    """Writes through the transaction."""
    die("before_effect", message)
    schema = os.environ["ONCEBOX_SCHEMA"]
    await transaction.execute(f'INSERT INTO "{schema}".effects (key, fence) VALUES ($1, $2)', message.id, context.fence)
    die("inside_effect", message)
    await asyncio.sleep(message.seconds)
    die("after_effect", message)
    return {"id": message.id}


@registry.handler(TOPICS.get("repeatable", "-repeatable"), scope="webhooks", key=field("id"), kind="repeatable")
async def repeatable(message: Message) -> None:
    """May run twice."""
    die("before_effect", message)
    testify("repeat", message.id)
    die("inside_effect", message)
    await asyncio.sleep(message.seconds)
    die("after_effect", message)


def dying(point: str, call: Callable[..., Awaitable[Any]], *, after: bool) -> Any:
    async def wrapped(*arguments: Any, **named: Any) -> Any:
        if not after:
            die(point)
        answer = await call(*arguments, **named)
        if after:
            die(point)
        return answer

    return wrapped


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

    def losing(self: Pipeline, lane: Lane, records: Sequence[Record], position: int) -> None:
        take(self, lane, records[:-1] if len(records) > 1 else records, position)

    Pipeline.take = losing  # type: ignore[method-assign]


BUGS = {bug.__name__: bug for bug in (runs_every_duplicate, commits_what_it_has_read, drops_the_last_of_a_batch)}


def main() -> None:
    if bug := os.environ.get("VICTIM_BUG"):
        BUGS[bug]()
    Claims.claim = dying("before_claim", Claims.claim, after=False)  # type: ignore[method-assign]
    Claims.claim = dying("after_claim", Claims.claim, after=True)  # type: ignore[method-assign]
    Finals.complete = dying("after_completion", Finals.complete, after=True)  # type: ignore[method-assign]
    Transactions.run = dying("after_completion", Transactions.run, after=True)  # type: ignore[method-assign]
    Consumer.commit = dying("before_commit", Consumer.commit, after=False)  # type: ignore[method-assign]
    registry.handlers = [h for h in registry.handlers if not h.topics[0].startswith("-")]
    sys.exit(run(load_settings(), registry))


if __name__ == "__main__":
    main()
