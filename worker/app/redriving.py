"""Redrives: dead letters once more through the claim path, from the bytes they were; no source topic is written."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from worker.app.carrying import AT_ONCE, Carrier
from worker.app.choosing import with_concurrency
from worker.app.forecast import Glass, open_glass
from worker.app.forgetting import may_be_forgotten, remember
from worker.app.jobbing import Finish, Show, exit_code
from worker.app.opening import open_engine
from worker.engine.classify import Classifier, Read, read_records
from worker.engine.items import Item
from worker.engine.republishing import Republishing
from worker.engine.routes import Route
from worker.kafka.reader import Reader
from worker.ledger.audit import Act
from worker.ledger.jobs import NewJob, Runner
from worker.ledger.letters import Handled, Letters, Redrive
from worker.observe.logs import notice
from worker.rules.dialects import Letter, read_letter
from worker.rules.lanes import Lane
from worker.rules.registry import Registry
from worker.rules.tally import RUN, Tally
from worker.rules.windows import Span, Window
from worker.rules.writes import Parked, Parking
from worker.settings import Settings

# Letters of these classes stay where they are.
REFUSED: Final = frozenset({"beyond_ttl", "capped", "cut", "no_handler"})


@dataclass(frozen=True, slots=True)
class Choice:
    """Which letters are meant."""

    window: Window = field(default_factory=Window)
    reasons: tuple[str, ...] = ()
    handler: str | None = None  # scope/operation, or the operation alone
    key: bytes | None = None
    places: tuple[tuple[int, int], ...] = ()
    handled: bool = False  # also those that were redriven or discarded

    def admits(self, letter: Letter) -> bool:
        record = letter.record
        if self.places and (record.partition, record.offset) not in self.places:
            return False
        if not self.window.admits(record):
            return False
        if self.reasons and letter.reason not in self.reasons:
            return False
        if self.handler is not None and self.handler not in (letter.handler, letter.operation):
            return False
        return self.key is None or self.key in (letter.key, record.key)


@dataclass(frozen=True, slots=True)
class Terms:
    """How letters are redriven."""

    actor: str
    reason: str
    cap: int = 5
    rate: float | None = None
    concurrency: int | None = None
    run_beyond_ttl: bool = False
    handler: str | None = None  # for letters that do not say whose they are


@dataclass(frozen=True, slots=True)
class Judged:
    """A letter, its record as the intake sees it, and what would become of it."""

    letter: Letter
    read: Read
    class_: str


def mark(letter: Letter) -> Handled:
    record = letter.record
    return (record.partition, record.offset, record.timestamp)


async def find_letters(
    reader: Reader, spans: Sequence[Span], choice: Choice, handled: Mapping[Handled, str]
) -> AsyncIterator[list[Letter]]:
    """Letters that are meant, in batches, as they lie; reading again gives the same ones."""
    reader.begin(spans)
    async for _, records, _ in reader.everything(most=AT_ONCE):
        letters = [read_letter(record) for record in records]
        yield [x for x in letters if choice.admits(x) and (choice.handled or mark(x) not in handled)]


class Judge:
    """Says what a redrive of letters would do."""

    def __init__(self, glass: Glass, terms: Terms) -> None:
        self._terms = terms
        self._routes = glass.routes
        self._intake = glass.intake
        self._looking = glass.looking
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._horizons: dict[int, float | None] = {}
        self._classifier = Classifier(
            glass.looking.look_at, self._may_be_forgotten, crash_cap=glass.settings.engine.crash_cap, resets=True
        )

    async def judge(self, letters: Sequence[Letter]) -> list[Judged]:
        reads = [self._read(letter) for letter in letters]
        await self._learn(reads)
        classes = await self._classifier.classify(reads)
        return [
            Judged(letter, read, self._refusal(letter, read) or class_)
            for letter, read, class_ in zip(letters, reads, classes, strict=True)
        ]

    def _refusal(self, letter: Letter, read: Read) -> str | None:
        if read.route is None:
            return "no_handler"
        if letter.cut:
            return "cut"
        return "capped" if letter.redrives >= self._terms.cap else None

    def _read(self, letter: Letter) -> Read:
        record = letter.restored()
        return read_records(self._intake, [record], self._route_of(record.topic, letter))[0]

    def _route_of(self, topic: str, letter: Letter) -> Route | None:
        """The handler of a letter whose topic none of ours reads: the one it names, or the one it was given."""
        if any(topic in route.handler.topics for route in self._routes):
            return None
        names = (letter.handler, self._terms.handler)
        return next((r for r in self._routes if r.name in names or r.handler.operation in names), None)

    async def _learn(self, reads: Sequence[Read]) -> None:
        for read in reads:
            route, topic = read.route, read.item.record.topic
            if route is None:
                continue
            operation, partition = route.plan.operation, read.item.record.partition
            if topic in route.handler.topics:
                if (topic, partition) not in self._lanes:
                    self._lanes[topic, partition] = lane = Lane(topic, partition, 0)
                    await remember(self._looking, topic, self._routes, [lane])
            elif operation not in self._horizons:
                horizon = await self._looking.horizon(operation)
                self._horizons[operation] = None if horizon is None else horizon.timestamp()

    def _may_be_forgotten(self, item: Item) -> bool:
        """By the position it came from; without one, by its time."""
        if self._terms.run_beyond_ttl:
            return False
        record, plan = item.record, item.plan
        if record.topic in item.route.handler.topics:
            return may_be_forgotten(self._lanes[record.topic, record.partition], item)
        horizon = self._horizons.get(plan.operation)
        return horizon is not None and record.timestamp / 1000 + plan.ttl <= horizon


@dataclass(frozen=True, slots=True)
class Errand:
    """One redrive: of these letters, on these terms. The spans are fixed, so that looking and acting see the same."""

    settings: Settings
    registry: Registry
    reader: Reader
    spans: Sequence[Span]
    choice: Choice
    terms: Terms


async def forecast_redrive(errand: Errand) -> dict[str, Any]:
    """What a redrive would do: classes as of a dry run, and those that are refused and stay."""
    reader, spans, choice, terms = errand.reader, errand.spans, errand.choice, errand.terms
    tally = Tally()
    async with open_glass(errand.settings, errand.registry) as glass:
        judge = Judge(glass, terms)
        handled = await Letters(glass.line, glass.queries, reader.topic).handled()
        async for letters in find_letters(reader, spans, choice, handled):
            for judged in await judge.judge(letters):
                route = judged.read.route
                place = f"{reader.topic}/{judged.letter.place}"
                tally.add(judged.class_, None if route is None else route.name, judged.read.tenant, place)
    estimate = None if terms.rate is None else round(tally.classes[RUN] / terms.rate, 1)
    about = {"rate": terms.rate, "estimate_seconds": estimate}
    return {"dry_run": True, "topic": reader.topic, **tally.as_json(), **about}


async def redrive(errand: Errand, *, total: int, show: Show, stop: asyncio.Event) -> int:
    """Redrive letters; the exit code. Each is parked, marked and audited in one transaction, then brought."""
    settings, registry, reader = errand.settings, errand.registry, errand.reader
    choice, terms = errand.choice, errand.terms
    written = Tally()
    plan = {"reasons": choice.reasons, "handler": choice.handler, "rate": terms.rate, "cap": terms.cap}
    new = NewJob("redrive", reader.topic, plan, terms.actor, [Span(0, 0, total)])
    async with (
        open_glass(settings, registry) as glass,
        open_engine(
            with_concurrency(settings, terms.concurrency),
            registry,
            notice,
            role="redrive",
            publishing=lambda publisher: Republishing(publisher, results=True, letters=written),
        ) as engine,
    ):
        async with engine.ledger.line() as line:
            runner = await Runner.create(line, engine.ledger.queries, new, session=engine.ledger.session.id)
        carrier = Carrier(engine, runner, show, written, terms.rate)
        letters = Letters(glass.line, glass.queries, reader.topic)
        judge = Judge(Glass(settings, engine.routes, engine.intake, glass.looking, glass.line, glass.queries), terms)
        show.begin(runner.job, reader.topic, total)
        finish = Finish("failed", "interrupted")

        async def feed() -> None:
            async for found in find_letters(reader, errand.spans, choice, await letters.handled()):
                await _carry(carrier, letters, await judge.judge(found), terms, total)

        try:
            finish = await carrier.run(feed, stop)
        except Exception as error:
            finish = Finish("failed", str(error))
            raise
        finally:
            report = {**carrier.report(finish, reader.topic, total), "kind": "redrive"}
            async with engine.ledger.line() as line:
                await runner.end(line, finish.state, report, error=finish.why)
            show.end(report)
    return exit_code(finish.state, report)


async def _carry(carrier: Carrier, letters: Letters, found: Sequence[Judged], terms: Terms, total: int) -> None:
    """Redrive what is not refused; with a rate one that would run waits for its turn before anything is written."""
    batch: list[Judged] = []

    async def bring() -> None:
        if not batch:
            return
        await carrier.room()
        redrives = [_redrive(judged, letters.topic, terms, carrier.due) for judged in batch]
        marked = await letters.redrive(redrives, carrier.engine.ledger.parking, job=carrier.runner.job)
        mine = [r.parking for r in redrives if r.letter in marked]
        carrier.bring([Parked(p.place, p.operation, p.reason, p.record) for p in mine])
        batch.clear()

    for judged in found:
        if judged.class_ in REFUSED:
            carrier.extra["refused"] += 1
            carrier.refused.add(judged.class_, None, judged.read.tenant, f"{letters.topic}/{judged.letter.place}")
            continue
        if judged.class_ == RUN and carrier.rate is not None:
            await bring()
            await carrier.turn()
        batch.append(judged)
    await bring()
    carrier.position = min(total, carrier.position + len(found))


def _redrive(judged: Judged, topic: str, terms: Terms, due: float) -> Redrive:
    letter, item = judged.letter, judged.read.item
    assert judged.read.route is not None
    subject = f"{topic}/{letter.place}"
    act = Act(terms.actor, "redrive", subject, terms.reason, old=letter.reason, new="parked", detail=letter.source)
    known = judged.read.refused is None
    return Redrive(
        mark(letter),
        Parking(item.record, "redrive", None, judged.read.route.plan.operation, due),
        act,
        id=item.id if known else None,
        fingerprint=item.fingerprint if known else None,
    )
