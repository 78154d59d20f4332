"""Models go to a Hub and come back the same; what cannot work is said in one line. The Hub here is `hub_server`."""

import json
import os
import re
import shutil
import signal
import threading
from pathlib import Path

import huggingface_hub.constants as hub_constants
import pytest

from crashing_trials import crash_trials
from hub_server import Hub
from xmtc.artefact.hub import locate_model, push
from xmtc.errors import CheckpointError, ConfigError, StorageError, XmtcError
from xmtc.predict.predictor import Model

NAME = "library/subjects"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    monkeypatch.setattr(hub_constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub_constants, "ENDPOINT", server.url)
    template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(hub_constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(hub_constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub_constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    monkeypatch.chdir(tmp_path)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def model(whole, tmp_path) -> Path:
    return shutil.copytree(whole.run / "model", tmp_path / "run/model")


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def message(error: type[XmtcError], name: str = NAME) -> str:
    with pytest.raises(error) as caught:
        locate_model(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_model_comes_back_the_same_and_stays_without_the_hub(hub, model, monkeypatch):
    assert push(model, NAME) == f"{hub.url}/{NAME}"
    assert hub.private == {NAME}
    hub.repositories[NAME]["other.bin"] = b"large"
    texts = ["the law of fishing", "steel for schools"]
    expected = Model.from_pretrained(model, device="cpu").predict(texts)
    assert Model.from_pretrained(NAME, device="cpu").predict(texts) == expected
    assert "other.bin" not in hub.asked
    assert files_of(locate_model(NAME)) == files_of(model)
    monkeypatch.setattr(hub_constants, "HF_HUB_OFFLINE", True)
    asked = len(hub.asked)
    assert files_of(locate_model(NAME)) == files_of(model)
    assert len(hub.asked) == asked
    assert "HF_HUB_OFFLINE" in message(StorageError, "library/unknown")


def test_files_that_crash_native_code_are_refused(hub, model, tmp_path, monkeypatch):
    push(model, NAME)
    crash_trials(monkeypatch, tmp_path)
    assert "ended by signal 11" in message(CheckpointError)
    assert locate_model(model) == model  # what is here already is not tried


def test_a_newer_model_replaces_the_files_of_the_older_one(hub, model):
    push(model, NAME, public=True)
    assert not hub.private
    first = locate_model(NAME)
    content = json.loads((model / "config.json").read_text())
    hub.repositories[NAME]["old.json"] = b"{}"
    older = {**content, "sha256": {**content["sha256"], "old.json": "0"}}
    hub.repositories[NAME]["config.json"] = json.dumps(older).encode()
    (model / "README.md").write_text("# Newer\n")
    push(model, NAME)
    assert set(hub.repositories[NAME]) == {*files_of(model), ".gitattributes"}
    assert (locate_model(NAME) / "README.md").read_text() == "# Newer\n"
    assert locate_model(f"{NAME}@{first.name}") == first


@pytest.mark.parametrize("step", ["repos", "preupload", "commit"])
def test_a_push_that_is_killed_leaves_the_older_model_whole(hub, model, step):
    push(model, NAME)
    older = dict(hub.repositories[NAME])
    (model / "README.md").write_text("# Newer\n")
    pid = os.fork()
    if pid == 0:
        push(model, NAME)
        os._exit(0)
    hub.killing = step, pid
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert hub.repositories[NAME] == older
    hub.killing = None
    push(model, NAME)
    assert hub.repositories[NAME]["README.md"] == b"# Newer\n"


def test_what_a_local_path_may_mean_is_never_asked_of_the_hub(hub, model):
    hub.status = 500
    assert locate_model("run/model") == Path("run/model")
    assert locate_model("run/mistyped") == Path("run/mistyped")
    assert locate_model(model) == model


@pytest.mark.parametrize("name", ["runs/news", "models/laws", "runs/news@main"])
def test_a_folder_that_is_not_here_is_no_repository(hub, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    said = message(CheckpointError, name)
    assert "no such folder" in said
    assert str(tmp_path) in said
    assert not hub.asked


def test_mistakes_are_reported_in_one_line(hub, model):
    assert "no such repository" in message(CheckpointError)
    hub.repositories[NAME] = {"config.json": b'{"model_type": "bert"}'}
    assert "no model of xmtc" in message(CheckpointError)
    assert "no such revision" in message(CheckpointError, f"{NAME}@v9")
    hub.repositories[NAME] = {"README.md": b"x"}
    assert "no model of xmtc" in message(CheckpointError)
    hub.repositories[NAME]["data.csv"] = b"x"
    with pytest.raises(ConfigError, match=r"data\.csv"):
        push(model, NAME)
    assert set(hub.repositories[NAME]) == {"README.md", "data.csv"}
    with pytest.raises(ConfigError, match="give owner/name"):
        push(model, "subjects")
    with pytest.raises(CheckpointError, match="missing"):
        push(model.parent, NAME)
    hub.status = 403
    with pytest.raises(StorageError, match="HF_TOKEN"):
        push(model, NAME)
    hub.reason = "Private repository storage limit reached"
    for hub.status in (400, 403):
        with pytest.raises(
            StorageError, match=rf"answers {hub.status} \(.*storage limit reached"
        ):
            push(model, NAME)


@pytest.mark.parametrize(
    "name",
    [
        "a--b/c",
        "library/x..y",
        "library/subjects.",
        "library/x.git",
        "library/" + 97 * "x",
    ],
)
def test_a_name_that_no_repository_may_have_is_refused(hub, model, name):
    for refused in (lambda: push(model, name), lambda: locate_model(name)):
        with pytest.raises(ConfigError, match=re.escape(name)):
            refused()
    assert not hub.repositories


def test_what_the_hub_says_of_a_model_card_or_a_token_is_passed_on(
    hub, model, monkeypatch
):
    card = (model / "README.md").read_text()
    (model / "README.md").write_text(
        card.replace("---\n", "---\nbase_model: /home/me/bert\n", 1)
    )
    with pytest.raises(ConfigError, match=r"base_model.* is not valid.*README\.md"):
        push(model, NAME)
    assert set(hub.repositories[NAME]) <= {".gitattributes"}
    (model / "README.md").write_text(card)
    monkeypatch.setenv("HF_TOKEN", "hf_geheimnis_ä")
    with pytest.raises(ConfigError, match="HF_TOKEN") as caught:
        push(model, NAME)
    assert "geheimnis" not in str(caught.value)


def test_no_network_is_reported_in_one_line(hub, model, monkeypatch):
    monkeypatch.setattr(hub_constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(
        hub_constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        "http://127.0.0.1:9/{repo_id}/{revision}/{filename}",
    )
    monkeypatch.setattr(
        "time.sleep", lambda seconds: None
    )  # the client tries again for some seconds
    assert "cannot be reached" in message(StorageError)
    with pytest.raises(StorageError, match="no answer of the Hub"):
        push(model, NAME)


def test_the_shell_pushes_and_predicts(hub, model, xmtc):
    outcome = xmtc("push", model, NAME)
    assert (outcome.code, outcome.out.strip()) == (0, f"{hub.url}/{NAME}")
    outcome = xmtc("predict", NAME, "--text", "the law of fishing")
    assert outcome.code == 0
    assert json.loads(outcome.out)["labels"]
    outcome = xmtc("predict", "library/unknown", "--text", "x")
    assert outcome.code == 1
    assert outcome.err.startswith(
        "CheckpointError: library/unknown: no such folder here"
    )
