"""The tables explain themselves to whoever opens them with psql."""

import pytest

from tests.ledger.conftest import OpenLedger, Schema
from tests.ledger.offers import doubted, id_of, offers, record
from worker.rules.writes import Parking


async def test_every_table_view_and_column_says_what_it_is(ledger_schema: Schema, schema: str) -> None:
    silent = await ledger_schema.fetch(
        """
        SELECT c.relname || coalesce('.' || a.attname, '') AS name
          FROM pg_class c
          LEFT JOIN LATERAL (SELECT NULL::name AS attname, 0 AS attnum
                             UNION ALL
                             SELECT attname, attnum FROM pg_attribute
                              WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND c.relkind = 'r') a ON true
         WHERE c.relnamespace = to_regnamespace($1) AND c.relkind IN ('r', 'v')
           AND col_description(c.oid, a.attnum) IS NULL AND (a.attnum > 0 OR obj_description(c.oid, 'pg_class') IS NULL)
         ORDER BY 1
        """,
        schema,
    )
    assert [row["name"] for row in silent] == []


@pytest.mark.parametrize("table", ["entries", "doubts", "parked", "sessions", "open_claims", "pauses"])
async def test_there_is_a_view_for_people(ledger_schema: Schema, table: str) -> None:
    await ledger_schema.fetch(f"SELECT * FROM oncebox.readable_{table}")


async def test_the_views_name_states_instead_of_numbers(ledger_schema: Schema, open_ledger: OpenLedger) -> None:
    ledger = await open_ledger()
    claimed = await ledger.claims.claim(offers("k", "waiting"))
    await ledger.finals.doubt([doubted("k", claimed.fence, "timed out")])
    await ledger.parking.park([Parking(record(), "unknown", id_of("k"), 1)])
    [doubt] = await ledger_schema.fetch("SELECT * FROM oncebox.readable_doubts")
    assert (doubt["key"], doubt["fence"], doubt["error"], doubt["held"]) == ("k", claimed.fence, "timed out", 1)
    [parked] = await ledger_schema.fetch("SELECT * FROM oncebox.readable_parked")
    assert (parked["reason"], parked["timestamp_type"], parked["value_bytes"]) == ("unknown", "CreateTime", 1)
    [session] = await ledger_schema.fetch("SELECT * FROM oncebox.readable_sessions")
    assert (session["state"], session["open_claims"]) == ("alive", 1)
    [claim] = await ledger_schema.fetch("SELECT * FROM oncebox.readable_open_claims")
    assert (claim["session_state"], claim["entries"]) == ("alive", 2)
    await ledger_schema.let_lapse(ledger.session.id)
    assert await ledger_schema.value("SELECT state FROM oncebox.readable_sessions") == "lapsed"
    await ledger_schema.end(ledger.session.id)
    assert await ledger_schema.value("SELECT session_state FROM oncebox.readable_open_claims") == "ended"
