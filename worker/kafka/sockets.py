"""A write to a closed socket is a broken connection, whatever the event loop calls it.

uvloop raises RuntimeError where asyncio's own loop raises OSError, and the client knows only the latter: without this a
reset in the wrong moment ends the client's tasks, and the worker with them.
"""

from typing import Any

from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError

_send = AIOKafkaConnection.send


def _send_or_break(self: Any, request: Any, expect_response: bool = True) -> Any:
    try:
        return _send(self, request, expect_response)
    except RuntimeError as error:
        self.close(reason=CloseReason.CONNECTION_BROKEN)
        raise KafkaConnectionError(f"connection broken while writing: {error}") from error


def break_cleanly() -> None:
    """Let every connection of this process report a closed socket as the client expects it."""
    AIOKafkaConnection.send = _send_or_break
