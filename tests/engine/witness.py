"""The witness: an append-only file outside the system under test, written through before the handler goes on."""

import json
import os
import time
from pathlib import Path
from typing import Any


def testify(what: str, key: str, **more: object) -> None:
    """Append one line, durably; single writes with O_APPEND do not interleave."""
    line = json.dumps({"what": what, "key": key, "pid": os.getpid(), "at": time.monotonic(), **more}) + "\n"
    file = os.open(Path(os.environ["SITE_FOLDER"]) / "witness", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
        os.fsync(file)
    finally:
        os.close(file)


def witnessed(key: str) -> list[dict[str, Any]]:
    """What was testified about a key so far, by any process."""
    file = Path(os.environ["SITE_FOLDER"]) / "witness"
    lines = file.read_text().splitlines() if file.exists() else []
    return [found for line in lines if f'"key": "{key}"' in line and (found := json.loads(line))["key"] == key]


def once(name: str) -> bool:
    """True for the first caller of all processes, ever."""
    try:
        os.close(os.open(Path(os.environ["SITE_FOLDER"]) / f"once-{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
