"""How a handler ends decides whether it is tried again, and when it is given up."""

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from tests.engine.load import message
from tests.engine.site import Site
from tests.stack.client import Sent
from tests.waiting import eventually
from worker import Context, Effect, NotExecuted, Registry, Reject, Retries, Transaction


class Message(BaseModel):
    """What the tests send."""

    id: str


class Refused(Exception):
    """Raised by a client library when nothing was sent; listed as proof."""


def registry_of(topic: str, function: Callable[..., Any], **options: Any) -> Registry:
    registry = Registry()
    registry.handler(topic, **{"scope": "payments", "key": "id", "retries": Retries(3, first="50ms"), **options})(
        function
    )
    return registry


async def test_proof_that_nothing_happened_is_tried_again_with_backoff_until_the_cap(site: Site) -> None:
    name = site.topic()
    at: dict[str, list[float]] = defaultdict(list)

    async def work(message: Message, context: Context, effect: Effect) -> None:
        at[message.id].append(time.monotonic())
        assert context.attempt == len(at[message.id])
        if message.id == "never" or len(at[message.id]) < 3:
            raise NotExecuted("not now")

    site.produce(name, [message("never"), message("third time")])
    async with site.worker(registry_of(name, work, retries=Retries(3, first="200ms"))):
        await site.drained(name)
        site.produce(name, [message("never"), message("never"), message("third time")])
        await site.drained(name)
    assert {key: len(times) for key, times in at.items()} == {"never": 3, "third time": 3}
    for first, second, third in at.values():
        assert second - first >= 0.1
        assert third - second >= 0.2
    letters = site.dead_letters(name)
    assert [letter.reason for letter in letters] == ["retries_exhausted"] * 3, "further records do not run"
    for letter in letters:
        assert letter.value == message("never")
        assert letter.about["oncebox.attempts"] == b"3"
        assert letter.about["oncebox.state"] == b"failed_retryable"
        assert letter.about["oncebox.first-failed-at"]
    assert await site.states() == {"never": "failed_retryable", "third time": "completed"}


async def _before(effect: Effect) -> None:
    raise RuntimeError("before the effect")


async def _inside(effect: Effect) -> None:
    async with effect:
        raise RuntimeError("inside the effect")


async def _after(effect: Effect) -> None:
    async with effect:
        pass
    raise RuntimeError("after the effect")


async def _proof_inside(effect: Effect) -> None:
    async with effect:
        raise NotExecuted("the other side said so")


async def _listed_inside(effect: Effect) -> None:
    async with effect:
        raise Refused


async def _proof_after_another_effect(effect: Effect) -> None:
    async with effect:
        pass
    async with effect:
        raise NotExecuted("of the second only")


async def _reject_inside(effect: Effect) -> None:
    async with effect:
        raise Reject("no money", code="funds")


async def _slow_before(effect: Effect) -> None:
    await asyncio.sleep(30)  # never ends: its timeout cancels it


async def _slow_inside(effect: Effect) -> None:
    async with effect:
        await asyncio.sleep(30)  # never ends either


# How the first run ends, the state that follows, and how often it runs in the end.
ENDINGS: dict[str, tuple[Callable[[Effect], Any], str, int]] = {
    "before the effect": (_before, "completed", 2),
    "inside the effect": (_inside, "unknown", 1),
    "after the effect": (_after, "unknown", 1),
    "proof inside": (_proof_inside, "completed", 2),
    "a listed proof inside": (_listed_inside, "completed", 2),
    "proof for the second effect only": (_proof_after_another_effect, "unknown", 1),
    "rejected inside": (_reject_inside, "completed", 1),
    "timed out before": (_slow_before, "completed", 2),
    "timed out inside": (_slow_inside, "unknown", 1),
}


async def test_the_end_of_an_external_handler_decides(site: Site) -> None:
    name, ran = site.topic(), Counter[str]()

    async def work(message: Message, effect: Effect) -> None:
        ran[message.id] += 1
        if ran[message.id] == 1:
            await ENDINGS[message.id][0](effect)

    site.produce(name, [message(key) for key in ENDINGS for _ in range(2)])
    async with site.worker(registry_of(name, work, timeout="300ms", not_executed=(Refused,))):
        await site.drained(name)
    assert await site.states() == {key: state for key, (_, state, _) in ENDINGS.items()}
    assert ran == {key: runs for key, (_, _, runs) in ENDINGS.items()}
    assert not site.dead_letters(name)
    parked = Counter(row["value"] for row in await site.fetch("SELECT value FROM oncebox.parked"))
    doubtful = [key for key, (_, state, _) in ENDINGS.items() if state == "unknown"]
    assert parked == {message(key): 2 for key in doubtful}, "records of an entry in doubt are kept"
    assert await site.count("doubts") == len(doubtful)


async def test_without_an_effect_parameter_the_whole_handler_is_one_effect(site: Site) -> None:
    name = site.topic()
    ran: Counter[str] = Counter()

    async def work(message: Message) -> None:
        ran[message.id] += 1
        if ran[message.id] == 1:
            raise NotExecuted("proof") if message.id == "proof" else RuntimeError("doubt")

    site.produce(name, [message("proof"), message("doubt")])
    async with site.worker(registry_of(name, work)):
        await site.drained(name)
    assert await site.states() == {"proof": "completed", "doubt": "unknown"}
    assert ran == {"proof": 2, "doubt": 1}


