"""What the HTTP port answers: /livez, /readyz, /healthz, /metrics."""

from collections.abc import Mapping
from http import HTTPStatus

import orjson

from worker.observe.collector import Exposition
from worker.observe.health import Ask, Health
from worker.observe.http import Page, Request, Response


def pages(health: Health, exposition: Exposition) -> Mapping[str, Page]:
    """Pages by path. Probes look at what is known already: none of them waits for anything."""

    def livez(request: Request) -> Response:
        return _health(health, health.live, request)

    def readyz(request: Request) -> Response:
        return _health(health, health.ready, request)

    def metrics(request: Request) -> Response:
        content_type, body = exposition.render(request.accept)
        return Response(HTTPStatus.OK, content_type, body)

    return {"/livez": livez, "/readyz": readyz, "/healthz": readyz, "/metrics": metrics}


def _health(health: Health, checks: Mapping[str, Ask], request: Request) -> Response:
    found = health.ask(checks)
    ok = all(check.ok for check in found.values())
    told: dict[str, object] = {
        "ok": ok,
        "checks": {name: {"ok": c.ok} if c.ok else {"ok": False, "why": c.why} for name, c in found.items()},
    }
    if "verbose" in request.query:
        told["about"] = dict(health.about())
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    return Response(status, "application/json", orjson.dumps(told, option=orjson.OPT_INDENT_2) + b"\n")
