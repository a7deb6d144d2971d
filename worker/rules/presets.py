"""Keys for known webhook providers, each in a name space of its own so that no two providers' ids can meet."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from worker.errors import RegistrationError
from worker.rules.document import Document
from worker.rules.fingerprint import FingerprintRule
from worker.rules.providers import PROVIDERS
from worker.rules.record import Record
from worker.rules.sources import KeyRule, within_limits


@dataclass(frozen=True, slots=True)
class Preset(KeyRule):
    """A provider's key with the preset's name in front: `stripe:evt_…`.

    `note` says why the key is stable; `fingerprint` looks at what a retry does not change.
    """

    name: str
    rule: KeyRule
    note: str
    fingerprint: FingerprintRule

    def read(self, record: Record, document: Document) -> bytes | None:
        key = self.rule.read(record, document)
        if key is None:
            return None
        return within_limits(b"%b:%b" % (self.name.encode(), key), self)

    def describe(self) -> str:
        return f"preset({self.name}: {self.rule.describe()})"

    @property
    def parts(self) -> tuple[KeyRule, ...]:
        return (self.rule,)


PRESETS: Final[dict[str, Preset]] = {
    name: Preset(name, provider.rule, provider.note, provider.fingerprint) for name, provider in PROVIDERS.items()
}


def find_preset(name: str) -> Preset:
    """The preset of this name; an unknown name is refused with the nearest known ones."""
    found = PRESETS.get(name)
    if found is not None:
        return found
    near = get_close_matches(name.lower().replace("_", "-"), PRESETS, n=3, cutoff=0.5)
    advice = f"Did you mean {' or '.join(near)}?" if near else f"Known presets: {', '.join(PRESETS)}."
    raise RegistrationError(f"there is no preset {name!r}", advice=advice)
