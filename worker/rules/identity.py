"""Who an entry is: one digest of scope, operation, tenant and key, and the tokens derived from it.

Every part goes in with its length, so that no two tuples meet by joining. With a secret the digests are keyed, so that
nobody can find out from a table, a log or a cache whether a known key was ever used.
"""

from hashlib import blake2b
from typing import Final

from worker.errors import ConfigError

FORMAT: Final = 1

_ENTRY: Final = b"oncebox entry"
_EFFECT: Final = b"oncebox effect"
_NO_TENANT: Final = b"\x00"
_TENANT: Final = b"\x01"


class Identity:
    """What the identities of one handler have in common, digested ahead."""

    __slots__ = ("_prefix", "operation", "scope")

    def __init__(self, *, scope: str, operation: str, secret: bytes | None = None) -> None:
        self.scope = scope
        self.operation = operation
        self._prefix = blake2b(
            bytes((FORMAT,)) + _sized(scope.encode()) + _sized(operation.encode()),
            digest_size=16,
            key=b"" if secret is None else derived(secret, _ENTRY),
            person=_ENTRY,
        )

    def entry_id(self, tenant: bytes | None, key: bytes) -> bytes:
        """The 16 bytes that stand for this tenant's key; no tenant is not the empty tenant."""
        digest = self._prefix.copy()
        if tenant is None:
            digest.update(_NO_TENANT + len(key).to_bytes(4) + key)
        else:
            digest.update(_TENANT + len(tenant).to_bytes(4) + tenant + len(key).to_bytes(4) + key)
        return digest.digest()


def entry_id(*, scope: str, operation: str, tenant: bytes | None, key: bytes, secret: bytes | None = None) -> bytes:
    """The 16 bytes that stand for (format, scope, operation, tenant, key); keyed if there is a secret."""
    return Identity(scope=scope, operation=operation, secret=secret).entry_id(tenant, key)


def effect_key(entry: bytes, name: str = "") -> str:
    """The token to hand to other systems: 48 characters 0-9a-f, the same on every attempt at this entry.

    It needs the entry id alone, so a reconciler can derive it where no readable key is stored. It does not lead back to
    the id, and where ids are keyed nobody without the secret can derive it from the key.
    """
    return blake2b(_sized(entry) + name.encode(), digest_size=24, person=_EFFECT).hexdigest()


def derived(secret: bytes, purpose: bytes) -> bytes:
    """A key of its own for each purpose a secret serves; an empty secret is refused, as it would protect nothing."""
    if not secret:
        raise ConfigError(
            "the secret of a scope with private keys is empty", advice="Give it at least 32 random bytes."
        )
    return blake2b(_sized(secret) + purpose, digest_size=32, person=b"oncebox secret").digest()


def _sized(part: bytes) -> bytes:
    return len(part).to_bytes(4) + part
