"""Three workers on one ledger, in any order, with crashes and lost answers, against a naive model.

A trigger records every change of an entry, so that what no single step can see is checked as well: only the transitions
of the rules happen, fences rise for ever, and what is completed never changes. ONCEBOX_LEDGER_EXAMPLES=2000 runs long.
"""

import asyncio
import itertools
import os
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.ledger.offers import done, doubted, failed, id_of, offers, released
from tests.ledger.seats import Seat
from worker.ledger import claims as claims_module
from worker.ledger import finals as finals_module
from worker.ledger.migrate import migrate
from worker.ledger.queries import in_schema
from worker.rules.claims import TRANSITIONS, Kind, State, after_death
from worker.settings import DatabaseSettings

T = TypeVar("T")
EXAMPLES = int(os.environ.get("ONCEBOX_LEDGER_EXAMPLES", "30"))
# A short run that fails says how at once; a long one may take its time to find the shortest way to fail.
PHASES = (Phase.generate, Phase.shrink) if EXAMPLES > 100 else (Phase.generate,)
STEPS = 30
KINDS = (Kind.EXTERNAL, Kind.REPEATABLE, Kind.TRANSACTIONAL)
SEATS, CAP, CRASHES = 3, 20, 6

WATCH = """
CREATE TABLE oncebox.changes (
  n bigint GENERATED ALWAYS AS IDENTITY, id uuid, old_state int, new_state int, old_fence bigint, new_fence bigint,
  touched boolean);
CREATE FUNCTION oncebox.watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO oncebox.changes VALUES (DEFAULT, NEW.id, NULL, NEW.state, NULL, NEW.fence, true);
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO oncebox.changes VALUES (DEFAULT, OLD.id, OLD.state, NULL, OLD.fence, NULL, true);
  ELSE
    INSERT INTO oncebox.changes VALUES (DEFAULT, NEW.id, OLD.state, NEW.state, OLD.fence, NEW.fence,
      (OLD.result, OLD.attempts, OLD.crashes, OLD.fingerprint) IS DISTINCT FROM
      (NEW.result, NEW.attempts, NEW.crashes, NEW.fingerprint));
  END IF;
  RETURN NULL; END $$;
CREATE TRIGGER watch AFTER INSERT OR UPDATE OR DELETE ON oncebox.entries
  FOR EACH ROW EXECUTE FUNCTION oncebox.watch();
"""


@dataclass
class Entry:
    """What the model knows of a key."""

    kind: Kind
    state: State
    fence: int
    session: int
    attempts: int = 0
    crashes: int = 0
    stray: bool = False  # claimed by a call whose answer was lost

    @property
    def claimable(self) -> bool:
        return self.state is State.FAILED_RETRYABLE and self.attempts < CAP and self.crashes < CRASHES


class World:
    """One schema and its seats, shared by all examples: each has keys of its own."""

    def __init__(self, url: str, schema: str) -> None:
        self.runner = asyncio.Runner()
        self.schema = schema
        wanted = DatabaseSettings(url=url, schema_name=schema)
        self.runner.run(migrate(wanted))
        self.admin = self.runner.run(asyncpg.connect(url))
        self.runner.run(self.admin.execute(in_schema(WATCH, schema)))
        self.seats = [Seat(wanted, number) for number in range(SEATS)]
        self.examples = itertools.count()

    def fetch(self, text: str, *arguments: Any) -> list[asyncpg.Record]:
        return self.runner.run(self.admin.fetch(in_schema(text, self.schema), *arguments))

    def close(self) -> None:
        for seat in self.seats:
            self.runner.run(seat.line.close())
        self.runner.run(self.admin.close())
        self.runner.close()


a_seat = st.integers(0, SEATS - 1)
a_key = st.integers(0, len(KINDS) - 1)
any_one = st.integers(0, 99)  # of a list whose length only the run knows
a_loss = st.sampled_from([None, None, None, "answer", "request"])


