"""From a key to the entries that carry it: there is no index on keys, but every id can be computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from worker.errors import UsageError, WrongState

if TYPE_CHECKING:
    from worker.ledger.keys import Keys, Operation, Story
    from worker.settings import Settings

Key = Annotated[str, typer.Argument(metavar="KEY", help="An idempotency key, or an entry's id.", show_default=False)]
Hex = Annotated[bool, typer.Option("--hex", help="KEY is hexadecimal: for keys that are no text.")]
InScope = Annotated[str | None, typer.Option("--scope", metavar="NAME", help="Only this scope.", show_default=False)]
OfOperation = Annotated[
    str | None, typer.Option("--operation", metavar="NAME", help="Only this operation.", show_default=False)
]
OfTenant = Annotated[
    str | None, typer.Option("--tenant", metavar="NAME", help="The tenant the key belongs to.", show_default=False)
]


@dataclass(frozen=True, slots=True)
class Sought:
    """What was asked for on the command line."""

    key: str
    hex: bool = False
    scope: str | None = None
    operation: str | None = None
    tenant: str | None = None

    @property
    def key_bytes(self) -> bytes:
        if not self.hex:
            # What the shell could not decode comes as surrogates, and goes back to the bytes that were typed.
            return self.key.encode(errors="surrogateescape")
        try:
            return bytes.fromhex(self.key)
        except ValueError:
            raise UsageError(
                f"{self.key!r} is not hexadecimal\n  write two digits per byte, or leave out --hex"
            ) from None

    @property
    def tenant_bytes(self) -> bytes | None:
        return None if self.tenant is None else self.tenant.encode(errors="surrogateescape")

    @property
    def entry_id(self) -> bytes | None:
        """The key read as an entry's id, if it can be one: many keys are UUIDs, too, so both are looked for."""
        try:
            return None if self.hex else UUID(self.key).bytes
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Candidates:
    """The ids a key may have, and where it was not looked for, and why."""

    ids: Sequence[bytes]
    notes: Sequence[str]


async def candidates(keys: "Keys", settings: "Settings", sought: Sought) -> Candidates:
    """Every id the key may have in this ledger; secrets of scopes with private keys come from the settings."""
    from worker.rules.identity import Identity

    key = sought.key_bytes
    ids = [sought.entry_id] if sought.entry_id is not None else []
    notes: list[str] = []
    for operation in chosen(list((await keys.operations()).values()), sought.scope, sought.operation):
        tenants, note = await _tenants(keys, operation, sought)
        if note:
            notes.append(note)
        secret, note = _secret(settings, operation)
        if note:
            notes.append(note)
            continue
        identity = Identity(scope=operation.scope, operation=operation.operation, secret=secret)
        ids += [identity.entry_id(tenant, key) for tenant in tenants]
    return Candidates(list(dict.fromkeys(ids)), notes)


def chosen(known: "Sequence[Operation]", scope: str | None, operation: str | None) -> "list[Operation]":
    """The operations that were asked for; a name that nobody ever registered is a mistake."""
    from worker.settings.near import near

    for what, wanted, names in (
        ("scope", scope, {o.scope for o in known}),
        ("operation", operation, {o.operation for o in known}),
    ):
        if wanted is not None and wanted not in names:
            listed = f"this ledger has {', '.join(sorted(names)) or 'none'}"
            raise UsageError(f"there is no {what} {wanted!r}\n  {near(wanted, names, otherwise=listed)}")
    return [o for o in known if scope in (None, o.scope) and operation in (None, o.operation)]


async def one_story(keys: "Keys", settings: "Settings", sought: Sought) -> "Story":
    """The one entry that is meant; several or none are refused, with what there is."""
    found = await candidates(keys, settings, sought)
    stories = [story for story in await keys.stories(found.ids) if story.entry is not None]
    if not stories:
        raise WrongState(f"there is no entry for {sought.key!r}", advice="\n  ".join(found.notes) or None)
    if len(stories) > 1:
        lines = [f"{story.id}  {story.entry.operation.name}  {story.state}" for story in stories if story.entry]
        several = "\n  ".join(lines)
        raise UsageError(f"{sought.key!r} is the key of {len(stories)} entries: name one by its id\n  {several}")
    return stories[0]


async def _tenants(keys: "Keys", operation: "Operation", sought: Sought) -> tuple[list[bytes | None], str | None]:
    given = sought.tenant_bytes
    if not operation.has_tenants:
        return ([] if given is not None else [None]), None
    if given is not None:
        return [given], None
    if operation.secret is not None:
        return [], f"{operation.name} has tenants: name one with --tenant to look there"
    found, all_of_them = await keys.tenants(operation)
    note = f"{operation.name} has tenants: looked for {len(found)} of its newest; --tenant names another"
    return [*found], None if all_of_them else note


def _secret(settings: "Settings", operation: "Operation") -> tuple[bytes | None, str | None]:
    from worker.engine.routes import secret_digest, secret_variable

    if operation.secret is None:
        return None, None
    secret = settings.scope(operation.scope).secret
    if secret is None:
        variable = secret_variable(operation.scope)
        return None, f"{operation.name} has private keys: set {variable} or {variable}_FILE to look there"
    value = secret.get_secret_value().encode()
    if secret_digest(value) != operation.secret:
        return None, f"{operation.name} has private keys, made with another secret than the one that is set"
    return value, None
