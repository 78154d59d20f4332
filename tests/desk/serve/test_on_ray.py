"""The server on Ray Serve: its configuration, and on a local Ray a model, and two replicas whose versions change."""

import copy
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from ray.serve.schema import ServeDeploySchema

from xmtc.desk.config import TOKEN_VARIABLE, read_tuning
from xmtc.desk.serve.on_ray import DEPLOYMENT, Arguments, application
from xmtc.errors import ConfigError
from xmtc.labels.relabel import rename_labels

ROOT = Path(__file__).parents[3]
CONFIG = yaml.safe_load((ROOT / "launch/serve.yaml").read_text(encoding="utf-8"))
TOKEN = "a-token-of-some-length"


def test_the_configuration_is_what_ray_takes() -> None:
    (found,) = ServeDeploySchema.model_validate(CONFIG).applications
    assert found.import_path == f"{application.__module__}:{application.__name__}"
    assert [one.name for one in found.deployments] == [DEPLOYMENT]
    workers = read_tuning(Arguments.model_validate(found.args).set).workers
    assert (
        workers
        == CONFIG["applications"][0]["deployments"][0]["ray_actor_options"]["num_cpus"]
    )


def test_wrong_arguments_are_refused_before_anything_starts() -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        Arguments.model_validate({"model": "m", "modle": "n"})
    with pytest.raises(ConfigError, match=r"limits\.text"):
        application(Arguments(model="m", set=["limits.text=3"]))


SERVED = """
import subprocess, sys, time
import ray, requests
from ray import serve
from xmtc.desk.serve.on_ray import Arguments, application
model, config, port, token = sys.argv[1:]
address = ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False).address_info["address"]
serve.start(http_options={"host": "127.0.0.1", "port": int(port)})
arguments = Arguments(model=model, set=["limits.texts=2", "workers=1"])
serve.run(application(arguments), name="xmtc", route_prefix="/")
session = requests.Session()
session.trust_env = False
place, headers = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {token}"}
assert session.get(f"{place}/ready").json() == {"status": "ready"}
assert session.get(f"{place}/model").status_code == 401
answer = session.post(f"{place}/predict", json={"texts": ["cod", "law"], "top_k": 2}, headers=headers)
assert [len(one) for one in answer.json()["predictions"]] == [2, 2]
assert session.post(f"{place}/predict", json={"texts": ["cod"] * 3}, headers=headers).status_code == 413
serve.delete("xmtc")
run = "from ray.serve.scripts import cli; cli()"
subprocess.run([sys.executable, "-c", run, "run", config, "--address", address, "--non-blocking"], check=True)
end = time.monotonic() + 120
while {"RUNNING": 2} not in [
    deployment.replica_states for app in serve.status().applications.values() for deployment in app.deployments.values()
]:
    assert time.monotonic() < end
    time.sleep(0.5)
body = {"texts": ["cod"], "top_k": 6}


def asked():
    found = session.post(f"{place}/predict", json=body, headers=headers).json()
    return found["model"], found["version"], "codfish" in {one["label"] for one in found["predictions"][0]}


assert asked() == ("laws", "1", False)
versions = f"{place}/models/laws"
assert session.post(versions, json={"version": "2"}).status_code == 401
assert session.post(versions, json={"version": "3"}, headers=headers).status_code == 409
assert session.post(versions, json={"version": "2"}, headers=headers).status_code == 200
end = time.monotonic() + 25  # the other replica looks every 15 s
while {asked() for _ in range(20)} != {("laws", "2", True)}:
    assert time.monotonic() < end
(there,) = session.get(f"{place}/models", headers=headers).json()["models"]
assert (there["version"], sorted(there["versions"])) == ("2", ["1", "2"])
serve.shutdown()
ray.shutdown()
"""


def two_replicas(models: Path, port: int) -> dict[str, Any]:
    """Make the configuration for versions, with two replicas of one processor each."""
    config = copy.deepcopy(CONFIG)
    config["http_options"] |= {"host": "127.0.0.1", "port": port}
    (found,) = config["applications"]
    found["args"] = {"models": str(models), "set": ["workers=1"]}
    (deployment,) = found["deployments"]
    deployment["ray_actor_options"] = {"num_cpus": 1}
    deployment["autoscaling_config"] |= {"min_replicas": 2, "max_replicas": 2}
    return config


@pytest.mark.faults
def test_on_a_local_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tests" / "desk")
    from served import export

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    model, models = export(tmp_path / "model"), tmp_path / "models"
    shutil.copytree(model, models / "laws/1")
    rename_labels(model, {"cod": "codfish"}, models / "laws/2")
    (models / "laws/current").write_text("1\n")
    config = tmp_path / "serve.yaml"
    config.write_text(yaml.safe_dump(two_replicas(models, port)), encoding="utf-8")
    command = [sys.executable, "-c", SERVED, str(model), str(config), str(port), TOKEN]
    subprocess.run(
        command, check=True, timeout=280, env=os.environ | {TOKEN_VARIABLE: TOKEN}
    )