def machine(world: World) -> type[RuleBasedStateMachine]:
    """The machine on this world."""

    class Workers(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            example = next(world.examples)
            self.keys = [f"{example} {number}" for number in range(len(KINDS))]
            self.rows: dict[str, Entry] = {}
            self.ended: set[int] = set()
            self.given: list[tuple[str, int]] = []
            for seat in world.seats:
                self.run(seat.sit_down())

        def run(self, call: Coroutine[Any, Any, T]) -> T:
            return world.runner.run(call)

        def grant(self, seat: Seat, key: str, fence: int) -> None:
            """A worker may run the key: nobody else may, and the fence is the highest so far."""
            assert all(fence > earlier for other, earlier in self.given if other == key)
            self.given.append((key, fence))
            seat.memory[key] = fence
            entry = self.rows[key]
            entry.state, entry.fence, entry.session, entry.stray = State.IN_PROGRESS, fence, seat.session.id, False

        @initialize()
        def begin(self) -> None:
            for who in range(SEATS):
                self.claim(who, {who % len(KINDS), (who + 1) % len(KINDS)}, None, False)

        @rule(who=a_seat, which=st.sets(a_key, min_size=1), loss=a_loss, look_first=st.booleans())
        def claim(self, who: int, which: set[int], loss: str | None, look_first: bool) -> None:
            seat = world.seats[who]
            keys = [self.keys[number] for number in which]
            offered = [offer for n in which for offer in offers(self.keys[n], kind=KINDS[n], cap=CAP)]
            seat.line.lose = loss
            claimed = self.run(seat.claims.claim(offered, look_first=look_first))
            alive = seat.session.id not in self.ended
            for number, key in zip(which, keys, strict=True):
                won = claimed.winner(id_of(key))
                entry = self.rows.get(key)
                mine = entry is not None and entry.stray and entry.fence in seat.fences.lost
                assert (won is not None) == (alive and (entry is None or mine)), key
                if won is not None:
                    self.rows.setdefault(key, Entry(KINDS[number], State.IN_PROGRESS, 0, 0))
                    self.grant(seat, key, won.fence)
                elif entry is not None:
                    assert claimed.rows[id_of(key)].fence == entry.fence

        @property
        def failed(self) -> list[str]:
            return [key for key, entry in self.rows.items() if entry.state is State.FAILED_RETRYABLE]

        @precondition(lambda self: self.failed)
        @rule(who=a_seat, one=any_one, loss=a_loss)
        def claim_again(self, who: int, one: int, loss: str | None) -> None:
            seat, key = world.seats[who], self.failed[one % len(self.failed)]
            entry = self.rows[key]
            allowed = entry.claimable and seat.session.id not in self.ended
            won = None
            for _ in range(2):
                seat.line.lose, loss = loss, None
                answer = self.run(seat.claims.claim_again(offers(key, kind=entry.kind, cap=CAP)))
                won = won or answer.get(id_of(key))
            if won is not None:
                assert allowed
                self.grant(seat, key, won.fence)
            elif allowed:
                self.notice_stray(key, entry, seat)

        def notice_stray(self, key: str, entry: Entry, seat: Seat) -> None:
            """The answer was lost: the claim may have been made all the same, and nobody knows."""
            [row] = world.fetch("SELECT state, fence FROM oncebox.entries WHERE id = $1", uuid(key))
            if row["state"] == State.IN_PROGRESS:
                assert row["fence"] in seat.fences.lost
                entry.state, entry.fence, entry.session, entry.stray = (
                    State.IN_PROGRESS,
                    row["fence"],
                    seat.session.id,
                    True,
                )

        @property
        def running(self) -> list[tuple[Seat, str]]:
            """Every claim that a living worker believes to have, rightly or not."""
            return [(seat, key) for seat in world.seats for key in sorted(seat.memory)]

        @precondition(lambda self: self.running)
        @rule(one=any_one, loss=a_loss)
        def complete(self, one: int, loss: str | None) -> None:
            seat, key = self.running[one % len(self.running)]
            seat.line.lose = loss
            self.store_result(seat, key, seat.memory.pop(key))

        @precondition(lambda self: self.given)
        @rule(who=a_seat, one=any_one)
        def bring_a_result_of_long_ago(self, who: int, one: int) -> None:
            key, fence = self.given[one % len(self.given)]
            for seat in world.seats:
                if seat.memory.get(key) == fence:
                    del seat.memory[key]
            self.store_result(world.seats[who], key, fence)

        def store_result(self, seat: Seat, key: str, fence: int) -> None:
            finished = [done(key, fence, str(fence).encode())]
            undecided = self.run(seat.finals.complete(finished))
            refused = self.run(seat.finals.complete_late(finished)) if undecided else set()
            entry = self.rows.get(key)
            assert bool(refused) == (entry is None or entry.fence != fence)
            if entry is not None and entry.fence == fence:
                entry.state = State.COMPLETED

        @precondition(lambda self: self.running)
        @rule(one=any_one, how=st.sampled_from(["fail", "fail", "release", "doubt"]), loss=a_loss)
        def end_without_result(self, one: int, how: str, loss: str | None) -> None:
            seat, key = self.running[one % len(self.running)]
            fence = seat.memory.pop(key)
            entry = self.rows.get(key)
            state = entry.state if entry is not None and entry.fence == fence else None
            seat.line.lose = loss
            if how == "fail":
                self.run(seat.finals.fail([failed(key, fence)]))
            elif how == "release" or KINDS[self.keys.index(key)] is not Kind.EXTERNAL:
                self.run(seat.finals.release([released(key, fence)]))
            else:
                self.run(seat.finals.doubt([doubted(key, fence)]))
            if entry is None or state is None:
                return
            if state is State.IN_PROGRESS:
                entry.attempts += how == "fail"
                doubtful = how == "doubt" and entry.kind is Kind.EXTERNAL
                entry.state = State.UNKNOWN if doubtful else State.FAILED_RETRYABLE
            elif state is State.UNKNOWN and how == "fail":
                entry.state = State.FAILED_RETRYABLE

        @precondition(lambda self: self.running)
        @rule(who=a_seat, by=a_seat)
        def end_session(self, who: int, by: int) -> None:
            session = world.seats[who].session.id
            world.fetch("UPDATE oncebox.sessions SET lease_until = clock_timestamp() - lease WHERE id = $1", session)
            ended = self.run(world.seats[by].settling.end_lapsed())
            able = world.seats[by].session.id not in self.ended and who != by
            assert (session in ended) == (able and session not in self.ended)
            self.ended.update(ended)
            renewed = world.fetch(world.seats[who].queries["renew"], session)
            assert bool(renewed) == (session not in self.ended)
            world.fetch(
                "UPDATE oncebox.sessions SET steady_since = clock_timestamp() - 2 * lease WHERE id = $1", session
            )

        @property
        def orphans(self) -> list[Entry]:
            return [e for e in self.rows.values() if e.state is State.IN_PROGRESS and e.session in self.ended]

        @precondition(lambda self: self.orphans)
        @rule(who=a_seat)
        def settle(self, who: int) -> None:
            self.run(world.seats[who].settling.settle())
            for entry in self.orphans:
                entry.state, entry.crashes, entry.stray = after_death(entry.kind), entry.crashes + 1, False

        @precondition(lambda self: any(seat.session.id in self.ended for seat in world.seats))
        @rule(who=a_seat)
        def carry_over(self, who: int) -> None:
            seat = world.seats[who]
            before = seat.session.id
            if before in self.ended:
                self.run(seat.carry_over())
                for entry in self.rows.values():
                    if entry.session == before:
                        entry.session = seat.session.id

        @precondition(lambda self: self.running)
        @rule(one=any_one)
        def crash(self, one: int) -> None:
            seat, _ = self.running[one % len(self.running)]
            before = seat.session.id
            self.run(seat.sit_down())
            self.ended.add(before)
            world.fetch("UPDATE oncebox.sessions SET ended_at = coalesce(ended_at, now()) WHERE id = $1", before)

        @precondition(lambda self: any(seat.fences.lost or seat.fences._finished for seat in world.seats))
        @rule(who=a_seat)
        def tidy_up(self, who: int) -> None:
            seat = world.seats[who]
            self.run(seat.finals.tidy())
            self.run(seat.release_strays())
            for entry in self.rows.values():
                if entry.stray and entry.session == seat.session.id:
                    entry.state, entry.stray = State.FAILED_RETRYABLE, False

        @precondition(lambda self: self.prunable)
        @rule(one=any_one)
        def prune(self, one: int) -> None:
            key = self.prunable[one % len(self.prunable)]
            world.fetch("DELETE FROM oncebox.entries WHERE id = $1", uuid(key))
            del self.rows[key]
            for seat in world.seats:
                seat.much_later()

        @property
        def prunable(self) -> list[str]:
            return [k for k, e in self.rows.items() if e.state in (State.COMPLETED, State.FAILED_RETRYABLE)]

        @invariant()
        def the_rows_are_as_the_model_says(self) -> None:
            found = world.fetch(
                "SELECT encode(key, 'escape') AS key, state, fence, attempts, crashes FROM oncebox.entries"
                " WHERE id = ANY($1::uuid[])",
                [uuid(key) for key in self.keys],
            )
            rows = {row["key"]: (row["state"], row["fence"], row["attempts"], row["crashes"]) for row in found}
            assert rows == {k: (e.state, e.fence, e.attempts, e.crashes) for k, e in self.rows.items()}

        @invariant()
        def whatever_is_in_progress_can_be_settled_one_day(self) -> None:
            stuck = world.fetch(
                "SELECT e.id FROM oncebox.entries e WHERE e.state = 1 AND NOT EXISTS (SELECT 1"
                " FROM oncebox.open_claims o JOIN oncebox.sessions s ON s.id = o.session"
                " WHERE o.fence = e.fence AND e.id = ANY(o.ids))"
            )
            assert stuck == []

        @invariant()
        def every_doubt_is_written_down(self) -> None:
            wrong = world.fetch(
                "SELECT 1 FROM (SELECT id, fence FROM oncebox.entries WHERE state = 4) e"
                " FULL JOIN oncebox.doubts d ON d.id = e.id AND d.fence = e.fence WHERE d.id IS NULL OR e.id IS NULL"
            )
            assert wrong == []

        def teardown(self) -> None:
            ids = [uuid(key) for key in self.keys]
            changes = world.fetch("SELECT * FROM oncebox.changes WHERE id = ANY($1::uuid[]) ORDER BY n", ids)
            highest: dict[Any, int] = {}
            for change in changes:
                step = tuple(None if state is None else State(state) for state in change[2:4])
                old, new = change["old_fence"], change["new_fence"]
                if step[0] is not step[1]:
                    assert step in TRANSITIONS, step
                if step[0] is State.COMPLETED and step[1] is not None:
                    assert step[1] is State.COMPLETED, "completed is left only by a prune"
                    assert not change["touched"], "completed is immutable"
                if new is not None and new != old:
                    assert step[1] is State.IN_PROGRESS, "only a claim brings a new fence"
                    assert new > highest.get(change["id"], 0), "fences rise"
                    highest[change["id"]] = new
            world.fetch("TRUNCATE oncebox.changes")
            world.fetch("DELETE FROM oncebox.entries")
            world.fetch("DELETE FROM oncebox.doubts")
            world.fetch("DELETE FROM oncebox.open_claims")

    return Workers


def uuid(key: str) -> str:
    return id_of(key).hex()


def test_three_workers_in_any_order_do_what_the_model_says(
    database_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (claims_module, finals_module):
        monkeypatch.setattr(module, "backoff", lambda attempt: 0.0)
    world = World(database_url, schema)
    try:
        run_state_machine_as_test(
            machine(world),
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
                phases=PHASES,
                print_blob=True,
            ),
        )
    finally:
        world.close()
