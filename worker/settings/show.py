"""Shows settings to people: durations in words, secrets masked."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from urllib.parse import parse_qsl, quote, urlsplit

from pydantic import SecretStr

from worker.rules.durations import format_duration

MASK = "***"
NOTHING = "-"
_SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_HIDDEN = ("password", "passwd", "sslpassword", "secret", "token")


def mask_url(text: str) -> str:
    """A URL without its secrets; one whose parts cannot be told apart is masked as a whole."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return MASK
    behind = parts.path + parts.query + parts.fragment
    if not parts.scheme or "://" not in text or "@" in behind:
        return MASK
    login, at, place = parts.netloc.rpartition("@")
    user, colon, _ = login.partition(":")
    query = "&".join(
        f"{name}={MASK if name.lower() in _HIDDEN else quote(value, safe='/:,')}"
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    return f"{parts.scheme}://{user}{colon and ':' + MASK}{at}{place}{parts.path}{query and '?' + query}"


def shown_secret(text: str) -> str:
    """What may be seen of a secret: of a URL its place, of anything else nothing."""
    return mask_url(text) if "://" in text else MASK


def shown_size(value: int) -> str:
    """The largest unit that gives a whole number of bytes."""
    return next((f"{value // factor}{unit}" for unit, factor in _SIZES if value and value % factor == 0), str(value))


def shown(value: object) -> str:
    """One value as text that can be read, and mostly written back."""
    match value:
        case None | () | "":
            return NOTHING
        case SecretStr():
            return shown_secret(value.get_secret_value())
        case timedelta():
            return format_duration(value)
        case datetime():
            return value.isoformat()
        case tuple():
            return ", ".join(map(str, value))
        case Mapping():
            return ", ".join(f"{name}: {shown(item)}" for name, item in value.items())
    return str(value)
