"""What is scraped: plain numbers, read when someone asks, under the names of the table and no others."""

import platform
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import (
    Metric as Family,
)
from prometheus_client.registry import Collector

from worker.observe.histograms import Histogram
from worker.observe.table import BY_NAME, METRICS, Metric
from worker.version import VERSION

Sample = tuple[str, tuple[str, ...], "float | Histogram"]
Source = Callable[[], Iterable[Sample]]


class Exposition:
    """Renders what its sources say now. Sources never wait, and are asked from the loop's own thread only."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Table(self._sources))
        ProcessCollector(registry=self._registry)

    def add(self, source: Source) -> None:
        self._sources.append(source)

    def render(self, accept: str) -> tuple[str, bytes]:
        """Content type and body, in the form the scraper prefers."""
        encoder, content_type = choose_encoder(accept)
        return content_type, encoder(self._registry)


class _Table(Collector):
    """Families in the order of the table. A sample of a name that is not there is an error, and the tests see it."""

    def __init__(self, sources: list[Source]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Family]:
        families = {metric.name: _family(metric) for metric in METRICS if metric.about != "process"}
        families["oncebox_build_info"].add_metric((), {"version": VERSION, "python": platform.python_version()})
        for source in self._sources:
            for name, labels, value in source():
                assert len(labels) == len(BY_NAME[name].labels), name
                if isinstance(value, Histogram):
                    families[name].add_metric(labels, list(value.buckets()), value.total)
                else:
                    families[name].add_metric(labels, value)
        yield from families.values()


def _family(metric: Metric) -> Any:
    match metric.type:
        case "counter":
            return CounterMetricFamily(metric.family, metric.help, labels=metric.labels)
        case "gauge":
            return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        case "histogram":
            return HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        case "info":
            return InfoMetricFamily(metric.family, metric.help)
