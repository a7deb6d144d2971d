"""A file that stands in for somebody else's database: several processes write it, and kill -9 leaves it readable."""

import asyncio
import fcntl
import json
import os
import tempfile
import threading
from pathlib import Path
from typing import Any, BinaryIO

Line = dict[str, Any]


def folder() -> Path:
    """Where the books are: ONCEBOX_DEMO_FOLDER, otherwise a temporary folder of this user."""
    named = os.environ.get("ONCEBOX_DEMO_FOLDER")
    place = Path(named) if named else Path(tempfile.gettempdir()) / f"oncebox-examples-{os.getuid()}"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


class Book:
    """Lines of JSON, one per write, synced before the writer goes on. Nothing is ever changed or taken away."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn = threading.Lock()
        self._read = 0
        self._first: dict[str, Line] = {}

    async def write(self, id_: str, **fields: Any) -> Line:
        """Add a line, and give the first line of this id: the new one, or an earlier one by whomever."""
        return await asyncio.to_thread(self._write, id_, fields)

    async def find(self, id_: str) -> Line | None:
        """The first line of this id."""
        return await asyncio.to_thread(self._find, id_)

    def _write(self, id_: str, fields: Line) -> Line:
        with self._turn, self._open() as file:
            self._catch_up(file)
            line = {"id": id_, "pid": os.getpid(), **fields}
            # The line end comes first: what a killed writer left unfinished must not swallow the next line.
            os.write(file.fileno(), b"\n" + json.dumps(line).encode())
            os.fsync(file.fileno())
            self._catch_up(file)
            return self._first[id_]

    def _find(self, id_: str) -> Line | None:
        with self._turn, self._open() as file:
            self._catch_up(file)
            return self._first.get(id_)

    def _open(self) -> BinaryIO:
        file = (folder() / f"{self._name}.jsonl").open("a+b", buffering=0)
        # Until it is closed: two processes must not both find that they are the first.
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    def _catch_up(self, file: BinaryIO) -> None:
        file.seek(self._read)
        new = file.read()
        self._read += len(new)
        for text in new.split(b"\n"):
            try:
                line = json.loads(text)
            except ValueError:
                continue
            self._first.setdefault(line["id"], line)
