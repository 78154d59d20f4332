"""Arrays of a stranger's model, whose checksums are right, are compared with their table before anything computes."""

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.numpy import load_file, save_file

import tiny_runs
from crashing_trials import crash_trials
from xmtc.artefact.export import load_model
from xmtc.artefact.trial import try_native_files
from xmtc.data.array_contract import Array, Sizes, SparseMatrix, check_tensors
from xmtc.data.arrow_files import read_arrow
from xmtc.errors import CheckpointError
from xmtc.pipeline import train_run

SCORERS = "[{kind: linear}, {kind: word_neighbours}, {kind: label_text}, {kind: state_neighbours}, {kind: tree}]"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("contract")
    config = tiny_runs.load(
        tiny_runs.write_config(folder), f"model.scorers={SCORERS}", "plant.parts=[]"
    )
    return train_run(config) / "model"


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "model")


def sign(model: Path, name: str) -> None:
    """Correct the checksum of a file, as whoever made the model would."""
    settings = json.loads((model / "config.json").read_text())
    settings["sha256"][name] = hashlib.sha256((model / name).read_bytes()).hexdigest()
    (model / "config.json").write_text(json.dumps(settings))


def refused(model: Path, name: str, array: str, **arrays: np.ndarray) -> None:
    tensors = load_file(model / name)
    assert set(arrays) <= set(tensors)
    save_file(tensors | arrays, model / name)
    sign(model, name)
    with pytest.raises(
        CheckpointError, match=rf"{Path(name).name}: {array}"
    ) as refusal:
        load_model(model)
    assert "\n" not in str(refusal.value)


def test_a_model_as_it_was_exported_is_taken_and_each_scorer_read_once(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Counter[str] = Counter()

    def counted(path: Path) -> dict[str, np.ndarray]:
        read[path.relative_to(trained).as_posix()] += 1
        return load_file(path)

    monkeypatch.setattr("xmtc.data.checked_tensors.load_file", counted)
    assert load_model(trained).ensemble is not None
    read.pop("scorers/words.safetensors")  # says how many words there are
    assert set(read.values()) == {1}
    assert "scorers/0-linear/scorer.safetensors" in read


@pytest.mark.parametrize("value", [-1, 6, 2**31 - 1])
@pytest.mark.parametrize(
    "name",
    ["scorers/0-linear", "scorers/1-word_neighbours", "scorers/3-state_neighbours"],
)
def test_an_index_outside_its_matrix_is_refused(
    model: Path, name: str, value: int
) -> None:
    file = f"{name}/scorer.safetensors"
    matrix = "weights_WL" if "linear" in name else "labels_NL"
    indices = load_file(model / file)[f"{matrix}.indices"]
    indices[len(indices) // 2] = value
    refused(model, file, matrix, **{f"{matrix}.indices": indices})


@pytest.mark.parametrize("change", ["falls", "begins late", "too far", "short"])
def test_rows_that_begin_elsewhere_are_refused(model: Path, change: str) -> None:
    file = "scorers/1-word_neighbours/scorer.safetensors"
    starts = load_file(model / file)["words_NV.indptr"]
    if change == "falls":
        starts[3] = starts[2] - 1
    elif change == "begins late":
        starts[0] = 1
    elif change == "too far":
        starts[-1] += 10**6
    else:
        starts = starts[:-1]
    refused(model, file, "words_NV", **{"words_NV.indptr": starts})


def test_a_matrix_of_other_sizes_is_refused(model: Path) -> None:
    file = "scorers/0-linear/scorer.safetensors"
    refused(model, file, "weights_WL", **{"weights_WL.shape": np.array([10**12, 6])})


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("scorers/fusion.safetensors", "coefficients_GX"),
        ("scorers/0-linear/scorer.safetensors", "fields_F"),
        ("scorers/occurrences.safetensors", "counts_L"),
        ("scorers/words.safetensors", "documents_V"),
        ("scorers/4-tree/tree.safetensors", "fields"),
        ("outcomes.safetensors", "label_ids_P"),
        ("profile.safetensors", "token_bits"),
    ],
)
@pytest.mark.parametrize("change", ["longer", "another type", "another rank"])
def test_types_and_shapes_are_compared(
    model: Path, name: str, array: str, change: str
) -> None:
    values = load_file(model / name)[array]
    if change == "longer":
        values = np.concatenate([values, values], axis=-1)
    elif change == "another type":
        values = values.astype(np.float64 if values.dtype != np.float64 else np.float32)
    else:
        values = values[None]
    refused(model, name, "" if change == "longer" else array, **{array: values})


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("head.safetensors", "bias"),
        ("scorers/fusion.safetensors", "log_odds.0"),
        ("encoder/model.safetensors", ""),
    ],
)
def test_values_are_finite(model: Path, name: str, array: str, value: float) -> None:
    tensors = load_file(model / name)
    array = array or sorted(tensors)[0]
    tensors[array].flat[-1] = value
    refused(model, name, array, **{array: tensors[array]})


