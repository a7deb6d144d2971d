"""The chart, rendered by the real helm."""

from functools import cache
from typing import Any

import yaml

from tests.deploy.folder import DEPLOY, run, tool

CHART = DEPLOY / "chart"
Manifest = dict[str, Any]


@cache
def rendered(*changes: str, values: str = "full") -> tuple[Manifest, ...]:
    """Everything a release holds with these values and changes, in helm's order."""
    done = _template(values, changes)
    assert done.returncode == 0, done.stderr
    return tuple(document for document in yaml.safe_load_all(done.stdout) if document)


def refusal(*changes: str, values: str = "minimal") -> str:
    """Why helm does not render these values."""
    done = _template(values, changes)
    assert done.returncode != 0, "helm accepted it"
    return str(done.stderr)


def only(kind: str, *changes: str, values: str = "full", name: str = "") -> Manifest:
    """The one object of a kind."""
    found = [m for m in rendered(*changes, values=values) if m["kind"] == kind and m["metadata"]["name"].endswith(name)]
    assert len(found) == 1, f"{len(found)} of kind {kind}"
    return found[0]


def environment(container: Manifest) -> dict[str, str]:
    """What a container's own variables are, secrets as secret/key."""
    return {
        variable["name"]: variable["value"]
        if "value" in variable
        else "{name}/{key}".format(**variable["valueFrom"]["secretKeyRef"])
        for variable in container.get("env", [])
    }


def worker(*changes: str, values: str = "full") -> Manifest:
    """The pod of the Deployment."""
    pod: Manifest = only("Deployment", *changes, values=values)["spec"]["template"]["spec"]
    return pod


def _template(values: str, changes: tuple[str, ...]) -> Any:
    sets = [word for change in changes for word in ("--set-json", change)]
    return run(tool("helm"), "template", "billing", CHART, "--values", CHART / "ci" / f"{values}.yaml", *sets)