async def test_transactional_and_repeatable_handlers_run_again_after_any_error(site: Site) -> None:
    ledger, jobs = site.topic(), site.topic()
    ran: Counter[str] = Counter()
    await site.fetch("CREATE TABLE oncebox.effects (key text)")
    registry = Registry()

    def fails_first(key: str) -> None:
        ran[key] += 1
        if ran[key] == 1:
            raise RuntimeError("any error")

    @registry.handler(ledger, scope="payments", key="id", kind="transactional", retries=Retries(3, first="50ms"))
    async def book(message: Message, transaction: Transaction) -> None:
        await transaction.execute(f'INSERT INTO "{site.schema}".effects VALUES ($1)', message.id)
        if message.id == "rejected":
            raise Reject("not like that")
        fails_first(message.id)

    @registry.handler(jobs, scope="jobs", key="id", kind="repeatable", retries=Retries(3, first="50ms"))
    async def index(message: Message) -> None:
        fails_first(message.id)

    site.produce(ledger, [message("booked"), message("rejected")])
    site.produce(jobs, [message("indexed")])
    async with site.worker(registry):
        await site.drained(ledger, jobs)
    assert ran == {"booked": 2, "indexed": 2}
    assert await site.states() == dict.fromkeys(("booked", "rejected", "indexed"), "completed")
    effects = [row["key"] for row in await site.fetch("SELECT key FROM oncebox.effects")]
    assert effects == ["booked"], "what was rolled back left nothing"


async def test_a_thread_that_ignores_its_timeout_counts_when_it_really_ends(site: Site, notices: list[str]) -> None:
    name, results = site.topic(2), site.topic(letters=False)
    ran, go = Counter[str](), threading.Event()

    def work(message: Message) -> str:
        ran[message.id] += 1
        if message.id == "slow":
            go.wait(20)
        return f"{message.id} done"

    site.produce(name, [Sent(message("slow"), partition=p) for p in (0, 1)])
    async with site.worker(registry_of(name, work, timeout="200ms", result_topic=results)):
        await eventually(lambda: ran["slow"], 20)
        site.produce(name, [message("quick")])
        await eventually(lambda: ran["quick"] and "handler_timed_out" in notices, 20, "nobody asked it to stop")
        await site.fetch("SELECT pg_sleep(0.3)")
        assert (await site.states())["slow"] == "in_progress"
        go.set()
        await site.drained(name)
    assert ran == {"slow": 1, "quick": 1}
    assert await site.states() == {"slow": "completed", "quick": "completed"}
    assert Counter(seen.value for seen in site.read(results)) == {b"slow done": 2, b"quick done": 1}


async def test_a_wait_longer_than_hold_is_parked_and_its_later_run_says_so(site: Site) -> None:
    name = site.topic()
    ran: list[tuple[str, bool]] = []

    async def work(message: Message, context: Context, effect: Effect) -> None:
        ran.append((message.id, context.out_of_order))
        if message.id == "late" and len(ran) == 1:
            raise NotExecuted("in a while")

    site.produce(name, [Sent(message("late"), key=b"a"), Sent(message("next"), key=b"a")])
    async with site.worker(registry_of(name, work, retries=Retries(3, first="3s", most="3s")), ONCEBOX_HOLD="300ms"):
        await site.drained(name, within=10)
        (parked,) = await site.fetch("SELECT reason, value FROM oncebox.parked")
        assert (parked["reason"], parked["value"]) == ("retry", message("late"))
        await eventually(lambda: len(ran) == 3, 20, "the parked record did not come back")
        await site.quiet()
    assert ran == [("late", False), ("next", False), ("late", True)]
    assert await site.states() == {"late": "completed", "next": "completed"}
    assert await site.count("parked") == 0


async def test_two_records_of_one_key_share_its_retries(site: Site) -> None:
    name = site.topic()
    ran: Counter[str] = Counter()

    async def work(message: Message, effect: Effect) -> None:
        ran[message.id] += 1
        if ran[message.id] == 1:
            raise NotExecuted("not yet")

    site.produce(name, [message(f"k{n % 5}") for n in range(20)])
    async with site.worker(registry_of(name, work)):
        await site.drained(name, within=10)
    assert ran == {f"k{n}": 2 for n in range(5)}


async def test_waiting_for_a_free_connection_is_not_the_handlers_time(site: Site) -> None:
    name, ran = site.topic(), Counter[str]()

    async def book(message: Message, transaction: Transaction) -> None:
        ran[message.id] += 1
        await asyncio.sleep(0.2)  # eight of these take longer than the timeout of one

    site.produce(name, [message(f"k{n}") for n in range(8)])
    changes = {"kind": "transactional", "timeout": "500ms"}
    async with site.worker(registry_of(name, book, **changes), ONCEBOX_TRANSACTION_CONNECTIONS="1"):
        await site.drained(name)
    assert ran == {f"k{n}": 1 for n in range(8)}
    rows = await site.fetch("SELECT attempts FROM oncebox.entries WHERE attempts > 0")
    assert not rows, "no attempt was lost to the wait"