def test_a_name_that_no_model_has_is_refused(model: Path) -> None:
    name = "scorers/occurrences.safetensors"
    save_file(load_file(model / name) | {"more": np.zeros(3)}, model / name)
    sign(model, name)
    with pytest.raises(CheckpointError, match="'more', which no model has"):
        load_model(model)


@pytest.mark.parametrize("change", ["twice", "null", "numbers", "negative"])
def test_the_table_of_labels_is_checked(model: Path, change: str) -> None:
    table = read_arrow(model / "labels.arrow")
    labels = table["label"].to_pylist()
    counts = table["train_count"].to_pylist()
    if change == "twice":
        labels[1] = labels[0]
    elif change == "null":
        labels[1] = None
    elif change == "numbers":
        labels = list(range(len(labels)))
    else:
        counts[0] = -1
    changed = pa.table(
        {
            "label": labels,
            "name": table["name"],
            "train_count": pa.array(counts, pa.int64()),
        }
    )
    with (
        pa.OSFile(str(model / "new.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, changed.schema) as writer,
    ):
        writer.write_table(changed)
    (model / "new.arrow").replace(model / "labels.arrow")
    sign(model, "labels.arrow")
    with pytest.raises(CheckpointError, match=r"labels\.arrow"):
        load_model(model)


def test_a_token_has_no_id_beyond_the_embedding(model: Path) -> None:
    path = model / "tokenizer" / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"][max(content["model"]["vocab"])] = 1_000_000_000
    path.write_text(json.dumps(content))
    sign(model, "tokenizer/tokenizer.json")
    with pytest.raises(CheckpointError, match="a token has the id 1000000000"):
        load_model(model)


def test_letters_stand_for_one_number(tmp_path: Path) -> None:
    save_file(
        {"a_NP": np.zeros((2, 3)), "b_PN": np.zeros((3, 2))}, tmp_path / "x.safetensors"
    )
    check_tensors(
        tmp_path / "x.safetensors",
        {"a_NP": Array("F64", "NP"), "b_PN": Array("F64", "PN")},
        Sizes({"N": 2}),
    )
    with pytest.raises(CheckpointError, match="b_PN: has a size 3, but N is 2"):
        check_tensors(
            tmp_path / "x.safetensors",
            {"a_NP": Array("F64", "NP"), "b_PN": Array("F64", "NP")},
            Sizes({"N": 2}),
        )
    with pytest.raises(CheckpointError, match=r"lacks the array c\.data"):
        check_tensors(
            tmp_path / "x.safetensors", {"c": SparseMatrix("F64", "NP")}, Sizes({})
        )


@pytest.mark.parametrize("at", [0, 3, 29, 48, 400])
def test_an_index_that_is_cut_is_refused(model: Path, at: int) -> None:
    name = "scorers/3-state_neighbours/states.faiss"
    content = (model / name).read_bytes()
    (model / name).write_bytes(content[:at])
    sign(model, name)
    with pytest.raises(CheckpointError, match=r"states\.faiss"):
        load_model(model)


def test_files_for_native_code_are_tried_in_another_process(model: Path) -> None:
    try_native_files(model)
    (trees,) = model.rglob("omikuji")
    path = max(
        (path for path in trees.rglob("*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(
        CheckpointError, match="index or trees cannot be read"
    ) as refusal:
        try_native_files(model)
    assert "\n" not in str(refusal.value)


def test_a_reader_that_crashes_ends_only_the_trial(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_trials(monkeypatch, tmp_path)
    with pytest.raises(CheckpointError, match=r"ended by signal 11") as refusal:
        try_native_files(model)
    assert "\n" not in str(refusal.value)


def test_trials_that_have_no_end_are_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_trials(monkeypatch, tmp_path, "exec sleep 9")
    monkeypatch.setattr("xmtc.artefact.trial._LIMIT_S", 0.05)
    with pytest.raises(CheckpointError, match="not read within"):
        try_native_files(model)


@pytest.mark.parametrize("name", ["config.json", "thresholds.json"])
def test_a_hole_in_a_file_takes_no_memory(model: Path, name: str) -> None:
    with (model / name).open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(
        CheckpointError, match=rf"{name}: cannot be read: .* bytes, and at most"
    ):
        load_model(model)
