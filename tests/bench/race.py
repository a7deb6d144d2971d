"""One run of one contender: a process of its own, watched from outside, and its claims checked."""

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import servers
from tests.bench.contenders import Contender, Measure, Workload
from tests.bench.database import Database
from tests.bench.job import Job
from tests.bench.messages import prefix
from tests.bench.topics import Topics

REPO = Path(__file__).parents[2]


class Wrong(Exception):
    """A run that did not do what it should have done: its time means nothing."""


@dataclass(frozen=True, slots=True)
class Track:
    """Where contenders run."""

    database: Database
    topics: Topics
    environment: Mapping[str, str]
    pids: Mapping[str, int]
    messages: int
    slow_messages: int
    limit: int  # seconds for one run

    def measure(self, contender: Contender, number: int) -> Iterator[Measure]:
        """Run the contender over fresh keys, and then, if it remembers, over completed ones."""
        with self.database.schema_for(contender) as schema:
            for workload in contender.workloads:
                messages = self.messages
                if contender.slow and workload == "unique":
                    messages = self.slow_messages
                elif contender.slow:
                    self.database.complete_rest(schema, prefix(self.topics.run), messages)
                job = Job(self.topics.names[messages], messages, _group(), schema, self.limit)
                yield self._run(contender, workload, job, number)

    def _run(self, contender: Contender, workload: Workload, job: Job, number: int) -> Measure:
        load = os.getloadavg()[0]
        found, used = self._watch(contender, job)
        self._check(contender, workload, job, found)
        self.topics.forget(job.group)
        per_message = {name: seconds / job.messages * 1e6 for name, seconds in used.items()}
        return Measure(
            contender.name,
            workload,
            number,
            job.messages,
            seconds=found["seconds"],
            worker_us=found["cpu_seconds"] / job.messages * 1e6,
            postgres_us=per_message.get("postgres"),
            kafka_us=per_message.get("kafka"),
            rss_mb=found["rss_bytes"] / 1e6,
            load=load,
        )

    def _watch(self, contender: Contender, job: Job) -> tuple[dict[str, Any], dict[str, float]]:
        """What the process said of itself, and the servers' CPU between its assignment and its last word."""
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *contender.command],
                cwd=REPO,
                env={**os.environ, **self.environment, **job.environment()},
                stdout=subprocess.PIPE,
                stderr=log,
            )
            try:
                assert process.stdout is not None
                began = process.stdout.readline()
                before = servers.cpu_seconds(self.pids)
                said = process.stdout.readline()
                after = servers.cpu_seconds(self.pids)
                code = process.wait()
            finally:
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
            if code != 0 or began != b"began\n" or not said:
                log.seek(0)
                tail = log.read().decode(errors="replace").splitlines()[-15:]
                raise Wrong("\n".join([f"{contender.name} ended with code {code}", *tail]))
        return json.loads(said), {name: after[name] - before[name] for name in before}

    def _check(self, contender: Contender, workload: Workload, job: Job, found: Mapping[str, Any]) -> None:
        rows = 0 if contender.remembers == "nothing" else job.messages
        calls = rows if workload == "unique" else 0
        counts = {
            "records read": (found["messages"], job.messages),
            "handler calls": (found["calls"], calls),
            "keys completed": (self.database.completed(job.schema, contender), rows),
            "records committed": (self.topics.committed(job.group, job.messages), job.messages),
        }
        for what, (counted, wanted) in counts.items():
            if counted != wanted:
                raise Wrong(f"{contender.name}, {workload}: {counted} {what}, not {wanted}")


def _group() -> str:
    return f"bench-{secrets.token_hex(4)}"
