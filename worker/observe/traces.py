"""Tracing: one consumer span per execution, linked to the trace its producer began. Without a tracer nothing is loaded.

The API is all that is needed here; who wants spans sets a tracer provider in a handlers' module or lifespan, runs under
`opentelemetry-instrument`, or installs oncebox[otel] and says where to send them by OTEL_EXPORTER_OTLP_ENDPOINT.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from worker.rules.record import Record
from worker.version import VERSION

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
Headers = Sequence[tuple[str, bytes]]


def find_tracer(notice: Callable[..., None]) -> Any:
    """The tracer of this process, or None. Asked once, when the handlers' modules and resources are loaded."""
    wanted = _wanted(os.environ)
    if not wanted and "OTEL_PYTHON_TRACER_PROVIDER" not in os.environ and "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    if wanted and _is_none(trace.get_tracer_provider()):
        _export(notice)
    provider = trace.get_tracer_provider()
    return None if _is_none(provider) else provider.get_tracer("oncebox", VERSION)


def _is_none(provider: Any) -> bool:
    from opentelemetry import trace

    return isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)


def _wanted(environment: Mapping[str, str]) -> bool:
    """Whether the usual variables ask for spans to be sent."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if environment.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return False
    return any(environment.get(name) for name in _ENDPOINTS)


def _export(notice: Callable[..., None]) -> None:
    """Set a provider that sends spans in the background; it is flushed when the process exits."""
    from opentelemetry import trace

    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        notice("tracing_off", error=f"{error.name} is not installed", next="install oncebox[otel]")
        return
    name = os.environ.get("OTEL_SERVICE_NAME") or "oncebox"
    provider = TracerProvider(resource=Resource.create({"service.name": name, "service.version": VERSION}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


class Spans:
    """Makes the spans of one consumer group."""

    def __init__(self, tracer: Any, *, group: str) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = tracer
        self._group = group
        self._propagator = TraceContextTextMapPropagator()

    @contextlib.contextmanager
    def process(self, record: Record, about: Mapping[str, str | int], *, private: bool) -> Iterator["Span"]:
        """A span that is current while the handler runs; `about` are attributes of our own."""
        from opentelemetry.trace import SpanKind

        attributes: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": record.topic,
            "messaging.destination.partition.id": str(record.partition),
            "messaging.kafka.offset": record.offset,
            "messaging.consumer.group.name": self._group,
            **about,
        }
        if record.key is not None and not private:
            attributes["messaging.kafka.message.key"] = record.key.decode(errors="replace")
        with self._tracer.start_as_current_span(
            f"process {record.topic}",
            context=None,
            kind=SpanKind.CONSUMER,
            links=self._links(record),
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield Span(span, self._propagator)

    def _links(self, record: Record) -> list[Any]:
        from opentelemetry.context import Context
        from opentelemetry.trace import Link, get_current_span

        carrier = {
            name.lower(): value.decode("ascii", "replace")
            for name, value in record.headers
            if value is not None and name.lower() in ("traceparent", "tracestate")
        }
        if "traceparent" not in carrier:
            return []
        producer = get_current_span(self._propagator.extract(carrier, context=Context())).get_span_context()
        return [Link(producer)] if producer.is_valid else []


class Span:
    """The span of one execution."""

    def __init__(self, span: Any, propagator: Any) -> None:
        self._span = span
        carrier: dict[str, str] = {}
        if span.get_span_context().trace_flags.sampled:
            propagator.inject(carrier)
        self.headers: Headers = tuple((name, value.encode()) for name, value in carrier.items())

    def ended(self, outcome: str, error: str | None = None) -> None:
        """Say how the execution ended; an error is named by its class, never by its text."""
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attribute("oncebox.outcome", outcome)
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR, error))
