"""Three workers on one ledger, in any order, with crashes and lost answers, against a naive model.

A trigger records every change of an entry, so that what no single step can see is checked as well: only the transitions
of the rules happen, fences rise for ever, and what is completed never changes. ONCEBOX_LEDGER_EXAMPLES=2000 runs long.
"""

import asyncio
import itertools
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.ledger.conftest import AlwaysNew
from tests.ledger.offers import done, doubted, failed, id_of, offers, released
from tests.ledger.seats import Seat
from worker.ledger import claims as claims_module
from worker.ledger import finals as finals_module
from worker.ledger.migrate import migrate
from worker.ledger.novelty import Novelty
from worker.ledger.queries import in_schema
from worker.rules.claims import TRANSITIONS, Kind, State, after_death
from worker.settings import DatabaseSettings

T = TypeVar("T")
EXAMPLES = int(os.environ.get("ONCEBOX_LEDGER_EXAMPLES", "60"))
# A short run that fails says how at once; a long one may take its time to find the shortest way to fail.
PHASES = (Phase.generate, Phase.shrink) if EXAMPLES > 60 else (Phase.generate,)
STEPS = 40
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
    state: State = State.IN_PROGRESS
    fence: int = 0
    session: int = 0
    attempts: int = 0
    crashes: int = 0
    stray: bool = False  # claimed by a call whose answer was lost

    def claimed(self, fence: int, session: int) -> None:
        self.state, self.fence, self.session, self.stray = State.IN_PROGRESS, fence, session, False

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


