"""A folder of models: their versions change while the server answers, and only for versions that pass the checks."""

import json
import os
import re
import shutil
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import served
from served import LABELS, TEXTS, Client, load, running

import xmtc
from crashing_trials import crash_trials
from s3_server import BUCKET, s3
from xmtc.desk.config import ServeConfig
from xmtc.desk.serve import models as served_models
from xmtc.desk.serve import server
from xmtc.desk.serve.models import Models
from xmtc.errors import CheckpointError, ConfigError
from xmtc.labels.relabel import rename_labels
from xmtc.predict.smoke import check_answers, write_answers
from xmtc.run.copies import fetch_model
from xmtc.storage.remote import Remote

BODY = {"texts": TEXTS[:1], "top_k": 2}


@pytest.fixture
def folder(
    served_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """German and English models; the English one has a second version, with another name of a label."""
    monkeypatch.setattr(served_models, "LOOK_SECONDS", 0.1)
    for place in ("de/1", "en/1"):
        write_answers(shutil.copytree(served_folder, tmp_path / "models" / place))
    rename_labels(served_folder, {"cod": "codfish"}, tmp_path / "models/en/2")
    (tmp_path / "models/en/current").write_text("1\n")
    return tmp_path / "models"


def until(client: Client, version: str) -> None:
    end = time.monotonic() + 20
    while client.get("/models/en/labels").headers["Xmtc-Version"] != version:
        assert time.monotonic() < end, f"version {version} does not answer"
        time.sleep(0.05)


def test_models_are_chosen_by_path_or_name(folder: Path) -> None:
    with running(folder) as client:
        german, english = client.get("/models").json()["models"]
        assert (german["model"], english["model"], english["labels"]) == (
            "de",
            "en",
            len(LABELS),
        )
        assert (english["version"], english["versions"]) == ("1", {"1": {}, "2": {}})
        assert english["vocabulary"].startswith("sha256:")
        client.post("/models/en", {"version": "2"})
        for path, model, version in (
            ("/predict", "de", "1"),
            ("/predict?model=en", "en", "2"),
            ("/models/en/predict", "en", "2"),
            ("/models/de/predict", "de", "1"),
        ):
            answer = client.post(path, BODY | {"threshold": "tuned"})
            named = {key: answer.json()[key] for key in ("model", "version", "rule")}
            assert named == {"model": model, "version": version, "rule": "micro"}
            assert answer.headers["Xmtc-Version"] == version
        assert [
            one["project_id"] for one in client.get("/v1/projects").json()["projects"]
        ] == ["de", "en"]
        answer = client.session.post(
            f"{client.place}/v1/projects/en/suggest", data={"text": "cod", "limit": 6}
        )
        assert "codfish" in {one["uri"] for one in answer.json()["results"]}
        assert (answer.headers["Xmtc-Model"], answer.headers["Xmtc-Version"]) == (
            "en",
            "2",
        )
        missing = client.post("/models/fr/predict", BODY)
        assert missing.status_code == 404
        assert (
            missing.json()["detail"] == "Project 'fr' not found: the models are de, en"
        )


def test_switching_under_load_loses_no_request(folder: Path) -> None:
    with running(folder, workers=2) as client, ThreadPoolExecutor(8) as pool:
        over, seen = threading.Event(), Counter[str]()

        def ask(_: int) -> None:
            own = Client(client.port)
            while not over.is_set():
                answer = own.post(
                    "/models/en/predict", {"texts": TEXTS, "top_k": len(LABELS)}
                )
                assert answer.status_code == 200, answer.text
                content = answer.json()
                found = [
                    {one["label"] for one in labels}
                    for labels in content["predictions"]
                ]
                assert all(
                    ("codfish" in labels) == (content["version"] == "2")
                    for labels in found
                )
                seen[content["version"]] += 1
            own.session.close()

        asking = [pool.submit(ask, number) for number in range(8)]
        for number in range(20):
            answer = client.post(
                "/models/en", {"version": "2" if number % 2 == 0 else "1"}
            )
            assert answer.status_code == 200, answer.text
            time.sleep(0.1)
        over.set()
        for one in asking:
            one.result()
        assert min(seen["1"], seen["2"]) >= 10


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda two: (two / "head.safetensors").write_bytes(b"x"),
            r"en/2/head.safetensors: damaged \(checksum",
        ),
        (
            lambda two: (two / "smoke.json").write_text(
                '[{"text": "a", "labels": {"cod": 2}}]'
            ),
            "'cod' has probability",
        ),
        (
            lambda two: (two / "smoke.json").write_text('[{"text": 1}]'),
            "smoke.json: .*Input should be a valid string",
        ),
        (lambda two: (two / "config.json").unlink(), "no version '2'; there are 1"),
        (
            lambda two: os.truncate(two / "config.json", 1 << 40),
            "en/2: needs 1024.0 GiB",
        ),
    ],
)
def test_a_bad_version_is_refused_and_the_old_one_answers(
    folder: Path, damage, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage(folder / "en/2")
    with running(folder) as client:
        answer = client.post("/models/en", {"version": "2"})
        assert answer.status_code == 409
        assert answer.json()["detail"].startswith("en: 1 stays: ")
        assert re.search(words, answer.json()["detail"])
        assert re.search(words, caplog.text)
        assert str(folder) not in answer.text
        assert client.post("/models/en/predict", BODY).json()["version"] == "1"
        assert (folder / "en/current").read_text() == "1\n"
        (folder / "en/current").write_text("2\n")
        time.sleep(0.5)
        assert client.post("/models/en/predict", BODY).json()["version"] == "1"


def test_a_version_that_crashes_native_code_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(folder) as client:
        crash_trials(monkeypatch, tmp_path)
        answer = client.post("/models/en", {"version": "2"})
        assert answer.status_code == 409
        assert "ended by signal 11" in answer.json()["detail"]
        assert client.post("/models/en/predict", BODY).json()["version"] == "1"


def test_a_current_version_may_be_written_with_a_byte_order_mark(folder: Path) -> None:
    (folder / "en/current").write_text("2\r\n", encoding="utf-8-sig", newline="")
    with running(folder) as client:
        assert client.post("/models/en/predict", BODY).json()["version"] == "2"


def test_a_version_is_a_name_not_a_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Path] = []
    stamp = served_models._stamp
    with running(folder) as client:
        monkeypatch.setattr(
            served_models, "_stamp", lambda path: looked.append(path) or stamp(path)
        )
        for version in ("", str(folder), "../de/1", "a" * 300):
            assert client.post("/models/en", {"version": version}).status_code == 409, (
                version
            )
    assert {path.parent for path in looked} <= {folder / "de", folder / "en"}
    assert {path.name for path in looked} <= {"1", "2"}


