"""Rare things are counted where they are told: which event adds how much to which counter.

The engine, the ledger and the clients know nothing of counters: they tell what they decided, by name and with fields.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from worker.observe.table import BY_NAME

Notice = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Count:
    """What an event adds: 1 or the value of a field, to a counter labelled with fixed words and with fields."""

    metric: str
    amount: str | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)  # labels whose fields have other names


def _commit(reason: str) -> tuple[Count]:
    return (Count("oncebox_commit_failures_total", fixed={"reason": reason}),)


def _reconcile(result: str) -> Count:
    return Count("oncebox_reconciles_total", fixed={"result": result})


EVENTS: Final[Mapping[str, tuple[Count, ...]]] = {
    # fields: entries
    "claim_retaken": (Count("oncebox_claims_retaken_total", "entries"),),
    # claims
    "strays_released": (Count("oncebox_claims_strayed_total", "claims"),),
    # failed_retryable, unknown
    "claims_settled": (
        Count("oncebox_claims_settled_total", "failed_retryable", {"state": "failed_retryable"}),
        Count("oncebox_claims_settled_total", "unknown", {"state": "unknown"}),
    ),
    # accepted, refused
    "late_results": (
        Count("oncebox_late_results_total", "accepted", {"result": "accepted"}),
        Count("oncebox_late_results_total", "refused", {"result": "refused"}),
    ),
    # topic, operation, reason, count
    "dead_lettered": (Count("oncebox_dead_letters_total", "count"),),
    # topic
    "letter_not_written": (Count("oncebox_publish_errors_total"),),
    # operation
    "handler_timed_out": (Count("oncebox_handler_timeouts_total"),),
    "attempt_failed": (Count("oncebox_attempts_failed_total"),),
    "entry_in_doubt": (Count("oncebox_doubts_total"),),
    "circuit_opened": (Count("oncebox_circuit_opened_total"),),
    "partitions_assigned": (Count("oncebox_rebalances_total"),),
    "commit_refused": _commit("refused"),
    "commit_failed": _commit("failed"),
    "commit_timed_out": _commit("timed_out"),
    "session_ended": (Count("oncebox_sessions_ended_total"),),
    "session_replaced": (Count("oncebox_sessions_replaced_total"),),
    # duty
    "janitor_delayed": (Count("oncebox_duty_delays_total"),),
    "reconciling_delayed": (Count("oncebox_duty_delays_total", fixed={"duty": "reconcile"}),),
    "prune_delayed": (Count("oncebox_duty_delays_total", fixed={"duty": "prune"}),),
    # operation, result (unknown, failed; what settles the doubt has an event of its own)
    "doubt_probed": (_reconcile("scheduled"), Count("oncebox_reconciles_total")),
    # operation, verdict (executed, not_executed)
    "doubt_settled": (Count("oncebox_reconciles_total", named={"result": "verdict"}),),
    # operation
    "doubt_reported": (_reconcile("given_up"),),
    "doubt_without_record": (_reconcile("given_up"),),
    # operation, entries
    "entries_pruned": (Count("oncebox_pruned_entries_total", "entries"),),
}


class Counters:
    """The counters that events feed. Events come from the loop and from the session's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[tuple[str, tuple[str, ...]], float] = {}
        for counts in EVENTS.values():
            for count in counts:
                if set(BY_NAME[count.metric].labels) == set(count.fixed):
                    self._values[count.metric, _labels(count, {})] = 0

    def expect(self, **known: Collection[str]) -> None:
        """Begin at zero for the known values of a label: a counter that appears with its first event shows no rise."""
        for count in (count for counts in EVENTS.values() for count in counts):
            left = set(BY_NAME[count.metric].labels) - set(count.fixed)
            if len(left) == 1:
                (label,) = left
                for value in known.get(label, ()):
                    self._values.setdefault((count.metric, _labels(count, {label: value})), 0)

    def listening(self, notice: Notice) -> Notice:
        """A channel that counts what it passes on."""

        def told(event: str, **fields: Any) -> None:
            if event in EVENTS:
                self.add(event, fields)
            notice(event, **fields)

        return told

    def add(self, event: str, fields: Mapping[str, Any]) -> None:
        with self._lock:
            for count in EVENTS[event]:
                amount = 1 if count.amount is None else fields.get(count.amount, 0)
                if amount:
                    place = (count.metric, _labels(count, fields))
                    self._values[place] = self._values.get(place, 0) + amount

    def samples(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        with self._lock:
            values = list(self._values.items())
        for (metric, labels), value in values:
            yield metric, labels, value


def _labels(count: Count, fields: Mapping[str, Any]) -> tuple[str, ...]:
    labels = BY_NAME[count.metric].labels
    return tuple(count.fixed.get(name) or str(fields.get(count.named.get(name, name), "none")) for name in labels)
