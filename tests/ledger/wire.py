"""A wire to Postgres that loses what it is told to lose: a request, an answer, or everything from now on.

It reads the protocol just far enough to know which statement a message executes, so that a test can lose the answer of
the very statement it is about, after the server has committed it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import SplitResult, urlsplit

_BEFORE_STARTUP = (80877103, 80877102)  # requests for TLS and for a cancel come without a type byte
_GONE = (ConnectionError, asyncio.IncompleteReadError)


class Loss(Enum):
    """What becomes of a connection once it carries the statement."""

    REQUEST = "the statement never reaches the server"
    ANSWER = "the server executes it, and then the connection breaks"
    HEARING = "the connection breaks while the server still executes it"
    EVERYTHING = "nothing passes, and nobody is told"


@dataclass(eq=False)
class _Call:
    """One connection of a client."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    statements: dict[bytes, str] = field(default_factory=dict)
    loss: Loss | None = None
    answers: bytearray = field(default_factory=bytearray)


class Wire:
    """Passes everything on, until it is told otherwise."""

    def __init__(self, url: str) -> None:
        self._server: SplitResult = urlsplit(url)
        self._calls: set[_Call] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wanted: dict[str, Loss] = {}
        self.port = 0
        self.lost = 0

    @property
    def url(self) -> str:
        user = self._server.netloc.rpartition("@")[0]
        return self._server._replace(netloc=f"{user}@127.0.0.1:{self.port}").geturl()

    def lose(self, loss: Loss, statement: str) -> None:
        """Lose this at the next execution of a statement that begins so, once."""
        self._wanted[statement] = loss

    def go_dead(self) -> None:
        """Connections of now carry nothing any more, and nobody is told; new ones work."""
        for call in self._calls:
            call.loss = Loss.EVERYTHING

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            answers, server = await asyncio.open_connection(self._server.hostname, self._server.port)
        except OSError:
            writer.transport.abort()
            return
        call = _Call(writer, server)
        self._calls.add(call)
        halves = [asyncio.ensure_future(half) for half in (self._forth(call, reader), self._back(call, answers))]
        try:
            with suppress(asyncio.CancelledError):
                await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
                if call.loss is not None:
                    # The server must be able to finish what it began, though nobody listens.
                    await halves[1]
        finally:
            for half in halves:
                half.cancel()
            await asyncio.gather(*halves, return_exceptions=True)
            self._calls.discard(call)
            self._tasks.discard(task)
            writer.transport.abort()
            server.close()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _forth(self, call: _Call, reader: asyncio.StreamReader) -> None:
        with suppress(*_GONE):
            started = False
            while not started:
                head = await reader.readexactly(8)
                call.server.write(head + await reader.readexactly(int.from_bytes(head[:4]) - 8))
                started = int.from_bytes(head[4:]) not in _BEFORE_STARTUP
            while True:
                head = await reader.readexactly(5)
                kind, body = head[:1], await reader.readexactly(int.from_bytes(head[1:]) - 4)
                if call.loss is None:
                    call.loss = self._loss_at(call, kind, body)
                if call.loss is Loss.EVERYTHING:
                    continue
                if call.loss is Loss.REQUEST:
                    call.server.close()
                    return self._break(call)
                call.server.write(head + body)
                if call.loss is Loss.HEARING and kind in b"SQ":
                    return self._break(call)

    def _loss_at(self, call: _Call, kind: bytes, body: bytes) -> Loss | None:
        """What to lose at this message: a Bind or a simple query of a statement that was named."""
        match kind:
            case b"P":
                name, text, *_ = body.split(b"\0")
                call.statements[name] = text.decode()
                return None
            case b"B":
                statement = call.statements[body.split(b"\0")[1]]
            case b"Q":
                statement = body.decode()
            case _:
                return None
        found = next((wanted for wanted in self._wanted if statement.startswith(wanted)), None)
        return None if found is None else self._wanted.pop(found)

    async def _back(self, call: _Call, reader: asyncio.StreamReader) -> None:
        with suppress(*_GONE):
            while chunk := await reader.read(65536):
                if call.loss is None:
                    call.client.write(chunk)
                elif call.loss is Loss.ANSWER and self._ended(call, chunk):
                    self._break(call)
                    return

    def _ended(self, call: _Call, chunk: bytes) -> bool:
        """Whether the server has said that it is ready for the next query."""
        answers = call.answers
        answers += chunk
        while len(answers) >= 5 and len(answers) > (size := int.from_bytes(answers[1:5])):
            if answers[:1] == b"Z":
                return True
            del answers[: size + 1]
        return False

    def _break(self, call: _Call) -> None:
        self.lost += 1
        call.client.transport.abort()


@asynccontextmanager
async def wire_to(url: str) -> AsyncIterator[Wire]:
    """A wire to the server of this URL, on a port of its own."""
    wire = Wire(url)
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        server.close()
        await wire.close()
