"""One completed entry as bytes: what a replay needs, and the proof that a holder of the ledger's key wrote it.

Owns the format. Knows neither Redis nor a clock: who opens an entry says what time it is.
"""

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import Final

from worker.rules.claims import State, Status
from worker.rules.entries import Row
from worker.rules.fingerprint import FORMAT
from worker.rules.results import ContentType, Result

LARGEST: Final = 16 * 1024
"""Bytes of body and code together; beyond it Postgres is as good a place to fetch them from."""

_VERSION: Final = 1
# Version, fingerprint format, status, content type, fence, expiry in epoch ms, lengths of fingerprint, code, body.
# A length of -1 is None.
_HEAD: Final = Struct(">BBBBqqhii")
_START: Final = _HEAD.size
_MAC: Final = 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_STATUSES: Final = {int(status): status for status in Status}
_CONTENT_TYPES: Final = {int(kind): kind for kind in ContentType}
_COMPLETED: Final = State.COMPLETED
_from_timestamp: Final = datetime.fromtimestamp


def fits(row: Row) -> bool:
    """Whether this row may be remembered at all: completed, judged by this release's fingerprint, and not large."""
    result = row.result
    if row.state is not _COMPLETED or result is None or row.format != FORMAT:
        return False
    return len(result.body or b"") + len(result.code or "") <= LARGEST


def expiry_ms(row: Row) -> int:
    """The last whole millisecond before the entry may be forgotten."""
    return (row.expires_at - _EPOCH) // _MILLISECOND


class Sealer:
    """Writes and reads entries of one ledger."""

    def __init__(self, ledger_id: bytes, key: bytes) -> None:
        if not 16 <= len(key) <= 64:
            raise ValueError(f"a filter key has 16 to 64 bytes, not {len(key)}")
        self._keyed = blake2b(key=key, digest_size=_MAC, person=b"oncebox filter")
        self._keyed.update(len(ledger_id).to_bytes(2) + ledger_id)

    def seal(self, row: Row) -> bytes:
        """The bytes to keep for a row that fits."""
        result = row.result
        assert result is not None
        fingerprint, body = row.fingerprint, result.body
        code = None if result.code is None else result.code.encode()
        head = _HEAD.pack(
            _VERSION,
            row.format,
            result.status,
            result.content_type,
            row.fence,
            expiry_ms(row),
            -1 if fingerprint is None else len(fingerprint),
            -1 if code is None else len(code),
            -1 if body is None else len(body),
        )
        content = b"".join((head, fingerprint or b"", code or b"", body or b""))
        return content + self._mac(content, row.id)

    def open(self, sealed: bytes, id_: bytes, fingerprint: bytes | None, now_ms: float) -> Row | None:
        """The row as far as a replay needs it, or None for anything but an answer to exactly this question.

        Attempts, crashes and times of failure are not kept: nobody asks a completed entry for them.
        """
        if len(sealed) < _START + _MAC:
            return None
        version, format_, status, kind, fence, expires, length, code_length, body_length = _HEAD.unpack_from(sealed)
        if version != _VERSION or format_ != FORMAT or expires <= now_ms:
            return None
        content = sealed[:-_MAC]
        if not compare_digest(self._mac(content, id_), sealed[-_MAC:]):
            return None
        # Authentic from here on: the lengths are those that `seal` wrote.
        at = _START
        if length >= 0:
            at += length
            if content[_START:at] != fingerprint:
                return None
        elif fingerprint is not None:
            return None
        code = None
        if code_length >= 0:
            code = content[at : at + code_length].decode()
            at += code_length
        body = content[at:] if body_length >= 0 else None
        known_status, known_kind = _STATUSES.get(status), _CONTENT_TYPES.get(kind)
        if known_status is None or known_kind is None:
            return None
        result = Result(known_status, known_kind, body, code)
        expires_at = _from_timestamp(expires / 1000, UTC)
        return Row(id_, _COMPLETED, fence, fingerprint, format_, 0, 0, result, None, None, expires_at)

    def _mac(self, content: bytes, id_: bytes) -> bytes:
        # The content tells its own length, so what follows it can only be the id: no two tuples meet by joining.
        state = self._keyed.copy()
        state.update(content)
        state.update(id_)
        return state.digest()
