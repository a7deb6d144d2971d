"""Reconciling: entries in doubt are asked about until someone knows, and reported when nobody does in time.

Runs in every worker, for the operations of its own registry. Doubts are taken from the ledger, each by one process for
a while; two workers ask different ones. An answer that came while its worker died is lost, and asked for again.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from worker.engine.evidence import tell_ruling
from worker.engine.probing import Prober, Reconciler
from worker.engine.reporting import Means, Reporter
from worker.engine.routes import Route
from worker.engine.tasks import Tasks
from worker.errors import ServiceUnavailable
from worker.rules.context import Reconcile
from worker.rules.doubts import Doubt, Evidence, Ruling
from worker.rules.durations import duration
from worker.rules.results import encode_as

# Probes of one operation at the same time.
_SLOTS = 16
# How long past the timeout of its probe a doubt stays with the process that took it.
_MARGIN = 6.0
_LOOK_AGAIN = 0.25


@dataclass(slots=True, eq=False)
class Desk:
    """One operation: whom to ask, how often, and how many are being asked."""

    route: Route
    reconciler: Reconciler | None
    first: float
    most: float
    until: float
    probes: int
    rate: float
    prober: Prober
    asking: int = 0
    allowed: float = 0.0
    counted_at: float = 0.0

    def room(self, now: float) -> int:
        """How many may be taken now: free slots, and what the rate allows."""
        slots = _SLOTS - self.asking - len(self.prober.stuck)
        if self.reconciler is None:
            return slots
        most = max(1.0, self.rate)
        self.allowed = min(most, self.allowed + (now - self.counted_at) * self.rate) if self.counted_at else most
        self.counted_at = now
        return min(slots, int(self.allowed))

    def wait_after(self, doubt: Doubt) -> float:
        """How long to wait after the probe that was just made: doubling, never past the deadline."""
        wait = min(self.most, self.first * 2.0 ** min(doubt.probes + 1, 30))
        left = self.until - doubt.age
        # Past the deadline it is reported in a moment; should that fail, it comes up again.
        return min(wait, left) if left > 0 else _MARGIN

    def gives_up(self, doubt: Doubt) -> bool:
        """Whether the probe that was just made was the last.

        While `not_executed` is not believed yet, only the deadline ends the asking: that answer may be waited for.
        """
        return doubt.age >= self.until or (doubt.probes + 1 >= self.probes and doubt.quiet_in <= 0)


class Reconciling:
    """The duty that asks reconcilers."""

    def __init__(
        self, means: Means, tasks: Tasks, *, grace: float, result_limit: int, clock: Callable[[], float]
    ) -> None:
        self._doubts = means.doubts
        self._reporter = Reporter(means)
        self._tasks = tasks
        self._limit = result_limit
        self._clock = clock
        self._notice = means.notice
        self._desks = _desks(means.routes, tasks, grace)
        self._asking: set[asyncio.Task[None]] = set()

    async def once(self) -> None:
        """Ask about everything that is due, until nothing is and every answer is written down.

        A reconciler that takes its time delays nobody else: the others are looked for meanwhile.
        """
        while True:
            await self._start()
            if not self._asking:
                return
            await asyncio.wait(self._asking, timeout=_LOOK_AGAIN, return_when=asyncio.FIRST_COMPLETED)

    async def _start(self) -> None:
        now = self._clock()
        free = {operation: room for operation, desk in self._desks.items() if (room := desk.room(now)) > 0}
        for operation in await self._doubts.due(list(free)) if free else ():
            desk = self._desks[operation]
            for doubt in await self._doubts.take(operation, free[operation], desk.route.timeout + _MARGIN):
                desk.asking += 1
                task = self._tasks.spawn(self._look_after(desk, doubt), "doubt")
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)

    async def _look_after(self, desk: Desk, doubt: Doubt) -> None:
        try:
            await self._decide(desk, doubt)
        except ServiceUnavailable as error:
            # Taken for a while: it comes up again by itself.
            self._notice("reconciling_delayed", operation=desk.route.name, error=str(error), next="trying again")
        finally:
            desk.asking -= 1

    async def _decide(self, desk: Desk, doubt: Doubt) -> None:
        if doubt.evidence is not None:
            await self._rule(
                desk, Evidence(doubt.id, "settle", doubt.evidence, doubt.fence, note="said while it was in progress")
            )
        elif doubt.age < desk.first:
            await self._doubts.put_off(doubt, desk.first - doubt.age)
        elif desk.reconciler is None or (not await self._probe(desk, desk.reconciler, doubt) and desk.gives_up(doubt)):
            # Never without having asked once more, however long nobody could ask.
            await self._reporter.report(desk.route, doubt)

    async def _probe(self, desk: Desk, reconciler: Reconciler, doubt: Doubt) -> bool:
        """Ask, and write down what was said; whether the doubt is over."""
        desk.allowed -= 1
        context = await self._reporter.context(desk.route, doubt)
        probe = await desk.prober.ask(reconciler, context, desk.route.timeout)
        wait = desk.wait_after(doubt)
        match probe.verdict.word:
            case "executed":
                result = encode_as(desk.route.handler.scope.results, probe.verdict.result, self._limit)
                await self._rule(desk, Evidence(doubt.id, "probe", result, doubt.fence))
                return True
            case "not_executed" if doubt.quiet_in <= 0:
                evidence = Evidence(doubt.id, "probe", None, doubt.fence, asked_at=doubt.taken_at)
                if await self._rule(desk, evidence) is not Ruling.EARLY:
                    return True
                await self._doubts.put_off(doubt, wait)
            case "not_executed":
                said = "not_executed, before the quiet time was over: still unknown"
                await self._doubts.note(doubt, said, again_in=min(wait, doubt.quiet_in))
            case _:
                await self._doubts.note(doubt, probe.said, again_in=wait)
        came_of_it = "unknown" if probe.error is None else "failed"
        self._notice("doubt_probed", operation=desk.route.name, result=came_of_it, said=probe.said, next="asked again")
        return False

    async def _rule(self, desk: Desk, evidence: Evidence) -> Ruling:
        ruled = await self._doubts.rule(evidence)
        tell_ruling(self._notice, desk.route.name, evidence, ruled.ruling)
        return ruled.ruling


def _desks(routes: Sequence[Route], tasks: Tasks, grace: float) -> dict[int, Desk]:
    """One desk per operation; of several handlers of one, the one with a reconciler is asked."""
    desks: dict[int, Desk] = {}
    for route in sorted(routes, key=lambda route: route.handler.look_up is None):
        if route.plan.operation in desks:
            continue
        how = route.handler.reconcile
        known = route.handler.look_up is not None
        first, most, until = (_seconds(how, name) for name in ("first", "most", "until"))
        desks[route.plan.operation] = Desk(
            route=route,
            reconciler=route.handler.look_up,
            first=first if known else grace,
            most=most,
            until=until if known else grace,
            probes=how.probes,
            rate=how.per_second,
            prober=Prober(tasks),
        )
    return desks


def _seconds(how: Reconcile, name: str) -> float:
    return duration(getattr(how, name)).total_seconds()
