"""Tracing: a span per execution, linked to its producer, current in the handler, carried on; none without a tracer."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from pydantic import BaseModel

from tests.engine.load import message
from tests.engine.site import Site
from tests.stack.client import Sent
from worker import Context, Effect, Registry, Scope, header

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Message(BaseModel):
    """What the tests send."""

    id: str
    act: str = "return"


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What the worker's tracer has exported; a provider of this test's own, for the global one can be set only once."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("worker.app.opening.find_tracer", lambda notice: provider.get_tracer("oncebox"))
    return exporter


def registry_for(topic: str, results: str, seen: list[Any]) -> Registry:
    registry = Registry()

    @registry.handler(topic, scope="payments", key="id", result_topic=results)
    async def work(message: Message, context: Context, effect: Effect) -> str:
        async def child() -> None:
            seen.append(trace.get_current_span().get_span_context())

        await asyncio.gather(child())
        async with effect:
            if message.act == "fail":
                raise RuntimeError("secret words")
        return message.id

    return registry


async def test_an_execution_is_a_span_linked_to_its_producer_and_carried_on(
    site: Site, exported: InMemorySpanExporter
) -> None:
    topic, results = site.topic(), site.topic(letters=False)
    seen: list[Any] = []
    given = [("traceparent", PARENT), ("correlation-id", b"c1")]
    site.produce(topic, [Sent(message("k"), key=b"line", headers=given), Sent(message("k"), headers=given)])
    site.produce(topic, [Sent(message("k2", act="fail")), Sent(b"no json", headers=given)])
    await site.run(registry_for(topic, results, seen))

    first, failed = exported.get_finished_spans()
    assert (first.name, first.kind) == (f"process {topic}", SpanKind.CONSUMER)
    assert first.parent is None
    [link] = first.links
    assert f"{link.context.trace_id:032x}-{link.context.span_id:016x}".encode() in PARENT
    assert first.context is not None
    assert [context.span_id for context in seen][:1] == [first.context.span_id], "current while the handler runs"
    assert dict(first.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "messaging.consumer.group.name": site.group,
        "messaging.kafka.message.key": "line",
        "oncebox.operation": "payments/work",
        "oncebox.attempt": 1,
        "oncebox.key": "k",
        "oncebox.outcome": "executed",
    }
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "RuntimeError"
    assert "secret words" not in failed.to_json()
    assert not failed.links

    ours = f"00-{first.context.trace_id:032x}-{first.context.span_id:016x}-".encode()
    published = [dict(one.headers) for one in site.read(results)]
    answer, replay = sorted(published, key=lambda headers: "Idempotent-Replayed" in headers)
    assert (answer["traceparent"] or b"").startswith(ours)
    assert answer["correlation-id"] == b"c1"
    assert replay["traceparent"] == PARENT, "a duplicate is not executed: its own context is passed on"
    [letter] = site.dead_letters(topic)
    assert dict(letter.headers)["traceparent"] == PARENT, "headers of a dead letter stay unchanged"


async def test_a_span_of_a_private_scope_tells_no_key(site: Site, exported: InMemorySpanExporter) -> None:
    topic = site.topic()
    registry = Registry()
    registry.add(Scope("people", ttl="1h", private_keys=True))

    @registry.handler(topic, scope="people", key=header("Idempotency-Key"))
    async def work(message: bytes) -> None:
        pass

    site.produce(topic, [Sent(b"{}", key=b"kafka-secret", headers=[("Idempotency-Key", b"key-secret")])])
    await site.run(registry, ONCEBOX_SCOPE_PEOPLE_SECRET="x" * 32)
    [span] = exported.get_finished_spans()
    assert "secret" not in span.to_json()


async def test_what_is_not_sampled_passes_the_original_context_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = TracerProvider(sampler=ALWAYS_OFF).get_tracer("oncebox")
    monkeypatch.setattr("worker.app.opening.find_tracer", lambda notice: tracer)
    topic, results = site.topic(), site.topic(letters=False)
    site.produce(topic, [Sent(message("k"), headers=[("traceparent", PARENT)])])
    await site.run(registry_for(topic, results, []))
    [answer] = site.read(results)
    assert dict(answer.headers)["traceparent"] == PARENT


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True, timeout=60
    )
    return done.stdout.strip()


FIND = "import sys; from worker.observe.traces import find_tracer; tell = lambda e, **f: print(e, f.get('next'))\n"


def test_without_a_tracer_nothing_is_loaded() -> None:
    assert python(FIND + "print(find_tracer(tell), 'opentelemetry' in sys.modules)") == "None False"


def test_a_provider_that_someone_has_set_is_used() -> None:
    code = "from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider\n"
    code += "trace.set_tracer_provider(TracerProvider()); print(type(find_tracer(tell)).__module__)"
    assert python(FIND + code) == "opentelemetry.sdk.trace"


def test_the_api_alone_is_no_tracer() -> None:
    assert python(FIND + "from opentelemetry import trace; print(find_tracer(tell))") == "None"


@pytest.mark.parametrize("off", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_an_endpoint_is_not_used_when_tracing_is_switched_off(off: dict[str, str]) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    assert python(FIND + "print(find_tracer(tell))", **endpoint, **off) == "None"


def test_an_endpoint_without_the_exporter_is_told() -> None:
    hide = "sys.modules['opentelemetry.exporter'] = None\n"
    answer = python(FIND + hide + "print(find_tracer(tell))", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    assert answer == "tracing_off install oncebox[otel]\nNone"
