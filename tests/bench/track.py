"""One run of one contender: processes of its own, watched from outside, and their claims checked."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.bench import servers
from tests.bench.contenders import Contender
from tests.bench.database import Database
from tests.bench.job import Job
from tests.bench.measure import Measure
from tests.bench.memory import Memory
from tests.bench.topics import Topic, Topics

REPO = Path(__file__).parents[2]


class Wrong(Exception):
    """A run that did not do what it should have done: its time means nothing."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one contender is to do, and what must be true afterwards; None is not looked at."""

    contender: Contender
    workload: str
    round: int
    topic: Topic
    schema: str
    case: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    processes: int = 1
    calls: int | None = None
    completed: int | None = None
    committed: int | None = None
    feed: Callable[[], None] | None = None  # called when all processes are ready
    stays: bool = False  # its processes end only when they are told to: everything is committed


class Track:
    """Where contenders run."""

    def __init__(
        self,
        database: Database,
        topics: Topics,
        *,
        environment: Mapping[str, str],
        pids: Mapping[str, int],
        limit: int,
        seen: Callable[[Measure], None],
    ) -> None:
        self.database = database
        self.topics = topics
        self._redis = {"REDIS_URL": environment["REDIS_URL"]} if "REDIS_URL" in environment else {}
        self._environment = {name: value for name, value in environment.items() if name != "REDIS_URL"}
        self._pids = pids
        self._limit = limit  # seconds for one run
        self._seen = seen

    def measure(self, run: Run) -> Measure:
        """Run it, check what it did, and say what it took."""
        load = os.getloadavg()[0]
        job = Job(run.topic.name, run.topic.messages, _group(), run.schema, self._limit, run.options)
        found, used, memory = self._watch(run, job)
        self._check(run, job, found)
        self.topics.forget(job.group)
        messages = run.topic.messages
        began, ended = min(one["began"] for one in found), max(one["ended"] for one in found)
        plain = {"began", "ended", "cpu_seconds", "rss_bytes", "messages", "calls"}
        measure = Measure(
            run.workload,
            run.case,
            run.contender.name,
            run.round,
            messages,
            seconds=ended - began,
            worker_us=sum(one["cpu_seconds"] for one in found) / messages * 1e6,
            server_us={name: seconds / messages * 1e6 for name, seconds in used.items()},
            rss_mb=max(one["rss_bytes"] for one in found) / 1e6,
            load=load,
            detail={
                **{name: value for name, value in found[0].items() if name not in plain},
                "memory": [(round(at - began, 2), round(mb, 1)) for at, mb in memory if began <= at <= ended],
            },
        )
        self._seen(measure)
        return measure

    def _watch(self, run: Run, job: Job) -> tuple[list[dict[str, Any]], dict[str, float], list[tuple[float, float]]]:
        """What the processes said of themselves, the servers' CPU meanwhile, and the memory of the first process."""
        with contextlib.ExitStack() as ending:
            log = ending.enter_context(tempfile.TemporaryFile())
            members = [ending.enter_context(self._process(run, job, log)) for _ in range(run.processes)]
            memory = ending.enter_context(Memory(members[0].pid))
            began = [_line(member) for member in members]
            before = servers.cpu_seconds(self._pids)
            if run.feed is not None and all(began):
                run.feed()
            if run.stays:
                self._until_committed(run, job, members)
            said = [_line(member) for member in members]
            after = servers.cpu_seconds(self._pids)
            codes = [member.wait() for member in members]
            if any(codes) or any(line != b"began\n" for line in began) or not all(said):
                log.seek(0)
                tail = log.read().decode(errors="replace").splitlines()[-15:]
                raise Wrong(
                    "\n".join([f"{run.contender.name}, {run.workload} ended with {codes}, said {began} {said}", *tail])
                )
        return (
            [json.loads(line) for line in said],
            {name: after[name] - before[name] for name in before},
            memory.samples,
        )

    @contextlib.contextmanager
    def _process(self, run: Run, job: Job, log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
        module, *words = run.contender.command
        own = {**run.contender.settings, **(self._redis if run.contender.redis else {})}
        given = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.bench.contenders.{module}", *words],
            cwd=REPO,
            env={**given, **self._environment, **own, **job.environment()},
            stdout=subprocess.PIPE,
            stderr=log,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def _until_committed(self, run: Run, job: Job, members: list[subprocess.Popen[bytes]]) -> None:
        """Wait until the group has committed everything, then ask its members to stop."""
        deadline = time.monotonic() + self._limit
        while self.topics.committed(job.group, run.topic) < run.topic.messages and time.monotonic() < deadline:
            if any(member.poll() is not None for member in members):
                break
            time.sleep(0.1)  # between two looks: the broker tells nobody of commits
        for member in members:
            member.send_signal(signal.SIGTERM)

    def _check(self, run: Run, job: Job, found: list[dict[str, Any]]) -> None:
        counts = {
            "records read": (sum(one["messages"] for one in found), job.messages),
            "handler calls": (sum(one["calls"] for one in found), run.calls),
            "keys completed": (self._completed(run), run.completed),
            "records committed": (self._committed(run, job), run.committed),
            "messages out of order": (sum(one.get("disorder", 0) for one in found), 0),
        }
        for what, (counted, wanted) in counts.items():
            if wanted is not None and counted != wanted:
                raise Wrong(f"{run.contender.name}, {run.workload} {run.case}: {counted} {what}, not {wanted}")

    def _completed(self, run: Run) -> int | None:
        return None if run.completed is None else self.database.completed(run.schema, run.contender)

    def _committed(self, run: Run, job: Job) -> int | None:
        return None if run.committed is None else self.topics.committed(job.group, run.topic)


def _line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def _group() -> str:
    return f"bench-{secrets.token_hex(4)}"
