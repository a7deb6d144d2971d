"""What one contender is asked to do, handed to its process by environment: passwords never show in a process list."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Job:
    """Read this topic to its end, as this group, remembering keys in this schema."""

    topic: str
    messages: int
    group: str
    schema: str
    limit: int  # seconds after which the process ends itself
    options: Mapping[str, Any] = field(default_factory=dict)  # what only some workloads need

    def environment(self) -> Mapping[str, str]:
        return {
            "ONCEBOX_GROUP": self.group,
            "ONCEBOX_SCHEMA": self.schema,
            "ONCEBOX_BENCH_TOPIC": self.topic,
            "ONCEBOX_BENCH_MESSAGES": str(self.messages),
            "ONCEBOX_BENCH_LIMIT": str(self.limit),
            "ONCEBOX_BENCH_OPTIONS": json.dumps(dict(self.options)),
            # Any free port: a worker of somebody else may have the usual one.
            "ONCEBOX_HTTP_PORT": "0",
        }

    @classmethod
    def from_environment(cls) -> Self:
        return cls(
            topic=os.environ["ONCEBOX_BENCH_TOPIC"],
            messages=int(os.environ["ONCEBOX_BENCH_MESSAGES"]),
            group=os.environ["ONCEBOX_GROUP"],
            schema=os.environ["ONCEBOX_SCHEMA"],
            limit=int(os.environ["ONCEBOX_BENCH_LIMIT"]),
            options=json.loads(os.environ["ONCEBOX_BENCH_OPTIONS"]),
        )
