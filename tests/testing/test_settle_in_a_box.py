"""context.settle: a handler of another topic knows what became of an entry."""

from typing import Any

import pytest

from worker import Context, Effect, Reconcile, Registry, Scope, Verdict
from worker.errors import ConfigError
from worker.testing import Box


class Desk:
    """Two handlers: one that charges, one that hears from the provider; and what they saw."""

    def __init__(self, *, private: bool = False) -> None:
        self.registry = Registry()
        self.registry.add(Scope("shop", ttl="7d", private_keys=private))
        self.answers: list[str] = []
        self.ran: list[str] = []
        self.asked = 0
        self.heard: list[BaseException] = []
        self._register()

    def _register(self) -> None:
        how: dict[str, Any] = {"scope": "shop", "key": "id", "timeout": "2s", "effect_horizon": "5s"}
        reconcile = Reconcile(first="1s", most="1s", until="1h")

        @self.registry.handler("charges", **how, tenant="shop", reconcile=reconcile)
        async def charge(message: dict[str, Any], context: Context, effect: Effect) -> str:
            async with effect:
                self.ran.append(context.key)
                if message.get("breaks") and len(self.ran) == 1:
                    raise ConnectionError
            return "charged"

        @charge.reconciler
        async def look_up(context: Context) -> Verdict:
            self.asked += 1
            return Verdict.unknown()

        @self.registry.handler("events", scope="webhooks", key="event", kind="repeatable", retries=1)
        async def hear(message: dict[str, Any], context: Context) -> None:
            try:
                self.answers.append(await context.settle(**{"scope": "shop", "operation": "charge", **message["says"]}))
            except ConfigError as error:
                self.heard.append(error)

        self.charge, self.hear, self._events = charge, hear, 0

    async def say(self, box: Box, **says: Any) -> str:
        self._events += 1
        before = len(self.answers)
        await box.deliver(self.hear, {"event": f"e{self._events}", "says": {"key": "k", "tenant": "s", **says}})
        return self.answers[-1] if len(self.answers) > before else "raised"


@pytest.mark.parametrize("private", [False, True])
async def test_a_providers_event_settles_an_entry_in_doubt(private: bool) -> None:
    desk = Desk(private=private)
    async with Box(desk.registry) as box:
        assert await desk.say(box, executed={"receipt": 7}) == "absent"
        assert box.entry(desk.charge, key="k", tenant="s") is None, "nothing was changed"
        await box.deliver(desk.charge, {"id": "k", "shop": "s", "breaks": True})
        assert await desk.say(box, executed={"receipt": 7}) == "settled"
        assert await desk.say(box, executed={"receipt": 8}) == "completed"
        entry = box.entry(desk.charge, key="k", tenant="s")
        assert entry is not None
        assert (entry.state, entry.result) == ("completed", {"receipt": 7})
        assert await desk.say(box, tenant="another", executed=None) == "absent"
        await box.advance("10s")
        assert (desk.ran.count("(private)" if private else "k"), box.parked) == (1, [])


async def test_not_executed_obeys_the_quiet_time_and_names_its_claim() -> None:
    desk = Desk()
    async with Box(desk.registry) as box:
        first = await box.deliver(desk.charge, {"id": "k", "shop": "s", "breaks": True})
        assert first.fence is not None
        assert await desk.say(box, not_executed=True, fence=first.fence) == "early"
        await box.advance("30s")
        assert await desk.say(box, not_executed=True, fence=first.fence + 1) == "refused"
        assert await desk.say(box, not_executed=True, fence=first.fence) == "settled"
        await box.advance("5s")
        entry = box.entry(desk.charge, key="k", tenant="s")
        assert entry is not None
        assert (entry.state, desk.ran) == ("completed", ["k", "k"])


async def test_evidence_that_comes_while_the_entry_is_in_progress_is_applied_before_anyone_is_asked() -> None:
    desk = Desk()
    async with Box(desk.registry) as box:
        await box.deliver(desk.charge, {"id": "k", "shop": "s"}, crash="after_effect")
        entry = box.tables.entries[next(iter(box.tables.doubts))]
        entry.state = entry.state.__class__.IN_PROGRESS  # as before its worker was known to be dead
        [doubt] = box.tables.doubts.values()
        box.tables.doubts.clear()
        await box.restart()
        assert await desk.say(box, executed="by event") == "kept"
        entry.state = entry.state.__class__.UNKNOWN
        box.tables.doubts[entry.id] = doubt
        await box.advance("5s")
        seen = box.entry(desk.charge, key="k", tenant="s")
        assert seen is not None
        assert (seen.state, seen.result, desk.asked) == ("completed", "by event", 0)


async def test_mistakes_are_refused_with_advice() -> None:
    desk = Desk()
    mistakes: dict[str, dict[str, Any]] = {
        "exactly one": {},
        "exactly one of": {"executed": 1, "not_executed": True, "fence": 1},
        "names no fence": {"not_executed": True},
        "no handler of this worker is shop/refund": {"operation": "refund", "executed": 1},
        "never in doubt": {"scope": "webhooks", "operation": "hear", "tenant": None, "executed": 1},
        "rule for the tenant": {"tenant": None, "executed": 1},
    }
    async with Box(desk.registry) as box:
        for expected, words in mistakes.items():
            assert await desk.say(box, **words) == "raised"
            error = desk.heard[-1]
            assert isinstance(error, ConfigError)
            assert expected in error.problem
            assert error.advice
