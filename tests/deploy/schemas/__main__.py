"""Fetches the schemas in this folder anew: `python -m tests.deploy.schemas` (needs Go for `go mod download`).

ScaledObject and TriggerAuthentication are KEDA's, PodMonitor and PrometheusRule Prometheus Operator's, and
compose-spec.json is the Compose specification's, all Apache-2.0; descriptions are left out. Custom resources are closed
here: a cluster drops a field that it does not know without a word.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
KEDA = "github.com/kedacore/keda/v2@v2.21.0"
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
COMPOSE = "github.com/compose-spec/compose-go/v2@v2.16.2"
RESOURCES = {
    "config/crd/bases/keda.sh_scaledobjects.yaml": KEDA,
    "config/crd/bases/keda.sh_triggerauthentications.yaml": KEDA,
    "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml": OPERATOR,
    "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml": OPERATOR,
}


def fetched(module: str) -> Path:
    done = subprocess.run(["go", "mod", "download", "-json", module], capture_output=True, text=True, check=True)
    return Path(json.loads(done.stdout)["Dir"])


def shortened(node: Any) -> Any:
    """Without descriptions; a property that happens to be called description is kept, for it is no text."""
    if isinstance(node, dict):
        return {name: shortened(v) for name, v in node.items() if name != "description" or not isinstance(v, str)}
    return [shortened(item) for item in node] if isinstance(node, list) else node


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """A structural schema of Kubernetes as JSON schema, with unknown fields refused."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    kept = {n: v for n, v in schema.items() if not n.startswith("x-kubernetes") and n not in ("format", "default")}
    if str(kept.get("pattern", "")).startswith("^(?i)"):
        kept.pop("pattern")  # Go's spelling of "in any case"; Python refuses it there
    if "properties" in kept:
        kept["properties"] = {name: closed(child) for name, child in kept["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            kept.setdefault("additionalProperties", False)
    for name in ("items", "additionalProperties"):
        if isinstance(kept.get(name), dict):
            kept[name] = closed(kept[name])
    return kept


def write(name: str, schema: Any) -> None:
    (HERE / f"{name}.json").write_text(json.dumps(schema, separators=(",", ":")) + "\n")


def main() -> None:
    for path, module in RESOURCES.items():
        definition = yaml.safe_load((fetched(module) / path).read_text())["spec"]
        version = next(version for version in definition["versions"] if version["storage"])
        schema = closed(shortened(version["schema"]["openAPIV3Schema"]))
        schema["properties"]["metadata"] = {"type": "object"}
        write(definition["names"]["kind"], schema)
    write("compose-spec", shortened(json.loads((fetched(COMPOSE) / "schema/compose-spec.json").read_text())))


if __name__ == "__main__":
    main()
