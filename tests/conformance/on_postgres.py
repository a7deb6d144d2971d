"""The store on Postgres: time passes by moving every stored time back."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg

from tests.conformance.stores import Seen, SeenDoubt, Store
from worker.errors import ServiceUnavailable
from worker.ledger.ledger import PostgresLedger
from worker.ledger.migrate import migrate
from worker.rules.claims import Kind, State
from worker.rules.context import Transaction
from worker.rules.entries import Row
from worker.rules.writes import Place
from worker.settings import DatabaseSettings

_TIMES = {
    "entries": ("due_at", "expires_at", "failed_at"),
    "sessions": ("lease_until", "steady_since"),
    "parked": ("due_at",),
    "doubts": ("since", "quiet_until", "due_at"),
}


class OnPostgres(Store):
    def __init__(self, url: str, schema: str) -> None:
        super().__init__()
        self._settings = DatabaseSettings.model_validate({"url": url, "schema_name": schema})
        self._admin: Any = None
        self._ledgers: list[PostgresLedger] = []

    async def open(self, options: dict[str, Any]) -> PostgresLedger:
        if self._admin is None:
            await migrate(self._settings)
            self._admin = await asyncpg.connect(self._settings.url.get_secret_value())
            await self._admin.set_type_codec(
                "uuid", encoder=lambda value: value, decoder=bytes, schema="pg_catalog", format="binary"
            )
            await self._admin.execute(self._sql("CREATE TABLE oncebox.written (what text)"))
        ledger = PostgresLedger(self._settings, longest_timeout=30.0, notice=lambda *_, **__: None, **options)
        await ledger.open()
        self._ledgers.append(ledger)
        return ledger

    async def close(self) -> None:
        await asyncio.gather(*(ledger.close() for ledger in self._ledgers))
        if self._admin is not None:
            await self._admin.close()

    def _sql(self, text: str) -> str:
        return text.replace("oncebox.", f'"{self._settings.schema_name}".')

    async def _fetch(self, text: str, *arguments: Any) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await self._admin.fetch(self._sql(text), *arguments)
        return rows

    async def shift(self, seconds: float) -> None:
        for table, columns in _TIMES.items():
            moved = ", ".join(f"{column} = {column} - $1::float8 * interval '1 second'" for column in columns)
            await self._fetch(f"UPDATE oncebox.{table} SET {moved}", seconds)

    async def renew(self, ledger: Any) -> None:
        await self._fetch(ledger.queries["renew"], ledger.session.id)

    async def find(self, id_: bytes) -> Seen | None:
        rows = await self._fetch(
            "SELECT *, extract(epoch FROM due_at - clock_timestamp())::float8 AS due_in,"
            " extract(epoch FROM expires_at - clock_timestamp())::float8 AS expires_in"
            " FROM oncebox.entries WHERE id = $1",
            id_,
        )
        if not rows:
            return None
        row = rows[0]
        result = None
        if row["result_status"] is not None:
            result = Row.completed(row["result_status"], row["content_type"] or 0, row["result"], row["result_code"])
        names = (
            "fence",
            "attempts",
            "crashes",
            "held",
            "fingerprint",
            "key",
            "tenant",
            "due_in",
            "expires_in",
            "error",
        )
        return Seen(
            state=State(row["state"]),
            kind=Kind(row["kind"]),
            result=result,
            failed=row["failed_at"] is not None,
            **{name: row[name] for name in names},
        )

    async def doubts(self) -> dict[bytes, SeenDoubt]:
        rows = await self._fetch(
            "SELECT id, fence, extract(epoch FROM quiet_until - clock_timestamp())::float8 AS quiet_in,"
            " extract(epoch FROM due_at - clock_timestamp())::float8 AS due_in,"
            " probes, reported_at IS NOT NULL AS reported FROM oncebox.doubts"
        )
        return {row["id"]: SeenDoubt(*list(row.values())[1:]) for row in rows}

    async def parked(self) -> dict[Place, tuple[str, float | None]]:
        rows = await self._fetch(
            'SELECT id, topic, partition, "offset", reason,'
            " extract(epoch FROM due_at - clock_timestamp())::float8 AS due_in FROM oncebox.parked"
        )
        return {(r["id"], r["topic"], r["partition"], r["offset"]): (r["reason"], r["due_in"]) for r in rows}

    async def history(self) -> list[tuple[bytes, str, int | None, bytes | None]]:
        rows = await self._fetch("SELECT id, event, fence, body FROM oncebox.history ORDER BY at")
        return [(row["id"], row["event"], row["fence"], row["body"]) for row in rows]

    async def open_claims(self) -> dict[int, int]:
        return {row["fence"]: row["session"] for row in await self._fetch("SELECT * FROM oncebox.open_claims")}

    async def end_session(self, ledger: Any) -> None:
        await self._fetch(
            "UPDATE oncebox.sessions SET ended_at = clock_timestamp()"
            " WHERE id = (SELECT id FROM oncebox.sessions WHERE id = $1 FOR UPDATE)",
            ledger.session.id,
        )

    def lose_answers(self, ledger: Any, statements: Sequence[str]) -> None:
        """Let each of these statements commit once without an answer, by wrapping the connections they go through."""
        left = {ledger.queries[name]: name for name in statements}
        for line in ledger._hot._all:
            line.fetch, line.write = _losing(line.fetch, left), _losing(line.write, left)

    async def write(self, transaction: Transaction, what: str) -> None:
        await transaction.execute(self._sql("INSERT INTO oncebox.written VALUES ($1)"), what)

    async def written(self) -> list[str]:
        return [row["what"] for row in await self._fetch("SELECT what FROM oncebox.written ORDER BY ctid")]


def _losing(call: Callable[..., Any], left: dict[str, str]) -> Callable[..., Any]:
    async def lose(query: str, *arguments: Any) -> Any:
        answer = await call(query, *arguments)
        if left.pop(query, None) is not None:
            raise ServiceUnavailable("postgres", "the answer was lost")
        return answer

    return lose
