"""Launch files: shell syntax, and manifests against the fields that KubeRay's operator needs."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests import weights_missing
from xmtc.config.load import load_config
from xmtc.run.config import RunConfig

ROOT = Path(__file__).parents[2]
SCRIPTS = ["launch/local.sh", "launch/slurm/train.sbatch", "tools/check/submit_demo.sh"]
MANIFESTS = ["launch/k8s/rayjob.yaml", "launch/k8s/raycluster.yaml"]
# Of KubeRay's RayJobSpec (v1), what is used here: the operator drops a misspelt field without a word.
JOB_FIELDS = {
    "entrypoint": str,
    "runtimeEnvYAML": str,
    "submissionMode": str,
    "backoffLimit": int,
    "shutdownAfterJobFinishes": bool,
    "ttlSecondsAfterFinished": int,
    "rayClusterSpec": dict,
}


def manifest(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def cluster_spec(name: str) -> dict[str, Any]:
    spec = manifest(name)["spec"]
    return spec.get("rayClusterSpec", spec)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_parse_and_never_stop_the_ray_of_others(name: str) -> None:
    subprocess.run(["bash", "-n", str(ROOT / name)], check=True)
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "set -euo pipefail" in text
    commands = "\n".join(
        line for line in text.splitlines() if not line.lstrip().startswith("#")
    )
    assert not re.search(r"ray\W*stop|pkill|killall", commands)


def test_a_script_without_a_configuration_says_so() -> None:
    result = subprocess.run(
        [ROOT / "launch/local.sh"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "usage: launch/local.sh CONFIG" in result.stderr


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_are_what_the_operator_takes(name: str) -> None:
    top = manifest(name)
    assert top["apiVersion"] == "ray.io/v1"
    assert top["kind"] in ("RayJob", "RayCluster")
    assert set(top) == {"apiVersion", "kind", "metadata", "spec"}
    spec = cluster_spec(name)
    assert set(spec) == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    assert set(spec["headGroupSpec"]) == {"rayStartParams", "template"}
    for group in spec["workerGroupSpecs"]:
        assert set(group) == {
            "groupName",
            "replicas",
            "minReplicas",
            "maxReplicas",
            "rayStartParams",
            "template",
        }
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    params = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    assert all(
        isinstance(value, str)
        for one in params
        for value in one["rayStartParams"].values()
    )


@pytest.mark.parametrize("name", MANIFESTS)
def test_pods_mount_what_they_declare_and_ask_for_gpus_in_limits(name: str) -> None:
    spec = cluster_spec(name)
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert {m["name"] for m in container["volumeMounts"]} == {
            v["name"] for v in pod["volumes"]
        }
        assert {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"} <= {
            e["name"] for e in container["env"]
        }
        assert container["resources"]["requests"] == container["resources"]["limits"]
    for group in spec["workerGroupSpecs"]:
        assert (
            int(
                group["template"]["spec"]["containers"][0]["resources"]["limits"][
                    "nvidia.com/gpu"
                ]
            )
            == 4
        )


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_pod_that_is_taken_has_time_for_a_checkpoint(name: str) -> None:
    """Ray waits for the run until its own limit, which must lie before Kubernetes' one."""
    spec = cluster_spec(name)
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        variables = {
            entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]
        }
        waits_s = int(variables["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"])
        assert 30 <= waits_s < pod["terminationGracePeriodSeconds"]


def test_the_jobs_fields_are_the_operators() -> None:
    spec = manifest("launch/k8s/rayjob.yaml")["spec"]
    assert {name: type(value) for name, value in spec.items()} == JOB_FIELDS
    assert spec["submissionMode"] in ("K8sJobMode", "HTTPMode", "InteractiveMode")


def test_the_job_has_the_gpus_and_the_version_that_its_configuration_wants() -> None:
    job = manifest("launch/k8s/rayjob.yaml")["spec"]
    found = re.search(r"configs/\S+\.yaml", job["entrypoint"])
    assert found
    settings = load_config(RunConfig, ROOT / found[0]).distributed
    (group,) = job["rayClusterSpec"]["workerGroupSpecs"]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert (
        group["replicas"] * int(limits["nvidia.com/gpu"])
        == settings.workers * settings.gpus_per_worker
    )
    per_node = settings.workers / group["replicas"]
    assert int(limits["cpu"]) >= per_node * settings.cpus_per_worker
    pinned = re.search(
        r"^ray(?:\[\S+\])?==(\S+)$",
        (ROOT / "constraints.txt").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert pinned
    assert job["rayClusterSpec"]["rayVersion"] == pinned[1]
    assert job["backoffLimit"] >= 1
    assert yaml.safe_load(job["runtimeEnvYAML"])["working_dir"].startswith("/")


IMAGES = {"Dockerfile": "xmtc:{}", "Dockerfile.gpu": "xmtc:{}-gpu"}


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_pinned_run_without_root_and_copy_what_their_context_has(
    name: str,
) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert f"-t {IMAGES[name].format(project()['version'])} " in text
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {
        "python:3.11-slim-bookworm"
    }
    assert (
        "pip install --no-cache-dir --disable-pip-version-check -c constraints.txt"
        in text
    )
    assert text.index("USER 1000") > text.rindex("COPY")
    extras = [
        extra
        for named in re.findall(r'"\.\[(.+)\]"', text)
        for extra in named.split(",")
    ]
    assert set(extras) <= set(project()["optional-dependencies"])
    context = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        assert set(sources.split()) <= context
        assert all((ROOT / source).exists() for source in sources.split())


def test_a_job_without_the_hub_reads_weights_from_a_claim() -> None:
    job = manifest("launch/k8s/rayjob.yaml")
    assert not list(weights_missing(job))
    job["spec"]["runtimeEnvYAML"] = (
        "env_vars: {HF_HUB_OFFLINE: '1', HF_HOME: /root/.cache}"
    )
    assert len(list(weights_missing(job))) == 2, "head and workers"
    job["spec"]["runtimeEnvYAML"] = "env_vars: {}"
    assert not list(weights_missing(job))


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_run_the_gpu_image_without_root(name: str) -> None:
    spec = cluster_spec(name)
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert (
            pod["containers"][0]["image"] == f"REGISTRY/xmtc:{project()['version']}-gpu"
        )
        assert pod["securityContext"]["runAsNonRoot"]


def test_the_workflow_tests_the_pythons_that_the_package_names() -> None:
    workflow = yaml.safe_load(
        (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    )
    tested = workflow["jobs"]["test"]["strategy"]["matrix"]["python-version"]
    named = [
        line.rpartition(" ")[2]
        for line in project()["classifiers"]
        if re.search(r":: 3\.\d+$", line)
    ]
    assert tested == named
    calls = [
        step["run"]
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    assert any("make test-wheel" in call for call in calls)
    targets = set(
        re.findall(
            r"^([a-z-]+):",
            (ROOT / "Makefile").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    )
    assert {call.split()[1] for call in calls if call.startswith("make ")} <= targets
