"""Labels added to an exported model: nothing changes for the others, and names are what the new ones are scored by."""

import json
import re
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import tiny_runs
import xmtc
from named_model import LABELS, NAMES, TEXTS, export
from xmtc.artefact.decide import decide
from xmtc.artefact.export import export_model, load_model
from xmtc.cli import main
from xmtc.data.labels import LabelTable
from xmtc.errors import CheckpointError, ConfigError, DataError
from xmtc.fusion.decision import HALF
from xmtc.labels.extend import add_labels, read_new_labels
from xmtc.models.heads.config import FlatConfig, LabelAttentionConfig
from xmtc.models.heads.label_attention import LabelAttentionHead
from xmtc.models.label_rows import (
    embed_texts,
    init_rows_from_names,
    learn_rows,
    name_unseen_labels,
    rows_of_names,
)
from xmtc.pipeline import train_run


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return export(tmp_path_factory.mktemp("run") / "model")


def write(path: Path, *rows: object) -> Path:
    path.write_text(
        "".join(
            (row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows
        )
    )
    return path


NEW = (
    {"label": "N1", "name": "fish of steel"},
    {"label": "A0", "name": "school", "description": "where one learns"},
)


@pytest.mark.parametrize(
    "moment",
    [
        "artefact.export.load_weights",
        "labels.extend.rows_of_names",
        "artefact.decide.tuned_decision",
    ],
)
def test_a_model_that_is_replaced_meanwhile_is_not_mixed_with_the_other(
    tmp_path, monkeypatch, moment
):
    ours, other = (
        export(tmp_path / "model"),
        export(tmp_path / "other", calibrated=False),
    )
    place, thresholds = f"xmtc.{moment}", (other / "thresholds.json").read_bytes()
    act = (
        resolve_name(place)
        if moment != "artefact.decide.tuned_decision"
        else lambda *_: HALF
    )

    def replaced(*arguments):
        if other.exists():
            shutil.rmtree(ours)
            other.rename(ours)
        return act(*arguments)

    monkeypatch.setattr(place, replaced)
    change = partial(
        add_labels, ours, write(tmp_path / "new.jsonl", *NEW), tmp_path / "out"
    )
    if moment == "artefact.decide.tuned_decision":
        change = partial(decide, ours, "micro")
    with pytest.raises(CheckpointError, match="replaced by another model meanwhile"):
        change()
    assert not (tmp_path / "out").exists()
    assert (ours / "thresholds.json").read_bytes() == thresholds


@pytest.mark.parametrize(
    "head",
    [None, FlatConfig(), LabelAttentionConfig(width=16, heads=2, row_dtype="bfloat16")],
)
@pytest.mark.parametrize("calibrated", [True, False], ids=["calibrated", "plain"])
def test_the_other_labels_keep_their_rows_bit_for_bit_and_their_scores(
    head, calibrated, tmp_path
):
    model = export(tmp_path / "model", head, calibrated=calibrated)
    before_files = {
        path: path.read_bytes() for path in model.rglob("*") if path.is_file()
    }
    added = add_labels(model, write(tmp_path / "new.jsonl", *NEW), tmp_path / "longer")
    assert added.labels == 2
    assert {
        path: path.read_bytes() for path in model.rglob("*") if path.is_file()
    } == before_files
    old, new = (
        load_file(model / "head.safetensors"),
        load_file(tmp_path / "longer" / "head.safetensors"),
    )
    for name, table in old.items():
        assert torch.equal(new[name][: len(table)], table)
        assert new[name].dtype == table.dtype
    before = xmtc.Model.from_pretrained(model, device="cpu").predict(
        TEXTS, top_k=LABELS
    )
    after = xmtc.Model.from_pretrained(tmp_path / "longer", device="cpu").predict(
        TEXTS, top_k=LABELS + 2
    )
    for one, other in zip(before, after, strict=True):
        scores = {p.label: p.score for p in other}
        assert scores.keys() == {p.label for p in one} | {"N1", "A0"}
        np.testing.assert_allclose(
            [scores[p.label] for p in one], [p.score for p in one], rtol=1e-6
        )


def test_a_new_label_is_calibrated_as_one_of_the_rarest(model, tmp_path):
    add_labels(model, write(tmp_path / "new.jsonl", *NEW), tmp_path / "longer")
    parts = load_model(tmp_path / "longer")
    assert parts.labels.labels[-2:] == ["N1", "A0"]
    assert parts.labels.names[-1] == "school"
    assert parts.labels.train_counts[-2:].tolist() == [0, 0]
    assert parts.labels.parents is not None
    assert parts.labels.parents[-1] == ()
    assert parts.decision.thresholds_L is not None
    assert parts.decision.thresholds_L[-1] == np.float32(0.4)
    calibration = parts.classifier.calibration
    assert calibration is not None
    assert (
        calibration.scale_L[-1] == calibration.scale_L[1]
    )  # label 1 has one document, label 0 none


def test_rows_of_new_labels_are_those_that_their_names_give_the_trained_ones(tmp_path):
    """Rows made a linear function of the names: labels left out of the model get theirs back."""
    model = export(tmp_path / "model", calibrated=False, counts=np.arange(LABELS) + 1)
    parts = load_model(model)
    head, texts = parts.classifier.head, [*NAMES, "fish heart"]
    options = {"max_length": 100, "overlap": 6}
    vectors_LD = embed_texts(parts.classifier, parts.tokenizer, texts, **options)
    direction_D = torch.randn(32, generator=torch.Generator().manual_seed(1))
    wanted_L = vectors_LD @ direction_D
    head.bias.data.copy_(wanted_L[:LABELS])
    trained = dict(parts.classifier.named_parameters())
    export_model(model, replace(parts, decision=HALF), trained)
    added = add_labels(
        model,
        write(tmp_path / "n.jsonl", {"label": "x", "name": "fish heart"}),
        tmp_path / "longer",
    )
    found = load_file(tmp_path / "longer" / "head.safetensors")["bias"][-1]
    spread = wanted_L[:LABELS].std()
    assert abs(found - wanted_L[-1]) < 0.5 * spread
    assert added.explained["bias"] > 0.5
    query_d = load_file(tmp_path / "longer" / "head.safetensors")["queries"][-1]
    assert isinstance(head, LabelAttentionHead)
    torch.testing.assert_close(
        query_d, head.keys(vectors_LD[-1:])[0].detach(), atol=1e-4, rtol=1e-4
    )
    assert added.explained["weights"] < 0.2  # random: names say nothing of them


def test_embeddings_do_not_depend_on_the_rest_of_the_batch(model):
    parts = load_model(model)
    long = " ".join(["fisheries"] * 60)  # several windows
    together = embed_texts(
        parts.classifier, parts.tokenizer, ["a", long, "b c"], max_length=100, overlap=6
    )
    alone = embed_texts(
        parts.classifier, parts.tokenizer, [long], max_length=100, overlap=6
    )
    torch.testing.assert_close(together[1:2], alone, atol=1e-5, rtol=1e-5)


def test_the_ridge_is_the_best_on_labels_left_out():
    random = torch.Generator().manual_seed(0)
    x_LD = torch.randn(60, 10, generator=random)
    y_LR = x_LD @ torch.randn(10, 3, generator=random) + 0.1 * torch.randn(
        60, 3, generator=random
    )
    learned = learn_rows(x_LD, y_LR)
    torch.testing.assert_close(learned(x_LD), y_LR, atol=0.5, rtol=0)
    assert learned.explained > 0.98
    noise = learn_rows(x_LD, torch.randn(60, 3, generator=random))
    assert noise.explained < 0.1
    assert (
        noise(x_LD) - noise.mean_R
    ).abs().max() < 0.5  # the mean row, nearly, for all


def test_the_command_adds_labels_and_says_what_names_explain(
    model, tmp_path, monkeypatch, capsys
):
    file = write(tmp_path / "new.jsonl", *NEW)
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "xmtc",
            "labels",
            "add",
            str(model),
            str(file),
            "-o",
            str(tmp_path / "longer"),
        ],
    )
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    said = capsys.readouterr().err
    assert re.search(
        r"longer: labels added: 2; share of .* that names explain: weights 0%, bias 0%",
        said,
    )
    assert len(load_model(tmp_path / "longer").labels) == LABELS + 2


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"label": "L03", "name": "x"},
            r"new.jsonl:2: label 'L03' is already in the model",
        ),
        ({"label": "N1", "name": "x"}, r"new.jsonl:2: label 'N1' is already in line 1"),
        ({"label": "N2"}, r"new.jsonl:2: .*name: Field required"),
        ({"label": "N2", "name": " "}, r"new.jsonl:2: name is empty"),
        (
            {"label": 7, "name": "x"},
            r"new.jsonl:2: .*label: Input should be a valid string",
        ),
        (
            {"label": "N2", "name": "x", "text": "y"},
            r"new.jsonl:2: .*text: Unexpected keyword argument",
        ),
        ("{", r"new.jsonl:2: .*malformed JSON"),
        (
            '{"label": "N2", "label": "N3", "name": "x"}',
            r"new.jsonl:2: .*the key 'label' occurs twice; write lines",
        ),
        (
            '{"label": "N2", "name": "x \\ud83d"}',
            r"new.jsonl:2: .*the JSON holds half of a character",
        ),
        ("[1]", r"new.jsonl:2: .*Input should be a dictionary"),
    ],
)
def test_bad_lines_are_named(model, tmp_path, row, words):
    with pytest.raises(DataError, match=words):
        add_labels(
            model, write(tmp_path / "new.jsonl", NEW[0], row), tmp_path / "longer"
        )
    assert not (tmp_path / "longer").exists()


