"""Between a claim's answer and its batch being noted, the session's thread may look: it must find the claim."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from tests.ledger.conftest import EITHER_WAY, Notices, OpenLedger, Schema, make_ledger
from tests.ledger.offers import id_of, offers
from tests.waiting import eventually_sync
from worker.ledger.fences import Fences
from worker.rules.claims import State


class Slow(set[int]):
    """Calls under way, of which one is taken out slowly."""

    def __init__(self, meanwhile: Callable[[], Coroutine[Any, Any, None]]) -> None:
        super().__init__()
        self.meanwhile: Callable[[], Coroutine[Any, Any, None]] | None = meanwhile

    def discard(self, fence: object) -> None:
        super().discard(fence)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            thread = threading.Thread(target=asyncio.run, args=(meanwhile(),))
            thread.start()
            thread.join()


@EITHER_WAY
async def test_a_claim_that_was_settled_while_its_answer_was_noted_may_not_start(
    open_ledger: OpenLedger, ledger_schema: Schema, notices: Notices
) -> None:
    ledger = await open_ledger()
    await ledger.claims.claim(offers("draws a block"))
    before = ledger.session.id

    async def settle_elsewhere() -> None:
        admin = make_ledger(ledger_schema.settings(), Notices())
        await admin.open()
        async with admin.line() as line:
            await line.fetch(ledger_schema.sql("UPDATE oncebox.sessions SET ended_at = now() WHERE id = $1"), before)
        assert (await admin.settling.settle())[State.UNKNOWN] == 2
        await admin.close()
        ledger.session.check()
        eventually_sync(lambda: notices.of("session_replaced"))

    ledger.fences.calling = Slow(settle_elsewhere)
    claimed = await ledger.claims.claim(offers("k"))
    assert claimed.winner(id_of("k")) is not None
    assert (await ledger_schema.entry("k"))["state"] == State.UNKNOWN
    assert ledger.session.safe()
    assert not ledger.session.covers(claimed.fence), "a reconciler may be about to let it run elsewhere"


def test_an_answer_between_two_looks_hides_no_claim() -> None:
    fences = Fences()
    fences.calling.add(7)

    def answered() -> None:
        if 7 in fences.calling:
            fences.opened(7, 1)
            fences.calling.discard(7)

    class Calling(set[int]):
        def copy(self) -> set[int]:
            found = set(self)
            answered()
            return found

    class Open(dict[int, int]):
        def copy(self) -> dict[int, int]:
            found = dict(self)
            answered()
            return found

    fences.calling, fences._open = Calling(fences.calling), Open()
    assert fences.held() == {7}