def test_the_folder_is_followed(folder: Path) -> None:
    with running(folder, token="a-token-of-some-length") as client:
        (folder / "en/current").write_text("2\n")
        until(client, "2")
        assert client.post("/models/en", {"version": "1"}).status_code == 200
        assert (folder / "en/current").read_text() == "1\n"
        until(client, "1")
        shutil.copytree(folder / "en/2", folder / "fr/1")
        end = time.monotonic() + 20
        while client.post("/models/fr/predict", BODY).status_code != 200:
            assert time.monotonic() < end
        stranger = Client(client.port)
        assert stranger.post("/models/en", {"version": "2"}).status_code == 401
        stranger.session.close()


def test_a_model_without_a_current_version_holds_up_no_other(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(folder) as client:
        shutil.copytree(folder / "de/1", folder / "de/2")
        (folder / "en/current").write_text("2\n")
        until(client, "2")
        assert client.post("/models/de/predict", BODY).json()["version"] == "1"
    assert "de: current does not answer, 1 stays: " in caplog.text


def test_two_versions_are_in_memory_only_if_they_fit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(folder) as client:
        monkeypatch.setattr(
            served_models.psutil,
            "virtual_memory",
            lambda: SimpleNamespace(available=1000),
        )
        answer = client.post("/models/en", {"version": "2"})
        assert (answer.status_code, "GiB are free" in answer.json()["detail"]) == (
            409,
            True,
        )
        assert client.post("/models/en/predict", BODY).json()["version"] == "1"


def test_annotations_take_the_labels_of_the_version(
    folder: Path, tmp_path: Path
) -> None:
    shutil.rmtree(folder / "de")
    with running(folder, annotations=tmp_path / "more.jsonl") as client:
        assert (
            client.post(
                "/annotations", {"text": "x", "labels": ["codfish"]}
            ).status_code
            == 422
        )
        client.post("/models/en", {"version": "2"})
        assert (
            client.post(
                "/annotations", {"text": "x", "labels": ["codfish"]}
            ).status_code
            == 200
        )
        client.post("/models/en", {"version": "1"})
        assert (
            client.post(
                "/annotations", {"text": "y", "labels": ["codfish"]}
            ).status_code
            == 422
        )


def test_a_file_that_goes_while_it_is_looked_at_ends_no_looking(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamp, gone = served_models._stamp, threading.Event()

    def once(version: Path) -> served_models.Stamp:
        if gone.is_set():
            return stamp(version)
        gone.set()
        raise FileNotFoundError(
            2, "No such file or directory", str(version / ".head.safetensors.partial")
        )

    with running(folder) as client:
        monkeypatch.setattr(served_models, "_stamp", once)
        assert gone.wait(20)
        (folder / "en/current").write_text("2\n")
        until(client, "2")


def test_metrics_compare_with_the_version_that_answers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_profile(version: Path) -> xmtc.Model:
        model = load(version)
        monkeypatch.setattr(
            model,
            "profile",
            SimpleNamespace(sample={"tokens": np.array([float(version.name)])}),
        )
        return model

    monkeypatch.setattr(served, "load", with_profile)
    with running(folder) as client:
        for version in ("2", "1"):
            client.post("/models/en", {"version": version})
            assert (
                f'xmtc_text_dev{{model="en",statistic="tokens"}} {version}.0'
                in client.get("/metrics").text
            )


def test_what_is_no_folder_of_models_is_refused(folder: Path, tmp_path: Path) -> None:
    def refused(words: str, place: Path, annotations: Path | None = None) -> None:
        with pytest.raises(ConfigError, match=words):
            Models(ServeConfig(annotations=annotations), str(place), load)

    (tmp_path / "empty").mkdir()
    refused(
        "no models there; put each exported model into NAME/VERSION", tmp_path / "empty"
    )
    refused("give a folder with models", tmp_path / "none")
    refused(
        "2 models, but annotations are for one",
        folder,
        annotations=tmp_path / "a.jsonl",
    )
    (folder / "en/current").unlink()
    refused("current: missing; write the version that answers into it: 1, 2", folder)


def test_a_single_model_has_no_versions_to_switch(client: Client) -> None:
    answer = client.post("/models/sea-laws", {"version": "2"})
    assert (answer.status_code, "--models" in answer.json()["detail"]) == (409, True)
    assert client.post("/models/sea-laws/predict", BODY).status_code == 200


def test_answers_are_written_and_checked(folder: Path) -> None:
    documents = json.loads((folder / "de/1/smoke.json").read_text())
    assert [one["text"] for one in documents] == [
        "Animals",
        "Law",
        "Fish and other sea animals",
        "Steel",
    ]
    model = load(folder / "de/1")
    check_answers(model, folder / "de/1")
    documents[1]["labels"] = {"law": 3.0}
    (folder / "de/1/smoke.json").write_text(json.dumps(documents))
    with pytest.raises(
        CheckpointError, match="document 1: label 'law' has probability"
    ):
        check_answers(model, folder / "de/1")


def test_sighup_looks_for_versions(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(served_models, "LOOK_SECONDS", 100)

    async def on_tick(self: server._Server, counter: int) -> bool:
        if counter == 1:
            (folder / "en/current").write_text("2\n")
            signal.raise_signal(signal.SIGHUP)
        if counter > 100 or self._models.find("en").version == "2":
            signal.raise_signal(signal.SIGTERM)
        return self.should_exit

    monkeypatch.setattr(server._Server, "on_tick", on_tick)
    server.serve(
        server.read_models(
            None, str(folder), ServeConfig(port=0), device="cpu", precision="auto"
        )
    )
    said = capsys.readouterr().err
    assert "en: 2 answers, before 1; warning: its vocabulary is" in said
    assert "1 labels more, 1 fewer" in said


def test_versions_at_a_uri_are_copied_and_a_switch_is_published(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(folder / "de")
    with s3(tmp_path / "home"):
        remote = Remote(f"s3://{BUCKET}/models")
        for path in folder.rglob("*"):
            if path.is_file():
                remote.upload(path, path.relative_to(folder).as_posix())
        with running(remote.uri) as client:
            assert client.post("/models/en", {"version": "2"}).status_code == 200
            assert remote.read("en/current") == b"2\n"
            (folder / "en/current").write_text("1\n")
            remote.upload(folder / "en/current", "en/current")
            until(client, "1")
        assert fetch_model(f"{remote.uri}/en/1").is_dir()
        crash_trials(monkeypatch, tmp_path)
        with pytest.raises(CheckpointError, match="ended by signal 11"):
            fetch_model(f"{remote.uri}/en/1")


class UnexpectedError(Exception):
    """What a stranger's model may raise."""


@pytest.mark.parametrize(
    ("moment", "error"),
    [
        ("loads", TypeError),
        ("loads", MemoryError),
        ("is tried", IndexError),
        ("is tried", RecursionError),
        ("answers", AssertionError),
        ("answers", UnexpectedError),
    ],
)
def test_whatever_a_candidate_does_is_a_refusal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception], moment: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("it broke:\nin two lines")

    def load_broken(path: Path) -> xmtc.Model:
        if path.name != "2" or not broken.exists():
            return load(path)
        if moment == "loads":
            fail()
        candidate = load(path)
        monkeypatch.setattr(candidate, "predict", fail)
        return candidate

    broken = folder / "broken"
    broken.touch()
    if moment == "answers":  # the documents that it brings say nothing
        (folder / "en/2/smoke.json").write_text("[]")
    monkeypatch.setattr(served, "load", load_broken)
    with running(folder) as client:
        refused = client.post("/models/en", {"version": "2"})
        assert refused.status_code == 409
        assert "en: 1 stays" in refused.json()["detail"]
        assert "\n" not in refused.json()["detail"]
        (folder / "en/current").write_text("2\n")  # the watcher tries it, too
        time.sleep(0.5)
        assert client.post("/models/en/predict", BODY).json()["version"] == "1"
        broken.unlink()
        (folder / "en/2/smoke.json").write_text("[ ]")  # changed files are tried again
        until(client, "2")