def machine(world: World) -> type[RuleBasedStateMachine]:
    """The machine on this world."""

    class Workers(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            example = next(world.examples)
            self.keys = {f"{example} {kind.name.lower()}": kind for kind in Kind}
            self.rows: dict[str, Entry] = {}
            self.ended: set[int] = set()
            self.given: list[tuple[str, int]] = []
            for seat in world.seats:
                self.run(seat.sit_down())

        @rule(seed=st.integers(0, 2**32 - 1))
        def step(self, seed: int) -> None:
            """Do one thing that can be done now; the seed decides which, to whom and how."""
            chance = Random(seed)
            for seat in world.seats:
                seat.line.lose, seat.line.after = None, 0
            running = [(seat, key) for seat in world.seats for key in sorted(seat.memory)]
            possible: list[tuple[int, Callable[[], None]]] = [(3, lambda: self.claim(chance))]
            if running:
                seat, key = chance.choice(running)
                possible += [
                    (2, lambda: self.complete(chance, seat, key)),
                    (4, lambda: self.end_without_result(chance, seat, key)),
                    (2, lambda: self.end_session(chance, seat)),
                    (1, lambda: self.crash(seat)),
                ]
            if self.given:
                possible.append((2, lambda: self.bring_a_result_of_long_ago(chance)))
            if failed := self.within(State.FAILED_RETRYABLE):
                possible.append((4, lambda: self.claim_again(chance, chance.choice(failed))))
            if self.orphans:
                possible.append((3, lambda: self.settle(chance.choice(world.seats))))
            if lost := [seat for seat in world.seats if seat.session.id in self.ended]:
                possible.append((2, lambda: self.carry_over(chance.choice(lost))))
            if prunable := self.within(State.COMPLETED, State.FAILED_RETRYABLE):
                possible.append((1, lambda: self.prune(chance.choice(prunable))))
            possible.append((1, lambda: self.tidy_up(chance.choice(world.seats))))
            weights, actions = zip(*possible, strict=True)
            chance.choices(actions, weights)[0]()

        def run(self, call: Coroutine[Any, Any, T]) -> T:
            return world.runner.run(call)

        def within(self, *states: State) -> list[str]:
            return [key for key, entry in self.rows.items() if entry.state in states]

        @property
        def orphans(self) -> list[Entry]:
            return [e for e in self.rows.values() if e.state is State.IN_PROGRESS and e.session in self.ended]

        def grant(self, seat: Seat, key: str, fence: int) -> None:
            """A worker may run the key: the fence is the highest so far."""
            assert all(fence > earlier for other, earlier in self.given if other == key)
            self.given.append((key, fence))
            seat.memory[key] = fence
            self.rows.setdefault(key, Entry(self.keys[key])).claimed(fence, seat.session.id)

        def claim(self, chance: Random) -> None:
            seat = chance.choice(world.seats)
            keys = chance.sample(list(self.keys), chance.randint(1, len(self.keys)))
            offered = [offer for key in keys for offer in offers(key, kind=self.keys[key], cap=CAP)]
            mine = {key for key, entry in self.rows.items() if entry.stray and entry.fence in seat.fences.lost}
            seat.claims._novelty = chance.choice([Novelty, AlwaysNew])()
            seat.line.lose = loss(chance)
            seat.line.after = chance.randint(0, 4)
            claimed = self.run(seat.claims.claim(offered, look_first=chance.random() < 0.3))
            for key in keys:
                won = claimed.winner(id_of(key))
                free = key not in self.rows or key in mine
                assert (won is not None) == (free and seat.session.id not in self.ended), key
                if won is not None:
                    self.grant(seat, key, won.fence)
                elif key in self.rows:
                    assert claimed.rows[id_of(key)].fence == self.rows[key].fence

        def claim_again(self, chance: Random, key: str) -> None:
            seat, entry = chance.choice(world.seats), self.rows[key]
            won = None
            # The first try may be lost, and the second below the row's fence: the third comes from a fresh block.
            for lose in (loss(chance), None, None):
                seat.line.lose, seat.line.after = lose, chance.randint(0, 1)
                won = won or self.run(seat.claims.claim_again(offers(key, kind=entry.kind, cap=CAP))).get(id_of(key))
            if won is not None:
                assert entry.claimable
                assert seat.session.id not in self.ended
                self.grant(seat, key, won.fence)
            elif entry.claimable and seat.session.id not in self.ended:
                # The answer was lost: the claim was made all the same, and nobody knows.
                [row] = world.fetch("SELECT state, fence FROM oncebox.entries WHERE id = $1", uuid(key))
                assert row["state"] == State.IN_PROGRESS
                assert row["fence"] in seat.fences.lost
                entry.claimed(row["fence"], seat.session.id)
                entry.stray = True

        def complete(self, chance: Random, seat: Seat, key: str) -> None:
            seat.line.lose = loss(chance)
            seat.line.after = chance.randint(0, 1)
            self.store_result(seat, key, seat.memory.pop(key))

        def bring_a_result_of_long_ago(self, chance: Random) -> None:
            key, fence = chance.choice(self.given)
            # Whoever made the claim tells its end once; whoever else has come by the result may tell it any time.
            tellers = [seat for seat in world.seats if fence not in seat.fences.held()]
            for seat in world.seats:
                if seat.memory.get(key) == fence:
                    del seat.memory[key]
                    tellers = [seat]
            if tellers:
                self.store_result(chance.choice(tellers), key, fence)

        def store_result(self, seat: Seat, key: str, fence: int) -> None:
            finished = [done(key, fence, str(fence).encode())]
            undecided = self.run(seat.finals.complete(finished))
            refused = self.run(seat.finals.complete_late(finished)) if undecided else set()
            entry = self.rows.get(key)
            assert bool(refused) == (entry is None or entry.fence != fence)
            if entry is not None and entry.fence == fence:
                entry.state, entry.stray = State.COMPLETED, False

        def end_without_result(self, chance: Random, seat: Seat, key: str) -> None:
            fence = seat.memory.pop(key)
            entry = self.rows.get(key)
            before = entry.state if entry is not None and entry.fence == fence else None
            how = chance.choice(["fail", "fail", "release", "doubt" if self.keys[key] is Kind.EXTERNAL else "fail"])
            seat.line.lose = loss(chance)
            match how:
                case "fail":
                    self.run(seat.finals.fail([failed(key, fence)]))
                case "release":
                    self.run(seat.finals.release([released(key, fence)]))
                case "doubt":
                    self.run(seat.finals.doubt([doubted(key, fence)]))
            if entry is not None and before is State.IN_PROGRESS:
                entry.attempts += how == "fail"
                entry.state = State.UNKNOWN if how == "doubt" else State.FAILED_RETRYABLE
            elif entry is not None and before is State.UNKNOWN and how != "doubt":
                entry.state = State.FAILED_RETRYABLE

        def end_session(self, chance: Random, seat: Seat) -> None:
            """Let a session lapse: a steady one may end it, and a renewal does not revive it."""
            session, by = seat.session.id, chance.choice(world.seats)
            world.fetch("UPDATE oncebox.sessions SET lease_until = clock_timestamp() - lease WHERE id = $1", session)
            gone = self.run(by.settling.end_lapsed())
            able = by is not seat and by.session.id not in self.ended
            assert (session in gone) == (able and session not in self.ended)
            self.ended.update(gone)
            assert bool(world.fetch(seat.queries["renew"], session)) == (session not in self.ended)
            self.run(seat.be_steady())

        def settle(self, by: Seat) -> None:
            self.run(by.settling.settle())
            for entry in self.orphans:
                entry.state, entry.crashes, entry.stray = after_death(entry.kind), entry.crashes + 1, False

        def carry_over(self, seat: Seat) -> None:
            before = seat.session.id
            self.run(seat.carry_over())
            for entry in self.rows.values():
                if entry.session == before:
                    entry.session = seat.session.id

        def crash(self, seat: Seat) -> None:
            """Nothing is left but the rows; others will find the session lapsed."""
            before = seat.session.id
            self.run(seat.sit_down())
            self.ended.add(before)
            world.fetch("UPDATE oncebox.sessions SET ended_at = coalesce(ended_at, now()) WHERE id = $1", before)

        def tidy_up(self, seat: Seat) -> None:
            self.run(seat.finals.tidy())
            self.run(seat.release_strays())
            for entry in self.rows.values():
                if entry.stray and entry.session == seat.session.id:
                    entry.state, entry.stray = State.FAILED_RETRYABLE, False

        def prune(self, key: str) -> None:
            world.fetch("DELETE FROM oncebox.entries WHERE id = $1", uuid(key))
            del self.rows[key]
            for seat in world.seats:
                seat.much_later()

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
            highest: dict[Any, int] = {}
            for change in world.fetch("SELECT * FROM oncebox.changes ORDER BY n"):
                old, new = (None if state is None else State(state) for state in change[2:4])
                assert old is new or (old, new) in TRANSITIONS, (old, new)
                if old is State.COMPLETED and new is not None:
                    assert not change["touched"], "completed is immutable"
                if change["new_fence"] not in (None, change["old_fence"]):
                    assert new is State.IN_PROGRESS, "only a claim brings a new fence"
                    assert change["new_fence"] > highest.get(change["id"], 0), "fences rise"
                    highest[change["id"]] = change["new_fence"]
            for table in ("entries", "doubts", "open_claims", "changes"):
                world.fetch(f"DELETE FROM oncebox.{table}")

    return Workers


def loss(chance: Random) -> str | None:
    return chance.choice([None, None, "answer", "request"])


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
