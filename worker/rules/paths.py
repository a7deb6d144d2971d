"""Where a value stands in a JSON payload: names joined by dots.

A path leads through objects only. Elements of arrays have no place in it: which of them is meant would be a guess.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from worker.errors import RegistrationError
from worker.rules.reasons import Refused

_DOT: Final = re.compile(r"(?<!\\)\.")
ONLY: Final = "[only]"


@dataclass(frozen=True, slots=True)
class Path:
    """Names from the root of a payload to one value; `ONLY` stands for the single element of an array."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Path":
        r"""Read `order.client_reference`; a dot that belongs to a name is written `\.`."""
        names = tuple(name.replace("\\.", ".") for name in _DOT.split(text))
        if not all(names):
            raise RegistrationError(
                f"field path {text!r} has an empty name",
                advice="Write the names from the payload's root joined by single dots, such as order.client_reference.",
            )
        if any("[" in name for name in names):
            raise RegistrationError(
                f"field path {text!r} points into an array",
                advice="Which element is meant would be a guess: split the array upstream into one record per element.",
            )
        return cls(names)

    def find(self, payload: Any) -> Any:
        """The value at this path, None if it is absent or null; refused when an array stands in the way."""
        value = payload
        for name in self.names:
            if type(value) is dict:
                value = value.get(name)
            elif type(value) is list:
                value = self._only(value, name)
            else:
                return None
        return value

    def _only(self, elements: list[Any], name: str) -> Any:
        if name != ONLY:
            raise Refused("invalid_key", f"an array stands in the way of {self}; split it upstream, one record each")
        if len(elements) != 1:
            raise Refused("invalid_key", f"{self} needs exactly one element but found {len(elements)}; split upstream")
        return elements[0]

    def __str__(self) -> str:
        return ".".join(name.replace(".", "\\.") for name in self.names)
