"""Check launch/k8s against KubeRay's own schema: every field, its type, and no field that the operator would drop.

.venv/bin/python tools/check/manifests.py kuberay/ray-operator/config/crd/bases

The folder is that of a checkout of KubeRay, at the release that the cluster runs.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml

ROOT = Path(__file__).parents[2]
MANIFESTS = {
    "launch/k8s/rayjob.yaml": "ray.io_rayjobs.yaml",
    "launch/k8s/raycluster.yaml": "ray.io_rayclusters.yaml",
}


def problems(manifest: Any, definition: Any) -> Iterator[str]:
    """What a manifest has wrong, each with its place."""
    version = manifest["apiVersion"].partition("/")[2]
    (schema,) = (
        one["schema"]
        for one in definition["spec"]["versions"]
        if one["name"] == version
    )
    schema = strict(schema["openAPIV3Schema"])
    schema["properties"][
        "metadata"
    ] = {}  # Kubernetes' own, which a definition does not repeat
    for error in jsonschema.Draft7Validator(schema).iter_errors(manifest):
        yield f"{'.'.join(map(str, error.path))}: {error.message[:200]}"


def strict(schema: Any) -> Any:
    """The schema with unknown fields refused, as `kubectl --validate=strict` does."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if found.get("x-kubernetes-int-or-string"):
        found = {
            key: value for key, value in found.items() if key not in ("type", "pattern")
        }
    if (
        "properties" in found
        and found.get("type") == "object"
        and "x-kubernetes-preserve-unknown-fields" not in found
    ):
        found.setdefault("additionalProperties", False)
    return found


def weights_missing(manifest: Any) -> Iterator[str]:
    """Where a job that may not reach the hub keeps no weights: `HF_HOME` has to be on a volume that all nodes mount."""
    variables = yaml.safe_load(manifest["spec"].get("runtimeEnvYAML", "{}")).get(
        "env_vars", {}
    )
    if variables.get("HF_HUB_OFFLINE", "0") == "0":
        return
    cluster = manifest["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        claims = {
            one["name"] for one in pod["volumes"] if "persistentVolumeClaim" in one
        }
        mounts = [
            one
            for container in pod["containers"]
            for one in container["volumeMounts"]
            if one["name"] in claims
        ]
        home = Path(variables.get("HF_HOME", ""))
        if not any(home.is_relative_to(one["mountPath"]) for one in mounts):
            name = group.get("groupName", "the head")
            yield f"spec.runtimeEnvYAML: HF_HUB_OFFLINE without HF_HOME on a claim that {name} mounts"


def main(arguments: list[str]) -> int:
    """Check both manifests; returns the exit code."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print(__doc__, file=sys.stderr)
        return 2
    count = 0
    for name, definition in MANIFESTS.items():
        manifest = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
        found = list(
            problems(
                manifest,
                yaml.safe_load(
                    (Path(arguments[0]) / definition).read_text(encoding="utf-8")
                ),
            )
        )
        found += weights_missing(manifest)
        print(f"{name}: {len(found)} problems", *found, sep="\n  ")
        count += len(found)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
