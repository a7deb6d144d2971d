"""What was published: results and dead letters, collected instead of sent."""

from collections.abc import Sequence

from worker.errors import ServiceUnavailable
from worker.rules.outgoing import Outgoing, TooLarge
from worker.testing.topics import Position

DEAD_LETTERS = "dlq."


class Outbox:
    """Collects what the engine publishes; topics in `unwritable` refuse, records over `largest` bytes are too large."""

    def __init__(self) -> None:
        self.published: list[Outgoing] = []
        self.unwritable: set[str] = set()
        self.largest: int | None = None

    @property
    def dead_letters(self) -> list[Outgoing]:
        return [o for o in self.published if is_dead(o)]

    @property
    def replies(self) -> list[Outgoing]:
        """What was told to those who asked by `reply_to`."""
        return [o for o in self.published if is_reply(o)]

    @property
    def results(self) -> list[Outgoing]:
        """What was published to result topics."""
        return [o for o in self.published if not is_dead(o) and not is_reply(o)]

    async def publish(self, outgoing: Sequence[Outgoing]) -> list[Exception | None]:
        answers = [self._refusal(one) for one in outgoing]
        self.published += [one for one, answer in zip(outgoing, answers, strict=True) if answer is None]
        return answers

    def about(self, position: Position) -> list[Outgoing]:
        """What was published about the record that stands there."""
        topic, partition, offset = position
        source = f"{topic}/{partition}@{offset}".encode()
        return [o for o in self.published if source in (text(o, "oncebox.source"), _dead_from(o))]

    def _refusal(self, one: Outgoing) -> Exception | None:
        if one.topic in self.unwritable:
            return ServiceUnavailable("kafka", f"{one.topic} is not writable")
        if self.largest is not None and len(one.value or b"") > self.largest:
            return TooLarge(f"{len(one.value or b'')} bytes")
        return None


def is_dead(outgoing: Outgoing) -> bool:
    # Not by its reason: a result that was cut says why, too.
    return text(outgoing, "__dlq.errors.topic") is not None


def is_reply(outgoing: Outgoing) -> bool:
    return text(outgoing, "oncebox.reply-status") is not None


def text(outgoing: Outgoing, name: str) -> bytes | None:
    """The value of a header; of a repeated name the last one."""
    return dict(outgoing.headers).get(name)


def _dead_from(outgoing: Outgoing) -> bytes | None:
    headers = dict(outgoing.headers)
    if not is_dead(outgoing):
        return None
    topic, partition, offset = (headers[f"__dlq.errors.{name}"] or b"" for name in ("topic", "partition", "offset"))
    return topic + b"/" + partition + b"@" + offset
