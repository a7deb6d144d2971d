"""Time passes: every time that a ledger has stored moves back, as if so much time had gone by since."""

from datetime import timedelta
from typing import Any

_COLUMNS = """
SELECT c.table_name, c.column_name FROM information_schema.columns c
  JOIN information_schema.tables t USING (table_schema, table_name)
 WHERE c.table_schema = $1 AND t.table_type = 'BASE TABLE' AND c.data_type = 'timestamp with time zone'
"""


async def let_time_pass(connection: Any, schema: str, passed: timedelta) -> None:
    """Move back every stored time of a ledger; nothing may be running on it."""
    tables: dict[str, list[str]] = {}
    for row in await connection.fetch(_COLUMNS, schema):
        tables.setdefault(row["table_name"], []).append(row["column_name"])
    assert tables, f"there is no ledger in schema {schema}"
    for table, columns in tables.items():
        moved = ", ".join(f'"{column}" = "{column}" - $1::interval' for column in columns)
        await connection.execute(f'UPDATE "{schema}"."{table}" SET {moved}', passed)
