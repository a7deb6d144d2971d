"""Passwords of local servers: random, and kept beside the data they open."""

import os
import secrets
from pathlib import Path


def password(file: Path) -> str:
    """The password of this data, made on first use; readable by its owner only."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file.read_text()
    with os.fdopen(handle, "w") as out:
        made = secrets.token_hex(16)
        out.write(made)
    return made
