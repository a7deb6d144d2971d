"""The HTTP port answers small honest requests, and nothing that anyone sends can hold up the loop it shares."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import pytest
import pytest_asyncio

from tests.observe.scraping import get
from tests.waiting import eventually
from worker.errors import ConfigError
from worker.observe.http import HttpPort, Request, Response

BIG = b"x" * 5_000_000


def echo(request: Request) -> Response:
    return Response(HTTPStatus.OK, "text/plain", f"{request.path} {request.query} {request.accept}".encode())


def broken(request: Request) -> Response:
    raise ValueError("a defect")


def big(request: Request) -> Response:
    return Response(HTTPStatus.OK, "text/plain", BIG)


@pytest.fixture
def told() -> list[tuple[str, dict[str, Any]]]:
    return []


@pytest_asyncio.fixture
async def port(told: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpPort]:
    monkeypatch.setattr("worker.observe.http._SECONDS", 0.5)
    opened = HttpPort({"/echo": echo, "/broken": broken, "/big": big}, lambda event, **f: told.append((event, f)))
    await opened.open("127.0.0.1", 0)
    yield opened
    await opened.close()


async def send(port: HttpPort, data: bytes) -> bytes:
    """Everything that comes back until the port closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_a_request_is_answered_with_what_it_asked_for(port: HttpPort) -> None:
    answer = await asyncio.to_thread(get, port.port, "/echo?verbose", Accept="text/x")
    assert answer == (200, "text/plain", "/echo verbose text/x")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /nothing HTTP/1.1", 404),
        (b"GET /echo/../broken HTTP/1.1", 404),
        (b"POST /echo HTTP/1.1", 405),
        (b"HEAD /echo HTTP/1.1", 200),
        (b"GET /echo", 400),
        (b"GET  /echo HTTP/1.1", 400),
        (b"GET /echo HTTP/2.0", 400),
        (b"PRI * HTTP/2.0", 400),
        (b"", 400),
        (bytes(range(256)).replace(b"\r", b"").replace(b"\n", b""), 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ],
)
async def test_garbage_and_what_is_not_served_are_refused(port: HttpPort, request_line: bytes, status: int) -> None:
    answer = await send(port, request_line + b"\r\nHost: x\r\n\r\n")
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Connection: close" in head
    assert (b"HEAD" not in request_line) == bool(body)


async def test_a_request_that_does_not_end_is_cut_off_by_size(port: HttpPort) -> None:
    answer = await send(port, b"GET /echo HTTP/1.1\r\n" + b"X: " + b"y" * 1_000_000)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
    assert (await asyncio.to_thread(get, port.port, "/echo"))[0] == 200


async def test_one_that_sends_nothing_is_cut_off_by_time(port: HttpPort) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
    writer.write(b"GET /ec")
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()


async def test_one_that_does_not_read_the_answer_is_cut_off_by_time(port: HttpPort) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port.port, limit=1024)
    writer.write(b"GET /big HTTP/1.1\r\n\r\n")
    await writer.drain()
    await eventually(lambda: port._open, 5, "never connected")
    await eventually(lambda: not port._open, 5, "still open")
    with contextlib.suppress(ConnectionResetError):
        assert len(await asyncio.wait_for(reader.read(), 5)) < len(BIG)
    writer.close()


async def test_more_connections_than_any_scraper_needs_are_cut_and_the_next_one_is_served(port: HttpPort) -> None:
    idle = [await asyncio.open_connection("127.0.0.1", port.port) for _ in range(60)]
    cut = await asyncio.gather(*(_ends(reader) for reader, _ in idle[32:]))
    assert all(cut)
    for _, writer in idle:
        writer.close()
    await eventually(lambda: not port._open, 5, "still open")
    assert (await asyncio.to_thread(get, port.port, "/echo"))[0] == 200


async def _ends(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), 5) == b""
    except ConnectionResetError:
        return True


async def test_random_bytes_never_end_the_port(port: HttpPort) -> None:
    for size in range(1, 400, 7):
        await send(port, os.urandom(size) + b"\r\n\r\n")
    assert (await asyncio.to_thread(get, port.port, "/echo"))[0] == 200


async def test_a_page_that_breaks_is_told_and_the_next_one_is_served(
    port: HttpPort, told: list[tuple[str, dict[str, Any]]]
) -> None:
    assert (await asyncio.to_thread(get, port.port, "/broken"))[0] == 500
    [(event, fields)] = told
    assert (event, fields["path"], fields["error"]) == ("page_broke", "/broken", "ValueError: a defect")
    assert (await asyncio.to_thread(get, port.port, "/echo"))[0] == 200


async def test_a_port_that_is_taken_is_refused_with_advice_unless_any_will_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        port = HttpPort({}, lambda *_, **__: None)
        with pytest.raises(ConfigError, match=f"127.0.0.1:{number}.*\n.*ONCEBOX_HTTP_PORT"):
            await port.open("127.0.0.1", number)
        await port.open("127.0.0.1", number, or_any=True)
        assert port.port not in (0, number)
        await port.close()


async def test_an_address_of_another_machine_is_refused_with_advice() -> None:
    with pytest.raises(ConfigError, match="ONCEBOX_HTTP_HOST"):
        await HttpPort({}, lambda *_, **__: None).open("192.0.2.1", 0)
