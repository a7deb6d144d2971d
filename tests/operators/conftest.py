"""Sites for operators: workers in this process, and the command line beside them."""

import asyncio
import contextlib
import io
from collections.abc import Awaitable, Callable

import pytest

from tests.cli.command import Answer
from tests.engine.conftest import notices, site
from tests.engine.site import Site
from worker.cli import main

__all__ = ["command", "notices", "site"]

Command = Callable[..., Awaitable[Answer]]


@pytest.fixture
def command(site: Site, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`await command("pause", "charge", "--reason", "why")` is the command line at the site; while no worker runs here.

    In a thread of this process: a process of its own costs a second, and what it says would be the same.
    """
    monkeypatch.chdir(site.folder)
    for name, value in site.environment.items():
        monkeypatch.setenv(name, value)

    def run(words: tuple[str, ...]) -> Answer:
        output, error = _stream(), _stream()
        code: object = None
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(error):
            try:
                main(words)
            except SystemExit as ended:
                code = ended.code
        assert isinstance(code, int)
        return Answer(code, _read(output), _read(error))

    async def call(*words: str, **environ: str) -> Answer:
        with monkeypatch.context() as changed:
            for name, value in environ.items():
                changed.setenv(name, value)
            return await asyncio.to_thread(run, words)

    return call


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _read(stream: io.TextIOWrapper) -> str:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()
