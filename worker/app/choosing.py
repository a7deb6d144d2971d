"""What an operator asked a replay for, as it is stored with its job, and which records that chooses."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from worker.engine.classify import Read, read_records
from worker.engine.intake import Intake
from worker.errors import UsageError
from worker.rules.record import Record
from worker.rules.registry import Registry
from worker.rules.windows import Window, window_from
from worker.settings import Settings


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a replay."""

    topic: str
    window: Window
    handler: str | None = None
    tenants: tuple[str, ...] = ()
    exclude_tenants: tuple[str, ...] = ()
    rate: float | None = None
    concurrency: int | None = None
    results: bool = True
    run_beyond_ttl: bool = False
    reason: str | None = None
    max_failures: int | None = None
    partial: bool = False

    def stored(self) -> dict[str, Any]:
        """As it is kept in the job's row."""
        plain = asdict(self)
        return {**plain.pop("window"), **plain}

    @classmethod
    def restored(cls, topic: str, stored: Mapping[str, Any]) -> "Plan":
        names = {field.name for field in fields(cls)} - {"topic", "window"}
        given: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in stored.items() if n in names}
        return cls(topic=topic, window=window_from(stored), **given)


def find_handler(registry: Registry, name: str, topic: str | None = None) -> str:
    """The full name of the handler that is meant; by its operation alone when that is unmistakable."""
    every = [h for h in registry.handlers if topic is None or topic in h.topics]
    found = sorted({h.name for h in every if name in (h.name, h.operation)})
    if len(found) == 1:
        return found[0]
    known = ", ".join(sorted({h.name for h in every})) or "none"
    if found:
        raise UsageError(f"--handler {name} means several: {', '.join(found)}\n  write scope/operation")
    where = f" that reads {topic}" if topic is not None else ""
    raise UsageError(f"there is no handler {name}{where}\n  there is {known}")


def refuse_unread(registry: Registry, topic: str) -> None:
    """A replay of a topic that no handler reads would dead-letter all of it."""
    if not any(topic in handler.topics for handler in registry.handlers):
        known = ", ".join(sorted(registry.topics)) or "none"
        raise UsageError(f"no handler reads topic {topic}\n  the registry's handlers read {known}")


def chosen_by(plan: Plan, intake: Intake) -> Callable[[Record], bool] | None:
    """Which records a plan wants; None when it wants all of its window."""
    looks_inside = plan.handler is not None or plan.tenants or plan.exclude_tenants
    if not plan.window.timed and not looks_inside:
        return None
    admits = plan.window.admits
    if not looks_inside:
        return admits

    def choose(record: Record) -> bool:
        return admits(record) and wanted(plan, read_records(intake, (record,))[0])

    return choose


def wanted(plan: Plan, read: Read) -> bool:
    """Whether a plan wants a record, by its handler and tenant; one that has neither is wanted by no such plan."""
    if plan.handler is not None and (read.route is None or read.route.name != plan.handler):
        return False
    if not plan.tenants and not plan.exclude_tenants:
        return True
    if read.refused is not None:
        return False
    tenant = None if read.item.tenant is None else read.item.tenant.decode(errors="backslashreplace")
    return (not plan.tenants or tenant in plan.tenants) and tenant not in plan.exclude_tenants


def with_concurrency(settings: Settings, concurrency: int | None) -> Settings:
    """Settings for a process that runs so many handlers at once, and claims little ahead of them."""
    if concurrency is None:
        return settings
    in_flight = min(settings.engine.in_flight, max(2 * concurrency, 16))
    engine = settings.engine.model_copy(update={"concurrency": concurrency, "in_flight": in_flight})
    return settings.model_copy(update={"engine": engine})
