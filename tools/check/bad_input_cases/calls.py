"""Values of every type at the methods of a model."""

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from bad_input_cases.case import Case, Site
from xmtc.predict.predictor import Model

TEXTS: dict[str, Callable[[], Any]] = {
    "a text": lambda: "law",
    "bytes": lambda: b"law",
    "None": lambda: None,
    "a number": lambda: 3,
    "a mapping without text": lambda: {"title": ["law"]},
    "a frame without text": lambda: pd.DataFrame({"title": ["law"]}),
    "a table without text": lambda: pa.table({"title": ["law"]}),
    "a set": lambda: {"law", "fish"},
    "an array of numbers": lambda: np.arange(3),
    "a matrix": lambda: np.array([["law"]]),
    "a scalar": lambda: np.array("law"),
    "a list with None": lambda: ["law", None],
    "a list with bytes": lambda: ["law", b"law"],
    "a list of lists": lambda: [["law"]],
    "a list with NaN": lambda: ["law", float("nan")],
    "a Series with NaN": lambda: pd.Series(["law", None]),
    "an Arrow array with null": lambda: pa.array(["law", None]),
    "half a character": lambda: ["law\ud83d"],
    "a blank text": lambda: ["law", " \n"],
    "a type": lambda: str,
    "a generator of numbers": lambda: (i for i in range(3)),
}
SETTINGS: list[dict[str, Any]] = [
    {name: value}
    for name, values in {
        "top_k": (-1, 0, 1.5, "5", True, [1], float("nan")),
        "threshold": ("foo", -1, 2, float("nan"), [0.5], True),
        "shortlist": (0, -1, "all", 1.5),
        "least": (-1, "1", None),
    }.items()
    for value in values
]


def python_cases(site: Site) -> Iterator[Case]:
    """Values of every type at the methods of a model."""
    calls: dict[str, Callable[[Model, Any], Any]] = {
        "predict": lambda model, value: model.predict(value),
        "predict with evidence": lambda model, value: model.predict(
            value, evidence=True
        ),
        "explain": lambda model, value: model.explain(value, ["law"]),
        "labels of explain": lambda model, value: model.explain("lawery", value),
    }
    fine = {("explain", "a text"), ("labels of explain", "a text")}
    for (entry, call), (name, make) in itertools.product(calls.items(), TEXTS.items()):
        yield Case(
            "Python",
            entry,
            name,
            partial(_ask, site, call, make),
            (entry, name) not in fine,
        )
    for settings in SETTINGS:
        call = partial(_predict_law, settings)
        yield Case(
            "Python", "predict", f"{settings}", partial(_ask, site, call, lambda: None)
        )
    for tokens in (0, -5, "many", 2.5, True):
        given: dict[str, Any] = {"device": "cpu", "tokens_per_batch": tokens}
        load = partial(Model.from_pretrained, site.model, **given)
        yield Case(
            "Python",
            "from_pretrained",
            f"tokens_per_batch={tokens}",
            partial(_load, load),
        )
    for where in ("", ".", "nowhere", "/dev/null", os.fsdecode(b"m\xff")):
        yield Case(
            "Python",
            "from_pretrained",
            where,
            partial(_load, partial(Model.from_pretrained, where)),
        )


def _predict_law(settings: dict[str, Any], model: Model, _: object) -> object:
    return model.predict(["law"], **settings)


def _ask(
    site: Site, call: Callable[[Model, Any], Any], make: Callable[[], Any], folder: Path
) -> tuple[int, str]:
    del folder
    call(Model.from_pretrained(site.model, device="cpu"), make())
    return 0, ""


def _load(load: Callable[[], Any], folder: Path) -> tuple[int, str]:
    del folder
    load()
    return 0, ""
