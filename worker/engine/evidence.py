"""Evidence from handlers: `context.settle` says what became of an entry of another operation."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from worker.engine.ports import Doubts, Notice
from worker.engine.routes import Route
from worker.errors import ConfigError
from worker.rules.claims import Kind
from worker.rules.context import Settlement
from worker.rules.doubts import Evidence, Ruling
from worker.rules.results import encode_as


class Settler:
    """Takes what handlers say to the ledger, about the operations of this process's registry."""

    def __init__(
        self,
        routes: Sequence[Route],
        doubts: Doubts,
        *,
        result_limit: int,
        clock: Callable[[], float],
        notice: Notice,
    ) -> None:
        self._routes = {(route.handler.scope.name, route.handler.operation): route for route in routes}
        self._doubts = doubts
        self._limit = result_limit
        self._clock = clock
        self._notice = notice

    async def __call__(self, said: Settlement) -> Ruling:
        """Let the word decide, if it may; mistakes are refused with advice, and then nothing was changed."""
        route = self._route(said)
        _refuse_mistakes(said, route)
        id_ = route.identity.entry_id(None if said.tenant is None else _bytes(said.tenant), _bytes(said.key))
        if said.says_executed:
            result = encode_as(route.handler.scope.results, said.executed, self._limit)
            evidence = Evidence(id_, "settle", result, said.fence)
        else:
            now = await self._doubts.now()
            # Measured after the answer: too long rather than too short, so that the word counts as older than it is.
            asked_at = now - timedelta(seconds=self._clock() - said.since)
            evidence = Evidence(id_, "settle", None, said.fence, asked_at)
        ruled = await self._doubts.rule(evidence)
        tell_ruling(self._notice, route.name, evidence, ruled.ruling)
        return ruled.ruling

    def _route(self, said: Settlement) -> Route:
        route = self._routes.get((said.scope, said.operation))
        if route is None:
            known = ", ".join(sorted(f"{scope}/{operation}" for scope, operation in self._routes))
            raise ConfigError(
                f"settle: no handler of this worker is {said.scope}/{said.operation}",
                advice=f"name scope and operation of one of these, or register it here, too: {known}",
            )
        return route


def tell_ruling(notice: Notice, operation: str, evidence: Evidence, ruling: Ruling) -> None:
    """Say what a word about an entry did."""
    if ruling is Ruling.SETTLED:
        notice("doubt_settled", operation=operation, by=evidence.by, verdict=evidence.word)
    elif ruling is Ruling.REFUSED and evidence.result is not None:
        notice("verdict_refused", operation=operation, fence=evidence.fence, alert="possible double effect")


def _refuse_mistakes(said: Settlement, route: Route) -> None:
    if said.says_executed == said.not_executed:
        raise ConfigError(
            "settle: exactly one of executed and not_executed must be given",
            advice="write settle(…, executed=result), or settle(…, not_executed=True, fence=N)",
        )
    if said.not_executed and said.fence is None:
        raise ConfigError(
            "settle: not_executed names no fence",
            advice="name the claim it is about, fence=N: an older word must not stop a newer run",
        )
    handler = route.handler
    if handler.kind is not Kind.EXTERNAL:
        raise ConfigError(
            f"settle: {route.name} is {handler.kind.name.lower()}: it is never in doubt",
            advice='only kind="external" needs evidence',
        )
    if (handler.tenant is None) != (said.tenant is None):
        raise ConfigError(
            f"settle: {route.name} has {'no' if handler.tenant is None else 'a'} rule for the tenant",
            advice="give tenant=… exactly if the handler has such a rule: it is part of the identity",
        )


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
