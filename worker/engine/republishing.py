"""Between a replay's pipeline and its publisher: results again or not, and a tally of the dead letters."""

from collections.abc import Sequence

from worker.engine.ports import Publisher
from worker.rules.outgoing import Outgoing
from worker.rules.tally import Tally


class Republishing:
    """Publishes as its publisher does; without `results`, answers to duplicates are left out."""

    def __init__(self, publisher: Publisher, *, results: bool, letters: Tally) -> None:
        self._publisher = publisher
        self._results = results
        self._letters = letters

    async def publish(self, outgoing: Sequence[Outgoing]) -> list[Exception | None]:
        if not self._results:
            wanted = [out for out in outgoing if not _again(out)]
            answers = iter(await self._sent(wanted))
            return [None if _again(out) else next(answers) for out in outgoing]
        return await self._sent(outgoing)

    async def _sent(self, outgoing: Sequence[Outgoing]) -> list[Exception | None]:
        answers = await self._publisher.publish(outgoing) if outgoing else []
        for out, problem in zip(outgoing, answers, strict=True):
            about = {name: value or b"" for name, value in out.headers}
            if problem is None and "oncebox.reason" in about:
                place = b"%b/%b@%b" % tuple(about[f"__dlq.errors.{w}"] for w in ("topic", "partition", "offset"))
                names = [about.get(f"oncebox.{word}", b"").decode() for word in ("scope", "operation")]
                handler = "/".join(names) if all(names) else None
                self._letters.add(about["oncebox.reason"].decode(), handler, None, place.decode())
        return answers


def _again(out: Outgoing) -> bool:
    return ("Idempotent-Replayed", b"true") in out.headers
