"""Requests to Redis: each within one timeout, connecting included, and every failure is None.

The client's own packing and pipelines cost microseconds per key, so commands are packed by hiredis and
sent as one piece; connections, TLS and login are the client's.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from hiredis import pack_command
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from worker.filter.breaker import Breaker
from worker.filter.probe import explain_redis_error

# Told of every request: reads or writes, seconds, and whether it broke.
Watch = Callable[[str, float, bool], None]
_MOST_CONNECTIONS: Final = 32  # more than claims in flight; a connection is made only when all others are busy


class Wire:
    """The connections of one filter."""

    def __init__(self, url: str, *, timeout: float, watch: Watch | None = None) -> None:
        try:
            given: dict[str, Any] = dict(parse_url(url))
        except ValueError as error:
            raise explain_redis_error(error, url) from error
        # Ours last: a query in the URL must not bring retries, longer waits or decoded replies.
        options = given | {
            "max_connections": _MOST_CONNECTIONS,
            # One timer around the whole request instead of one per step.
            "socket_timeout": None,
            "socket_connect_timeout": timeout,
            "retry": Retry(NoBackoff(), 0),
            "retry_on_timeout": False,
            "decode_responses": False,
            "health_check_interval": 0,
            # Fewest steps to log in, and no command that a narrow ACL or an old server refuses.
            "protocol": 2,
            "driver_info": None,
        }
        self._pool: Any = ConnectionPool(**options)
        self._timeout = timeout
        self._watch = watch or _unwatched
        self._closed = False

    async def ask(self, request: bytes, replies: int, breaker: Breaker) -> list[Any] | None:
        """Send packed commands and read as many replies; None when that failed or should not be tried now.

        Cancelling it costs the connection, never a reply that belongs to another request.
        """
        era = None if self._closed else breaker.begin()
        if era is None:
            return None
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._exchange(request, replies)
        except Exception as error:  # whatever the client raises: Redis only saves work
            self._watch(breaker.name, time.monotonic() - began, True)
            breaker.failed(era, error)
            return None
        except BaseException:
            breaker.abandoned(era)
            raise
        self._watch(breaker.name, time.monotonic() - began, False)
        breaker.succeeded(era)
        return answer

    async def close(self) -> None:
        """Close every connection; requests under way fail, and later ones are not sent."""
        self._closed = True
        with contextlib.suppress(Exception):
            await self._pool.aclose()

    async def _exchange(self, request: bytes, replies: int) -> list[Any]:
        connection = await self._pool.get_connection()
        whole = False
        try:
            await connection.send_packed_command(request)
            answer = [await connection.read_response() for _ in range(replies)]
            whole = True
            return answer
        finally:
            # Replies may still be on their way: the next request would take them for its own.
            # After `close` nobody else would close it.
            if not whole or self._closed:
                await connection.disconnect(nowait=True)
            await self._pool.release(connection)


def _unwatched(op: str, seconds: float, broke: bool) -> None:
    pass


def packed(commands: Iterable[tuple[str | int | bytes, ...]]) -> bytes:
    """Commands as they go over the wire."""
    pack: Any = pack_command
    return b"".join([pack(command) for command in commands])