def test_names_may_hold_separators_of_lines_that_json_allows(tmp_path):
    """As `json.dumps(…, ensure_ascii=False)` writes them; str.splitlines() would cut there."""
    file = tmp_path / "new.jsonl"
    file.write_text(
        '{"label": "N1", "name": "fish\u2028and\u0085steel"}\r\n\n',
        encoding="utf-8-sig",
        newline="",
    )
    (label,) = read_new_labels(file, LabelTable(["L"], ["known"], np.ones(1, np.int64)))
    assert label.name == "fish\u2028and\u0085steel"


def test_files_and_models_that_will_not_do(model, tmp_path):
    file = write(tmp_path / "new.jsonl", NEW[0])
    with pytest.raises(DataError, match=r"none\.jsonl"):
        add_labels(model, tmp_path / "none.jsonl", tmp_path / "longer")
    with pytest.raises(DataError, match="no labels; write lines such as"):
        add_labels(model, write(tmp_path / "empty.jsonl", ""), tmp_path / "longer")
    with pytest.raises(ConfigError, match="is the model itself"):
        add_labels(model, file, model)
    with pytest.raises(ConfigError, match="not an exported model"):
        add_labels(model, file, tmp_path)
    one = export(tmp_path / "single", task="single_label", calibrated=False)
    with pytest.raises(ConfigError, match="a single-label model cannot get labels"):
        add_labels(one, file, tmp_path / "longer")
    few = export(tmp_path / "few", calibrated=False, counts=np.arange(LABELS) // 15)
    with pytest.raises(ConfigError, match="15 trained labels"):
        add_labels(few, file, tmp_path / "longer")


def whole_model(path: Path, *, calibrated: bool, counts=None):
    parts = load_model(export(path, calibrated=calibrated, counts=counts))
    embed = partial(
        embed_texts, parts.classifier, parts.tokenizer, max_length=100, overlap=6
    )
    return parts, embed


@pytest.mark.parametrize(
    "head", [LabelAttentionConfig(width=16, heads=2), FlatConfig()]
)
def test_a_head_started_from_names_finds_the_label_that_a_text_names(head, tmp_path):
    parts = load_model(export(tmp_path / "model", head, calibrated=False))
    embed = partial(
        embed_texts, parts.classifier, parts.tokenizer, max_length=100, overlap=6
    )
    init_rows_from_names(
        parts.classifier,
        parts.labels,
        slice(None),
        embed,
        lambda values: values.mean(0),
    )
    parts.classifier.head.bias.data.zero_()
    predicted = xmtc.Model(parts, torch.device("cpu")).predict(NAMES, top_k=5)
    found = [
        name in [p.name for p in five]
        for five, name in zip(predicted, NAMES, strict=True)
    ]
    assert np.mean(found) > 0.4  # 1/6 by chance, and the encoder is random


def test_labels_without_documents_are_scored_as_added_ones_would_be(tmp_path):
    counts = np.where(np.arange(LABELS) % 6 == 5, 0, 3)
    parts, embed = whole_model(tmp_path / "model", calibrated=True, counts=counts)
    unseen = torch.from_numpy(np.flatnonzero(counts == 0))
    before = parts.classifier.head.weights.detach().clone()
    expected = rows_of_names(
        parts.classifier, parts.labels, [NAMES[i] for i in unseen], embed
    ).rows
    name_unseen_labels(parts.classifier, parts.labels, embed)
    weights, seen = (
        parts.classifier.head.weights.detach(),
        torch.from_numpy(np.flatnonzero(counts)),
    )
    torch.testing.assert_close(weights[unseen], expected["weights"])
    torch.testing.assert_close(
        parts.classifier.head.label_tables()["queries"][unseen].detach(),
        expected["queries"],
    )
    assert torch.equal(weights[seen], before[seen])


def test_too_few_trained_labels_are_found_before_training(tmp_path):
    parts, embed = whole_model(
        tmp_path / "model", calibrated=False, counts=np.arange(LABELS) // 15
    )
    with pytest.raises(ConfigError, match="15 trained labels"):
        init_rows_from_names(
            parts.classifier,
            parts.labels,
            slice(None),
            embed,
            lambda values: values.mean(0),
        )


def test_a_run_starts_from_names_and_exports_rows_for_labels_without_documents(
    tmp_path,
):
    """24 labels of train and one of dev alone, which the exported model scores by its name."""
    labels = [
        f"{word}{letter}" for word in ("law", "fish", "heart") for letter in "abcdefgh"
    ]
    documents = [
        {
            "id": f"d{i}",
            "text": f"{labels[i % 24]} {labels[i % 24]} {i}",
            "labels": [labels[i % 24]],
        }
        for i in range(72)
    ]
    documents[70]["labels"] = ["unseen"]
    files = {
        "train": str(tiny_runs.write_jsonl(tmp_path / "a.jsonl", documents[:48])),
        "dev": str(tiny_runs.write_jsonl(tmp_path / "b.jsonl", documents[48:])),
    }
    path = tiny_runs.write_config(tmp_path)
    source = json.dumps({"kind": "jsonl", "columns": {"id": "id"}, "files": files})
    run = train_run(
        tiny_runs.load(path, "model.label_text=true", f"data.source={source}")
    )
    parts = load_model(run / "model")
    at = parts.labels.index("unseen")
    assert parts.info.model.label_text
    assert parts.labels.train_counts[at] == 0
    head = parts.classifier.head
    embed = partial(
        embed_texts, parts.classifier, parts.tokenizer, max_length=48, overlap=4
    )
    assert isinstance(head, LabelAttentionHead)
    torch.testing.assert_close(
        head.queries[at], head.keys(embed(["unseen"]))[0], atol=1e-4, rtol=1e-4
    )
