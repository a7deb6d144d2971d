"""The last resort for Kafka: an in-memory broker in a child process, good for the demo and nothing else.

It has no transactions, forgets everything when it ends, and drops the oldest records of a partition beyond 5 MB.
"""

import json
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from worker.errors import ConfigError, ServiceUnavailable
from worker.stack import ports
from worker.stack.process import Child, Command
from worker.stack.service import Request

_ANSWER_SECONDS = 15
_EXISTS = 36


class MemoryBroker:
    """One mock broker on a port of ours, reached through its proxy."""

    # The mock waits almost a whole session at every rebalance.
    environment: Mapping[str, str] = {"ONCEBOX_SESSION_TIMEOUT": "3s"}

    def __init__(self, request: Request) -> None:
        self._request = request
        self._child = Child()
        self._port = request.ports.get("kafka") or ports.free_port()
        self._log = request.data / "kafka.log"

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._child.process is not None
        return self._child.process.pid

    def spawn(self) -> None:
        package = Path(__file__).parents[2]
        path = self._request.environment.get("PYTHONPATH")
        environment = {**self._request.environment, "PYTHONPATH": f"{package}:{path}" if path else str(package)}
        argv = [sys.executable, "-m", "worker.stack.broker", str(self._port)]
        command = Command(argv, environment, self._request.scratch, stdin=subprocess.PIPE)
        with self._log.open("ab") as log:
            self._child.start(command, output=subprocess.PIPE, errors=log)

    def wait_ready(self) -> None:
        for _ in range(5):
            answer = self._read()
            if "ready" in answer:
                return
            self.end()
            if "kafka" in self._request.ports:
                break
            self._port = ports.free_port()
            self.spawn()
        raise ServiceUnavailable("kafka", f"the in-memory broker got no port: {answer}")

    def create_topics(self, topics: Mapping[str, int], exist_ok: bool) -> None:
        for name, partitions in topics.items():
            process = self._child.process
            assert process is not None
            assert process.stdin is not None
            process.stdin.write(json.dumps({"topic": name, "partitions": partitions}).encode() + b"\n")
            process.stdin.flush()
            code = self._read()["code"]
            if code == _EXISTS and not exist_ok:
                raise ConfigError(f"topic {name} already exists", setting=name)
            if code not in {0, _EXISTS}:
                raise ServiceUnavailable("kafka", f"topic {name} could not be created: error {code}")

    def end(self) -> None:
        self._child.end()
        process = self._child.process
        for pipe in (process.stdin, process.stdout) if process else ():
            if pipe is not None:
                pipe.close()

    def _read(self) -> dict[str, object]:
        process = self._child.process
        assert process is not None
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], _ANSWER_SECONDS)
        line = process.stdout.readline() if readable else b""
        if not line:
            tail = self._log.read_text(errors="replace").strip().splitlines()[-5:]
            raise ServiceUnavailable("kafka", "the in-memory broker does not answer", advice="\n  ".join(tail) or None)
        answer: dict[str, object] = json.loads(line)
        return answer
