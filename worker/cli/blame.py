"""Names the line of the user's code that an error came from."""

import os
import sysconfig
from pathlib import Path
from types import TracebackType

_OURS = str(Path(__file__).resolve().parent.parent / "rules")
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_LOADING = str(Path(__file__).with_name("loading.py"))


def blame(error: BaseException) -> str:
    """ " (file, line N)" of the innermost line that is not ours, not a library's; empty when there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({_short(error.filename)}, line {error.lineno})"
    place = ""
    step: TracebackType | None = error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if not file.startswith(("<", _OURS, *_LIBRARIES)) and file != _LOADING:
            place = f" ({_short(file)}, line {step.tb_lineno})"
        step = step.tb_next
    return place


def _short(file: str) -> str:
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative
