"""Adapters of a stranger: ranks, factors, targets and arrays that are not what the model's encoder can hold."""

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from attack_cases.attack import Attack, expect
from attack_cases.signatures import sign_model
from bad_input_cases.case import Site, command
from mutations import attempt

Change = Callable[[Path], object]
Arrays = dict[str, np.ndarray]
SETTINGS, WEIGHTS = "adapter/adapter_config.json", "adapter/adapter_model.safetensors"
LIMIT_S = 30


def adapter_attacks(adapted: Site) -> Iterator[Attack]:
    """Every change of an adapter's settings and arrays, and code beside it.

    Args:
        adapted: a run whose model has an adapter.
    """
    for name, value in VALUES:
        for one in value:
            yield Attack(
                "adapters: settings",
                f"{name} = {one!a:.60}",
                partial(_attack, adapted, _setting(name, one)),
            )
    for name, change in ARRAYS.items():
        yield Attack("adapters: arrays", name, partial(_attack, adapted, change))
    for name, change in OWN.items():
        yield Attack(
            "adapters: settings of the model", name, partial(_attack, adapted, change)
        )
    for name in ("adapter_model.bin", "pytorch_model.bin", "adapter_model.pt"):
        for alone in (True, False):
            yield Attack(
                "adapters: code",
                f"{name}, {'alone' if alone else 'beside'}",
                partial(_code, adapted, name, alone),
            )
    for name, change in MERGED.items():
        yield Attack("adapters: merged", name, partial(_merge, adapted, change))


def _attack(adapted: Site, change: Change, folder: Path) -> None:
    model = folder / "model"
    shutil.copytree(adapted.model, model)
    change(model)
    sign_model(model)
    outcome, said = attempt(model)
    expect(outcome in ("answered", "accepted"), f"{outcome}: {said}")


def _merge(adapted: Site, change: Change, folder: Path) -> None:
    model = folder / "model"
    shutil.copytree(adapted.model, model)
    change(model)
    sign_model(model)
    code, said = command("model", "merge", model, "-o", folder / "merged")
    expect("Traceback" not in said, said)
    expect(code == 0 or said.strip(), "silent")
    if code == 0:
        outcome, said = attempt(folder / "merged")
        expect(outcome == "accepted", f"what it made: {outcome}, {said}")


class _Marks:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def _code(adapted: Site, name: str, alone: bool, folder: Path) -> None:
    model, marked = folder / "model", folder / "marked"
    shutil.copytree(adapted.model, model)
    (model / "adapter" / name).write_bytes(pickle.dumps(_Marks(marked)))
    settings = json.loads((model / "config.json").read_text())
    settings["sha256"][f"adapter/{name}"] = ""
    if alone:
        (model / WEIGHTS).unlink()
        del settings["sha256"][WEIGHTS]
    (model / "config.json").write_text(json.dumps(settings))
    sign_model(model)
    outcome, said = attempt(model)
    expect(not marked.exists(), "a pickle was read")
    expect(outcome == "answered" or not alone, f"{outcome}: {said}")


def _setting(name: str, value: Any) -> Change:
    def change(model: Path) -> None:
        content = json.loads((model / SETTINGS).read_text())
        (model / SETTINGS).write_text(json.dumps(content | {name: value}))

    return change


