"""Says which known name somebody probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like this one, if any does."""
    spelled = {item.casefold(): item for item in sorted(known)}
    matches = get_close_matches(name.casefold(), list(spelled), n=1, cutoff=0.7)
    return spelled[matches[0]] if matches else None


def near(name: str, known: Iterable[str], *, otherwise: str) -> str:
    """Advice with the nearest known name, or the other advice when none is near."""
    found = nearest(name, known)
    return f"did you mean {found}?" if found else otherwise
