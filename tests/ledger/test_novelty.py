"""Claims that expect new keys are cheaper; one that was wrong has written nothing, and is made again."""

from typing import Any

from tests.ledger.conftest import OpenLedger, Schema
from tests.ledger.offers import done, id_of, offers
from worker.ledger.ledger import PostgresLedger
from worker.ledger.novelty import LEAST, MOST, Novelty
from worker.rules.claims import State


def executed(ledger: PostgresLedger) -> list[str]:
    """The names of the statements that its connections run from now on, those that fail included."""
    names = {text: name for name, text in ledger.queries.items()}
    said: list[str] = []
    for line in ledger._hot._all:
        for call in (line.fetch, line.write):

            async def told(query: str, *arguments: Any, call: Any = call) -> Any:
                said.append(names[query])
                return await call(query, *arguments)

            setattr(line, call.__name__, told)
    return said


def keys(many: int, prefix: str = "key") -> list[str]:
    return [f"{prefix} {number}" for number in range(many)]


async def test_new_keys_are_expected_after_a_run_of_them_and_no_longer_after_one_that_was_not(
    ledger: PostgresLedger, ledger_schema: Schema
) -> None:
    said = executed(ledger)
    await ledger.claims.claim(offers(*keys(LEAST)))
    await ledger.claims.claim(offers("one", "two"))
    assert [name for name in said if name != "draw_fences"] == ["claim", "claim_new"]

    said.clear()
    claimed = await ledger.claims.claim(offers("two", "three"))
    assert said == ["claim_new", "claim", "look_up"]
    assert claimed.winner(id_of("two")) is None
    assert claimed.rows[id_of("two")].state is State.IN_PROGRESS
    assert (await ledger_schema.entry("three"))["fence"] == claimed.fence

    said.clear()
    await ledger.claims.claim(offers(*keys(LEAST, "more")))
    await ledger.claims.claim(offers("four"))
    assert said == ["claim", "claim"], "the next run must be longer"


async def test_a_claim_that_was_wrong_leaves_nothing_that_anyone_must_tidy(
    ledger: PostgresLedger, ledger_schema: Schema
) -> None:
    await ledger.claims.claim(offers(*keys(LEAST)))
    before = await ledger_schema.value("SELECT count(*) FROM oncebox.open_claims")
    claimed = await ledger.claims.claim(offers("key 0", "new"))
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.open_claims") == before + 1
    assert ledger.fences.lost == set()
    assert ledger.fences.calling == set()
    assert await ledger.release_strays() == 0
    assert await ledger.finals.complete([done("new", claimed.fence)]) == set()


async def test_what_expects_new_keys_claims_nothing_once_its_session_has_ended(
    open_ledger: OpenLedger, ledger_schema: Schema
) -> None:
    ledger = await open_ledger()
    await ledger.claims.claim(offers(*keys(LEAST)))
    await ledger_schema.end(ledger.session.id)
    claimed = await ledger.claims.claim(offers("k"))
    assert (claimed.winner(id_of("k")), claimed.rows) == (None, {})
    assert ledger.claims._novelty.expected, "no key was known"
    assert await ledger_schema.value("SELECT count(*) FROM oncebox.entries") == LEAST


def test_both_claims_write_the_same(ledger: PostgresLedger) -> None:
    both = ledger.queries["claim"], ledger.queries["claim_new"]
    assert both[0].partition("WITH")[2] == both[1].partition("WITH")[2] + "\nON CONFLICT (id) DO NOTHING\nRETURNING id"


def test_each_mistake_asks_for_a_longer_run_up_to_a_limit() -> None:
    novelty, runs = Novelty(), list[int]()
    for _ in range(8):
        run = 0
        while not novelty.expected:
            novelty.confirmed(LEAST)
            run += LEAST
        runs.append(run)
        novelty.refuted()
    assert runs[:3] == [LEAST, 4 * LEAST, 16 * LEAST]
    assert runs[-2:] == [MOST, MOST]


def test_a_known_key_that_nobody_expected_to_be_new_is_no_mistake() -> None:
    novelty = Novelty()
    for _ in range(5):
        novelty.confirmed(LEAST - 1)
        novelty.refuted()
    novelty.confirmed(LEAST)
    assert novelty.expected


async def test_a_claim_that_was_wrong_is_a_round_trip_like_any_other(open_ledger: OpenLedger) -> None:
    told: list[tuple[str, bool]] = []
    ledger = await open_ledger(watch=lambda statement, seconds, broke: told.append((statement, broke)))
    await ledger.claims.claim(offers(*keys(LEAST)))
    told.clear()
    await ledger.claims.claim(offers("key 0", "new"))
    assert [one for one in told if one[0] != "renew"] == [("claim_new", False), ("claim", False), ("look_up", False)]