_NAN, _INF = float("nan"), float("inf")
VALUES: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("r", (0, -1, 10**9, 2**70, 3, "2", 1.5, None, True, [2])),
    ("lora_alpha", (0, -1, 1e308, 10**400, _NAN, _INF, "x", None, [])),
    ("lora_dropout", (2.0, -1, _NAN, "x", None)),
    (
        "target_modules",
        (
            [],
            None,
            "all-linear",
            ".*",
            "(",
            "(a|a?)+$|(.*)*(.*)*x",
            ["none"],
            [1],
            ["query"] * 100_000,
            ["embeddings.word_embeddings"],
            {"query": 1},
        ),
    ),
    ("rank_pattern", ({"query": 10**9}, {"query": -1}, {"(": 2}, {"query": "x"}, [])),
    ("alpha_pattern", ({"query": _NAN}, {"query": 1e308}, {"query": None})),
    (
        "peft_type",
        ("IA3", "PROMPT_TUNING", "LOHA", "ADALORA", "VERA", "x", None, 1, []),
    ),
    ("task_type", ("CAUSAL_LM", "SEQ_CLS", "x", 1)),
    ("bias", ("all", "lora_only", "x", None)),
    ("modules_to_save", (["pooler"], ["embeddings"], ["x"], "x", [1])),
    ("layers_to_transform", ([10**6], [-1], 0, "x", [])),
    ("layers_pattern", ("(", ["layer"], 1)),
    ("layer_replication", ([[0, 10**6]], [[1, 0]], [[-5, 5]], "x")),
    ("use_dora", (True, "x")),
    ("use_rslora", (True,)),
    ("fan_in_fan_out", (True,)),
    ("init_lora_weights", (False, "pissa", "eva", "olora", "corda", "x", 1)),
    ("inference_mode", (False, None)),
    ("trainable_token_indices", ([10**9], [-1], {"x": [0]})),
    ("target_parameters", (["x"], [".*"], "x")),
    ("exclude_modules", (".*", ["query"], "(")),
    ("auto_mapping", ({"base_model_class": "system", "parent_library": "os"}, "x")),
    ("base_model_name_or_path", ("/etc/passwd", "../../x", "owner/none", None, 1)),
    ("loftq_config", ({"loftq_bits": 4}, "x")),
    ("megatron_core", ("os",)),
    ("peft_version", ("999.0", 1)),
    ("none", (1,)),
)
"""Keys of `adapter_config.json` with values that a stranger may write."""


def _arrays(edit: Callable[[Arrays], Arrays]) -> Change:
    def change(model: Path) -> None:
        arrays = edit(load_file(model / WEIGHTS))
        save_file(
            {name: np.ascontiguousarray(array) for name, array in arrays.items()},
            model / WEIGHTS,
            {"format": "pt"},
        )

    return change


def _one(edit: Callable[[np.ndarray], np.ndarray], part: str = "lora_A") -> Change:
    def change(arrays: Arrays) -> Arrays:
        name = next(name for name in arrays if part in name)
        return arrays | {name: edit(arrays[name])}

    return _arrays(change)


def _all(edit: Callable[[np.ndarray], np.ndarray]) -> Change:
    return _arrays(lambda arrays: {name: edit(array) for name, array in arrays.items()})


def _renamed(change: Callable[[str], str]) -> Change:
    return _arrays(
        lambda arrays: {change(name): array for name, array in arrays.items()}
    )


def _more(name: str, array: np.ndarray) -> Change:
    return _arrays(lambda arrays: arrays | {name: array})


def _instead(make: Change, name: str = WEIGHTS) -> Change:
    def change(model: Path) -> None:
        (model / name).unlink()
        make(model / name)

    return change


_PREFIX = "base_model.model."
ARRAYS: dict[str, Change] = {
    "another rank in one": _one(lambda array: np.repeat(array, 2, axis=0)),
    "another rank in all": _arrays(
        lambda arrays: {
            name: np.repeat(array, 2, axis=0 if "lora_A" in name else 1)
            for name, array in arrays.items()
        }
    ),
    "one swapped": _one(lambda array: array.T),
    "all swapped": _all(lambda array: array.T),
    "one of a rank of 0": _one(lambda array: array[:0]),
    "one of three dimensions": _one(lambda array: array[None]),
    "one of one dimension": _one(lambda array: array.ravel()),
    "one of a number": _one(lambda array: array.ravel()[:1].reshape(())),
    "one of no number": _one(lambda array: array * _NAN),
    "one infinite, on the other side": _one(lambda array: array + _INF, "lora_B"),
    "all of 1e30": _all(lambda array: array * 0 + np.float32(1e30)),
    "all of 1e38": _all(lambda array: array * 0 + np.float32(1e38)),
    "all of 0": _all(lambda array: array * 0),
    "whole numbers": _all(lambda array: array.astype(np.int64)),
    "bytes": _all(lambda array: array.astype(np.uint8)),
    "truths": _all(lambda array: array > 0),
    "half precision": _all(lambda array: array.astype(np.float16)),
    "double precision": _all(lambda array: array.astype(np.float64)),
    "double precision that overflows": _all(
        lambda array: array.astype(np.float64) * 0 + 1e300
    ),
    "complex numbers": _all(lambda array: array.astype(np.complex64)),
    "one left out": _arrays(lambda arrays: dict(list(arrays.items())[1:])),
    "none": _arrays(lambda _: {}),
    "one side left out": _arrays(
        lambda arrays: {
            name: array for name, array in arrays.items() if "lora_A" in name
        }
    ),
    "names without a prefix": _renamed(lambda name: name.removeprefix(_PREFIX)),
    "names of another adapter": _renamed(
        lambda name: name.replace(".weight", ".other.weight")
    ),
    "names of a longer path": _renamed(lambda name: f"{_PREFIX}{name}"),
    "a layer more": _more(
        f"{_PREFIX}encoder.layer.99.attention.self.query.lora_A.weight",
        np.zeros((2, 32), np.float32),
    ),
    "a module that is not there": _more(
        f"{_PREFIX}none.lora_A.weight", np.zeros((2, 32), np.float32)
    ),
    "the encoder's own embeddings": _more(
        f"{_PREFIX}embeddings.word_embeddings.weight",
        np.full((4, 32), _NAN, np.float32),
    ),
    "the encoder's own rows": _more(
        f"{_PREFIX}encoder.layer.0.attention.self.query.base_layer.weight",
        np.full((32, 32), 1e30, np.float32),
    ),
    "an empty name": _more("", np.zeros(1, np.float32)),
    "a name of dots": _more("...", np.zeros(1, np.float32)),
    "a long name": _more(
        f"{_PREFIX}{'x.' * 5_000}lora_A.weight", np.zeros(1, np.float32)
    ),
    "no file": _instead(lambda _: None),
    "an empty file": _instead(Path.touch),
    "a folder": _instead(os.mkdir),
    "settings of nothing": _instead(lambda path: path.write_text("{}"), SETTINGS),
    "settings of a list": _instead(lambda path: path.write_text("[]"), SETTINGS),
    "settings of lists in lists": _instead(
        lambda path: path.write_text("[" * 100_000), SETTINGS
    ),
    "settings of very many keys": _instead(
        lambda path: path.write_text(
            json.dumps({f"k{number}": 1 for number in range(100_000)})
        ),
        SETTINGS,
    ),
    "no settings": _instead(lambda _: None, SETTINGS),
}
"""Changes of the adapter's files."""


def _lora(**values: Any) -> Change:
    def change(model: Path) -> None:
        path = model / "config.json"
        content = json.loads(path.read_text())
        content["model"]["encoder"]["lora"] |= values
        path.write_text(json.dumps(content))

    return change


def _no_lora(model: Path) -> None:
    path = model / "config.json"
    content = json.loads(path.read_text())
    content["model"]["encoder"]["lora"] = None
    path.write_text(json.dumps(content))


OWN: dict[str, Change] = {
    **{f"r = {value!r}": _lora(r=value) for value in (1, 4, 0, -1, 10**9, "2")},
    **{
        f"alpha = {value!r}": _lora(alpha=value)
        for value in (0, -1.0, 1e308, _NAN, "x")
    },
    **{f"dropout = {value!r}": _lora(dropout=value) for value in (1.0, 2.0, _NAN)},
    **{
        f"target_modules = {value!r}": _lora(target_modules=value)
        for value in ([], ["none"], ["dense"], "all-linear", [1], ["("], ["embeddings"])
    },
    "no adapter": _no_lora,
}
"""Changes of what the model's own `config.json` says of its adapter."""
MERGED: dict[str, Change] = {
    name: ARRAYS[name]
    for name in (
        "another rank in one",
        "all swapped",
        "one of no number",
        "all of 1e30",
        "all of 1e38",
        "half precision",
        "one left out",
        "the encoder's own rows",
    )
} | {
    "an alpha of 1e308": _setting("lora_alpha", 1e308),
    "an alpha of no number": _setting("lora_alpha", _NAN),
    "a rank of 10**9": _setting("r", 10**9),
    "another method": _setting("use_dora", True),
}
"""What `xmtc model merge` is given."""
