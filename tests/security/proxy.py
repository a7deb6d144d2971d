"""Puts TLS in front of a server that has none."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.security.certificates import Pair

_SSL_REQUEST = bytes.fromhex("0000000804d2162f")


@asynccontextmanager
async def tls_proxy(target: tuple[str, int], pair: Pair, *, postgres: bool = False) -> AsyncIterator[int]:
    """The port of a proxy that speaks TLS outside and nothing inside; Postgres first agrees to it in the clear."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(ConnectionError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.CancelledError):
                if postgres:
                    assert await reader.readexactly(8) == _SSL_REQUEST
                    writer.write(b"S")
                    await writer.drain()
                    await writer.start_tls(context)
                await _pipe_both(target, reader, writer)
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=None if postgres else context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pipe_both(target: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    inner_reader, inner_writer = await asyncio.open_connection(*target)
    try:
        there = asyncio.ensure_future(_pipe(reader, inner_writer))
        back = asyncio.ensure_future(_pipe(inner_reader, writer))
        try:
            await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for half in (there, back):
                half.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
    finally:
        inner_writer.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
