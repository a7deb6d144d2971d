"""An engine that answers but cannot serve does not keep the stack from starting."""

import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from worker.stack import start


class _Sulking(BaseHTTPRequestHandler):
    """A Docker engine that says hello and refuses everything else."""

    def do_GET(self) -> None:
        if self.path.endswith("/_ping"):
            self._answer(200, "OK")
        elif self.path.endswith("/version"):
            self._answer(200, json.dumps({"ApiVersion": "1.47", "Version": "27"}))
        else:
            self._answer(500, json.dumps({"message": "no disk"}))

    def do_POST(self) -> None:
        self._answer(500, json.dumps({"message": "no disk"}))

    def _answer(self, code: int, text: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def address_string(self) -> str:
        return "local"

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    place = str(tmp_path / "docker.sock")
    with socketserver.ThreadingUnixStreamServer(place, _Sulking) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{place}")
        monkeypatch.delenv("REDIS_URL", raising=False)
        yield place
        server.shutdown()


def test_a_local_process_takes_over_and_says_why(engine: str) -> None:
    said: list[str] = []
    with start(["redis"], say=said.append) as stack:
        assert stack.redis is not None
        assert stack.redis.how == "local"
        assert "Docker could not start redis:" in stack.redis.why
    assert said[0].startswith("redis: starting redis:")
