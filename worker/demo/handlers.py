"""The example handlers on the topics of one run of the demo, which ONCEBOX_DEMO_RUN names.

For worker processes only: `oncebox run worker.demo.handlers`.
"""

import os
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec

from worker.rules.registry import Registry


def examples() -> Registry:
    """The examples as one registry: from `worker.examples` in a wheel, from `handlers` beside the source."""
    package = "worker.examples" if find_spec("worker.examples") else "handlers"
    merged = Registry()
    for name in ("payments", "orders", "search"):
        merged.include(import_module(f"{package}.{name}").registry)
    return merged


def on_topics_of(run: str, registry: Registry) -> Registry:
    """The same handlers, reading the topics of this run."""
    registry.handlers = [
        replace(handler, topics=tuple(f"{run}.{topic}" for topic in handler.topics)) for handler in registry.handlers
    ]
    return registry


registry = on_topics_of(os.environ["ONCEBOX_DEMO_RUN"], examples())
