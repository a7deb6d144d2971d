"""The engine: how much at once, how long, how often."""

from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from worker.settings.group import Group
from worker.settings.values import Duration, Items, Size, between

MIB = 1024 * 1024


class EngineSettings(Group):
    """What bounds the work of one worker."""

    handlers: Items = ()
    """Registries to run, as module or module:attribute; names on the command line replace them."""

    lease: Annotated[Duration, between("3s", "1h")] = timedelta(seconds=15)
    """Longer: a dead worker's entries stay claimed longer. Shorter: a brief Postgres outage stops handlers."""

    hold: Annotated[Duration, between("100ms", "10m")] = timedelta(seconds=30)
    """How long a record waits in line before it is parked. Longer: offsets stand still. Shorter: more parked rows."""

    drain: Annotated[Duration, between("0s", "30m")] = timedelta(seconds=25)
    """Time for handlers to end at a stop or rebalance. Longer: slower deploys. Shorter: more entries in doubt."""

    in_flight: Annotated[int, Field(ge=1, le=100_000)] = 512
    """Unfinished claims per worker, at most two per Kafka key ahead of their handlers. More: that many entries can be
    in doubt after a crash. Fewer: less concurrency."""

    in_flight_bytes: Annotated[Size, Field(ge=1024)] = 64 * MIB
    """Unfinished bytes per worker. More: more memory. Less: large records run one after another."""

    concurrency: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Handlers running at once, beside transactional ones: of these as many run as they have connections. Above
    in_flight it has no effect. More: more load on what they call. Fewer: slower."""

    claim_batch: Annotated[int, Field(ge=1, le=5000)] = 500
    """Most entries claimed by one statement. More: longer statements. Fewer: more round trips under load."""

    claims_in_flight: Annotated[int, Field(ge=1, le=16)] = 2
    """Claim statements under way at once. More: smaller batches. Fewer: a slow one holds the rest."""

    result_limit: Annotated[Size, Field(ge=0, le=64 * MIB)] = 256 * 1024
    """Largest stored result. More: a larger table and slower replays. Less: results are replaced by an error."""

    crash_cap: Annotated[int, Field(ge=1, le=100)] = 3
    """Worker deaths before a record is dead-lettered. More: a poisonous one kills more. Fewer: bad luck will do."""

    settle_every: Annotated[Duration, between("100ms", "10m")] = timedelta(seconds=5)
    """Longer: a dead worker's entries wait longer. Shorter: more small queries."""

    prune_every: Annotated[Duration, between("1s", "1d")] = timedelta(minutes=15)
    """Longer: expired entries stay longer. Shorter: more small queries."""

    sample_every: Annotated[Duration, between("1s", "1h")] = timedelta(seconds=60)
    """Longer: log time is coarser and pruning later. Shorter: more rows."""

    keep_history: Annotated[Duration, between("1h", "3650d")] = timedelta(days=90)
    """How long probes, verdicts and refused results are kept. Longer: more rows. Shorter: less to look back on."""

    keep_sessions: Annotated[Duration, between("1h", "3650d")] = timedelta(days=7)
    """How long ended sessions are kept. Longer: more rows. Shorter: fewer traces of workers that died."""

    keep_audit: Annotated[Duration, between("1d", "3650d")] = timedelta(days=730)
    """How long acts of operators are kept. Longer: more rows. Shorter: nobody knows any more who did what."""

    overdue_limit: Annotated[int, Field(ge=1, le=10_000)] = 32
    """Handlers that ignored their timeout before the worker restarts. More: they fill it. Fewer: more restarts."""

    grace: Annotated[Duration, between("1s", "30d")] = timedelta(minutes=10)
    """Wait of an entry in doubt without a reconciler. Longer: dead letters later. Shorter: late results miss it."""


def _long_enough(value: SecretStr) -> SecretStr:
    if len(value.get_secret_value()) < 16:
        raise ValueError("too short to keep keys private: at least 16 characters")
    return value


class ScopeSettings(Group):
    """What an operator may change about a scope that the code defines."""

    ttl: Annotated[Duration, between("1s", "3650d")] | None = None
    """How long entries are remembered. Longer: a larger table. Shorter: later duplicates are refused, not replayed."""

    audit_ttl: Annotated[Duration, between("1s", "3650d")] | None = None
    """How long a pruned entry stays readable in the history. Longer: more rows."""

    secret: Annotated[SecretStr, AfterValidator(_long_enough)] | None = None
    """The key of a scope with private keys, 16 characters or more. A new one is a declared change of its operations."""
