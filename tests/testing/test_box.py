"""What a handler author writes first."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.testing.shop import charge, gateway, left, notify, order, raw, registry, right, secret
from worker import Context, Registry
from worker.errors import ConfigError, UsageError
from worker.testing import Box, VirtualClock, deliver


async def lonely(message: bytes) -> None: ...


def open_server() -> AsyncIterator[None]:
    raise OSError("no such server")


PAYLOAD = {"delivery_id": "d1", "amount_cents": 5}


async def test_the_first_delivery_is_executed_and_a_second_one_is_replayed_with_the_same_bytes() -> None:
    async with Box(registry, clock=VirtualClock()) as box:
        first = await box.deliver(charge, PAYLOAD, headers={"Idempotency-Key": "k1"})
        again = await box.deliver(charge, PAYLOAD, headers={"Idempotency-Key": '"k1"'})
        assert (first.outcome, again.outcome) == ("executed", "replayed")
        assert first.result == again.result == {"receipt": "receipt-1"}
        assert first.raw == again.raw == b'{"receipt":"receipt-1"}'
        assert (first.status, first.fence, first.runs, again.runs) == ("ok", again.fence, 1, 0)
        assert box.effects.count(charge, key="k1") == len(gateway.charged) == 1


async def test_the_same_key_with_another_payload_is_misuse_and_sees_no_result(box: Box) -> None:
    first = await box.deliver(charge, PAYLOAD)
    other = await box.deliver(charge, {**PAYLOAD, "amount_cents": 6})
    assert (other.outcome, other.reason, other.result, other.raw) == ("misuse", "misuse", None, None)
    assert other.dead_letter is not None
    assert other.dead_letter.value == other.record.value
    assert box.now(first).outcome == "executed"


async def test_a_delivery_made_twice_at_once_runs_once(box: Box) -> None:
    first, second = await box.deliver_twice(charge, PAYLOAD)
    assert (first.outcome, second.outcome) == ("executed", "replayed")
    assert len(gateway.charged) == 1


async def test_redelivering_what_was_delivered_gives_the_same_answer(box: Box) -> None:
    first = await box.deliver(notify, {"delivery_id": "n", "shop": "a"})
    again = await box.redeliver(first)
    assert again.record.offset == first.record.offset + 1
    assert (again.outcome, again.result) == ("replayed", "told a")


async def test_tenants_do_not_meet(box: Box) -> None:
    for shop in ("a", "b"):
        assert (await box.deliver(notify, {"delivery_id": "n", "shop": shop})).outcome == "executed"
    assert box.effects.count(notify, key="n") == 2
    assert box.effects.count(notify, key="n", tenant="b") == 1
    entry = box.entry(notify, key="n", tenant="a")
    assert entry is not None
    assert entry.state == "completed"
    assert box.entry(notify, key="n", tenant="c") is None


async def test_records_of_a_shared_topic_reach_the_handler_their_header_names(box: Box) -> None:
    assert (await box.deliver(left, {"delivery_id": "1"}, headers={"type": "left"})).result == "left"
    assert (await box.deliver("routed", {"delivery_id": "2"}, headers={"type": "right"})).result == "right"
    assert box.entry(right, key="2") is not None
    assert box.entry(left, key="2") is None


async def test_bytes_and_null_headers_pass_unchanged(box: Box) -> None:
    delivered = await box.deliver(raw, b"\x00\x01", headers=[("Idempotency-Key", b"k"), ("empty", None)])
    assert (delivered.outcome, delivered.result) == ("executed", b"\x01\x00")
    assert delivered.record.headers == (("Idempotency-Key", b"k"), ("empty", None))


async def test_private_keys_are_stored_nowhere(box: Box) -> None:
    delivered = await box.deliver(secret, {"delivery_id": "somebody"})
    assert delivered.result == "(private)"
    assert [entry.key for entry in box.tables.entries.values()] == [None]
    assert box.entry(secret, key="somebody") is not None


async def test_the_one_line_form_goes_to_the_open_box(box: Box) -> None:
    handler: Any = charge
    assert (await handler.deliver(PAYLOAD, headers={"Idempotency-Key": "k"})).outcome == "executed"
    assert box.entry(charge, key="k") is not None


async def test_the_one_line_form_opens_a_box_for_the_rest_of_the_test() -> None:
    assert (await deliver(charge, PAYLOAD)).outcome == "executed"
    assert (await deliver(charge, PAYLOAD)).outcome == "replayed"
    assert (await deliver(order, PAYLOAD)).outcome == "executed"


async def test_a_new_test_starts_with_an_empty_box() -> None:
    assert (await deliver(charge, PAYLOAD)).outcome == "executed"


async def test_handlers_share_what_lifespans_open_or_what_the_test_gives() -> None:
    shop = Registry()
    events = []

    @shop.lifespan
    async def rates() -> AsyncIterator[dict[str, int]]:
        events.append("opened")
        yield {"rate": 7}
        events.append("closed")

    @shop.handler("rates", scope="jobs", key="id", kind="repeatable")
    async def rate(message: dict[str, Any], context: Context) -> Any:
        return context.resources["rate"]

    async with Box(shop) as box:
        assert (await box.deliver(rate, {"id": "1"})).result == 7
        await box.restart()
        assert events == ["opened", "closed", "opened"]
    assert events == ["opened", "closed", "opened", "closed"]
    async with Box(shop, resources={"rate": 8}) as box:
        assert (await box.deliver(rate, {"id": "1"})).result == 8


async def test_two_boxes_of_one_test_share_one_clock() -> None:
    async with Box(registry) as one, Box(registry) as two:
        await one.deliver(charge, PAYLOAD)
        assert (await two.deliver(charge, PAYLOAD)).outcome == "executed"
        assert one.clock is two.clock
        with pytest.raises(ConfigError, match="same clock"):
            await Box(registry, clock=VirtualClock()).__aenter__()


async def test_a_box_that_cannot_open_gives_the_loop_back() -> None:
    shop = Registry()

    @shop.lifespan
    async def broken() -> AsyncIterator[Any]:
        yield open_server()

    loop = asyncio.get_running_loop()
    selector = vars(loop)["_selector"]
    with pytest.raises(OSError, match="no such server"):
        await Box(shop).__aenter__()
    assert vars(loop)["_selector"] is selector
    assert len(asyncio.all_tasks()) == 1


def test_another_kind_of_loop_is_refused_with_advice() -> None:
    uvloop = pytest.importorskip("uvloop")
    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(ConfigError, match="asyncio's own"),
    ):
        runner.run(Box(registry).__aenter__())


async def test_mistakes_of_the_test_are_told(box: Box) -> None:
    with pytest.raises(UsageError, match="not registered"):
        box.entry(Registry().handler("t", scope="jobs", key="id")(lonely), key="k")
    with pytest.raises(UsageError, match="no handler of this box reads 'elsewhere'"):
        await box.deliver("elsewhere", {})
    with pytest.raises(UsageError, match="choose one of after_claim"):
        await box.deliver(charge, PAYLOAD, crash="later")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not in doubt"):
        await box.reconcile(charge, key="nobody")
    with pytest.raises(UsageError, match="no reconciler"):
        await box.reconcile(order, key="nobody")


async def test_an_unfinished_delivery_ends_with_its_box() -> None:
    gateway.behave = lambda: asyncio.get_running_loop().create_future()
    async with Box(registry) as box:
        waiting = asyncio.ensure_future(box.deliver(charge, PAYLOAD))
        await gateway.busy.wait()
    assert (await waiting).outcome is None


async def test_a_stop_cancels_what_outlives_the_drain_time_and_the_next_process_reads_it_again(box: Box) -> None:
    gateway.behave = lambda: asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(box.deliver(order, PAYLOAD))
    await gateway.busy.wait()
    restarting = asyncio.ensure_future(box.restart())
    await box.advance("10s")
    gateway.behave = lambda: None
    [again] = await restarting
    assert (await waiting).outcome is None
    assert (again.outcome, again.attempts, again.runs) == ("executed", 1, 2)
