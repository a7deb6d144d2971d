"""The HTTP port: probes and metrics for whoever can reach it. No web server: one small request, one answer, closed.

It shares the event loop with the work, so connections are bounded in number, bytes and time. Nothing is logged.
"""

import asyncio
import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from worker.errors import ConfigError

_MOST_CONNECTIONS: Final = 32
_MOST_BYTES: Final = 8192
_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for."""

    path: str
    query: str
    accept: str


@dataclass(frozen=True, slots=True)
class Response:
    """What is answered."""

    status: HTTPStatus
    content_type: str
    body: bytes


Page = Callable[[Request], Response]


class HttpPort:
    """Serves a few pages by path until it is closed."""

    def __init__(self, pages: Mapping[str, Page], notice: Callable[..., None]) -> None:
        self._pages = pages
        self._notice = notice
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def open(self, host: str, port: int, *, or_any: bool = False) -> None:
        """Listen; a port that is taken is a ConfigError, or with `or_any` another one is used."""
        try:
            server = await asyncio.start_server(self._connected, host, port, limit=_MOST_BYTES)
        except OSError as error:
            if or_any and error.errno == errno.EADDRINUSE and port:
                await self.open(host, 0)
                return
            raise ConfigError(
                f"the HTTP port cannot listen on {host}:{port}: {error.strerror or error}",
                setting="http.port",
                advice="another process has it: set ONCEBOX_HTTP_PORT to a free port, to 0 for any, or to off"
                if error.errno == errno.EADDRINUSE
                else "set ONCEBOX_HTTP_HOST to an address of this machine, or ONCEBOX_HTTP_PORT to off",
            ) from error
        self._server = server
        self.port = int(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._open):
                writer.transport.abort()
            await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= _MOST_CONNECTIONS:
            writer.transport.abort()
            return
        self._open.add(writer)
        try:
            async with asyncio.timeout(_SECONDS):
                response, head_only = await self._answer(reader)
                writer.write(_head(response) if head_only else _head(response) + response.body)
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            # Gone, or too slow: nobody is owed an answer.
            writer.transport.abort()
        finally:
            self._open.discard(writer)

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[Response, bool]:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), False
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return plain(HTTPStatus.BAD_REQUEST), False
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return plain(HTTPStatus.METHOD_NOT_ALLOWED), False
        path, _, query = target.partition("?")
        page = self._pages.get(path)
        if page is None:
            return plain(HTTPStatus.NOT_FOUND), method == "HEAD"
        accept = next((line[7:].strip() for line in lines if line[:7].lower() == "accept:"), "")
        return self._render(page, Request(path, query, accept)), method == "HEAD"

    def _render(self, page: Page, request: Request) -> Response:
        try:
            return page(request)
        except Exception as error:
            self._notice("page_broke", path=request.path, error=f"{type(error).__name__}: {error}", alert="a defect")
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def plain(status: HTTPStatus) -> Response:
    return Response(status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode())


def _head(response: Response) -> bytes:
    return (
        f"HTTP/1.1 {response.status.value} {response.status.phrase}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    ).encode("latin-1")
