"""What people may edit in a model directory is checked like a configuration; all else must be as its checksum says."""

import hashlib
import json
import math
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmtc.artefact.export import load_model, read_decision, write_decision
from xmtc.artefact.info import read_info
from xmtc.errors import CheckpointError
from xmtc.fusion.decision import Decision


@pytest.fixture
def model(whole, tmp_path):
    return shutil.copytree(whole.run / "model", tmp_path / "model")


share = st.floats(0, 1, width=32)


@given(share, st.none() | st.lists(share, min_size=3, max_size=3))
def test_thresholds_are_read_as_written(tmp_path_factory, threshold, per_label):
    path = tmp_path_factory.getbasetemp() / "thresholds.json"
    own = None if per_label is None else np.array(per_label, np.float32)
    write_decision(path, Decision(threshold, own, "macro"))
    found = read_decision(path, 3)
    assert (found.threshold, found.rule) == (threshold, "macro")
    assert per_label is None or found.thresholds_L.tolist() == per_label


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
anything = st.recursive(
    leaves,
    lambda part: (
        st.lists(part, max_size=4) | st.dictionaries(st.text(max_size=5), part)
    ),
)
probable = st.one_of(share, leaves)


def is_share(value):
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= 1
    )


@given(
    st.one_of(
        anything,
        st.fixed_dictionaries(
            {
                "rule": st.just("micro") | leaves,
                "global": probable,
                "per_label": st.none()
                | st.lists(probable, min_size=2, max_size=4)
                | leaves,
            },
            optional={"more": leaves},
        ),
    )
)
def test_any_other_content_is_refused_in_one_line(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "thresholds.json"
    path.write_text(json.dumps(content))
    own = content.get("per_label") if isinstance(content, dict) else None
    sound = (
        isinstance(content, dict)
        and set(content) == {"rule", "global", "per_label"}
        and content["rule"] == "micro"
        and is_share(content["global"])
        and (
            own is None
            or (isinstance(own, list) and len(own) == 3 and all(map(is_share, own)))
        )
    )
    if sound:
        assert math.isfinite(read_decision(path, 3).threshold)
    else:
        with pytest.raises(CheckpointError, match=r"thresholds\.json: ") as refusal:
            read_decision(path, 3)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"rule": "micro", "global": 0.5, "global": 0.9, "per_label": null}',
        "[" * 100_000,
        "9" * 5000,
        "\xff",
        "",
        "{",
        "null",
    ],
)
def test_malformed_json_is_refused(tmp_path, text):
    (tmp_path / "thresholds.json").write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=r"thresholds\.json: "):
        read_decision(tmp_path / "thresholds.json", 3)


@pytest.mark.parametrize(
    "checksums", [None, [], "", {}, {"head.safetensors": 3}, {"labels.arrow": "0"}]
)
def test_checksums_cannot_be_switched_off(model, checksums):
    content = json.loads((model / "config.json").read_text())
    del content["sha256"]
    if checksums is not None:
        content["sha256"] = checksums
    (model / "config.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"checksum|sha256"):
        load_model(model)


def test_no_single_file_goes_without_its_checksum(model):
    content = json.loads((model / "config.json").read_text())
    for name in content["sha256"]:
        others = {
            other: value for other, value in content["sha256"].items() if other != name
        }
        (model / "config.json").write_text(json.dumps(content | {"sha256": others}))
        with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
            read_info(model)


@pytest.mark.parametrize("name", ["planted.safetensors", "adapter/adapter_config.json"])
def test_a_file_that_was_put_there_is_refused(model, name):
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_bytes(b"foreign")
    with pytest.raises(CheckpointError, match="has no checksum"):
        read_info(model)


def test_notes_and_hidden_files_may_be_added(model):
    for name in ("notes.md", ".gitattributes", ".cache.json"):
        (model / name).write_text("mine")
    read_info(model)


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "thresholds.json",
        "labels.arrow",
        "tokenizer",
        "config.json",
        "named",
    ],
)
@pytest.mark.parametrize("command", ["rename", "push", "load"])
def test_links_that_leave_the_model_are_refused(xmtc, model, tmp_path, name, command):
    secret = tmp_path / "secret"
    if name == "named":
        secret.write_text("a key")
        settings = json.loads((model / "config.json").read_text())
        settings["sha256"]["../secret"] = hashlib.sha256(b"a key").hexdigest()
        (model / "config.json").write_text(json.dumps(settings))
    else:
        (model / name).rename(secret)
        (model / name).symlink_to(secret)
    with pytest.raises(CheckpointError, match="leads out of the model folder"):
        read_info(model)
    if command != "load":
        commands = {
            "rename": ("labels", "rename", model, "l0=x", "--output", tmp_path / "new"),
            "push": ("push", model, "a/b"),
        }
        outcome = xmtc(*commands[command])
        assert outcome.code == 1
        assert "leads out of the model folder" in outcome.err
        assert not (tmp_path / "new").exists()


def test_links_inside_a_model_and_of_the_hubs_cache_are_followed(model, tmp_path):
    (model / "README.md").rename(model / "card.md")
    (model / "README.md").symlink_to("card.md")
    read_info(model)
    blobs, snapshot = (
        tmp_path / "hub" / "blobs",
        tmp_path / "hub" / "snapshots" / "c0ffee",
    )
    blobs.mkdir(parents=True)
    snapshot.parent.mkdir()
    shutil.copytree(model, snapshot)
    (snapshot / "labels.arrow").rename(blobs / "abc")
    (snapshot / "labels.arrow").symlink_to("../../blobs/abc")
    read_info(snapshot)


def test_declared_sizes_that_no_memory_holds_are_refused(model):
    path = model / "config.json"
    settings = json.loads(path.read_text())
    settings["model"]["head"]["width"] = 10**15
    path.write_text(json.dumps(settings))
    with pytest.raises(
        CheckpointError, match="a model of these sizes cannot be built here"
    ):
        load_model(model)
