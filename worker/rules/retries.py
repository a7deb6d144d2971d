"""When work that provably did nothing is tried again."""

import random
from dataclasses import dataclass
from datetime import timedelta

from worker.errors import RegistrationError
from worker.rules.durations import duration


@dataclass(frozen=True, slots=True)
class Retries:
    """Attempts with exponential backoff and jitter: `Retries(5, first="1s", most="5m")`."""

    attempts: int = 5
    first: timedelta | str | float = timedelta(seconds=1)
    most: timedelta | str | float = timedelta(minutes=5)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", duration(self.first))
        object.__setattr__(self, "most", duration(self.most))
        if self.attempts < 1:
            raise RegistrationError(
                f"retries: attempts is {self.attempts}, but the first run is an attempt, too",
                advice="use Retries(1) for a single attempt",
            )

    def delay(self, attempts: int, chance: random.Random) -> timedelta:
        """How long to wait after that many failed attempts; between half and all of the doubled step."""
        first, most = duration(self.first), duration(self.most)
        step = min(most, first * 2.0 ** min(attempts - 1, 30))
        return step * (0.5 + chance.random() / 2)

    def exhausted(self, attempts: int) -> bool:
        return attempts >= self.attempts


def retries(value: "Retries | int | None", otherwise: "Retries") -> "Retries":
    """A handler's `retries=` as a policy: a number changes only the attempts."""
    match value:
        case None:
            return otherwise
        case Retries():
            return value
        case bool():
            raise RegistrationError(f"retries={value!r} is not a number of attempts", advice="write retries=5")
        case int():
            return Retries(value, otherwise.first, otherwise.most)
