"""The per-label table as compact columns for the page's script."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from xmtc.report.run_results import RunResults

MAX_LABELS = 60_000
_NAME_LENGTH = 80


def label_columns(runs: Sequence[RunResults]) -> dict[str, Any]:
    """Columns over the labels of all runs: label, name, training and evaluated documents, and per run tp, fp, AP and
    the most confused labels. Precision, recall and F1 follow from these and are left to the page.

    Beyond 60,000 labels those with most documents in the split are kept, then those most frequent in training.

    Returns:
        JSON-able columns; `total` is the number of labels there are.
    """
    frames = [run.per_label.to_pandas().set_index("label") for run in runs]
    index = frames[0].index
    for frame in frames[1:]:
        index = index.union(frame.index, sort=False)
    first = frames[0].reindex(index)
    for frame in frames[1:]:
        first = first.combine_first(frame).reindex(index)
    total = len(index)
    if total > MAX_LABELS:
        order = first.sort_values(["support", "train_count"], ascending=False, kind="stable").index[:MAX_LABELS]
        index = index[index.isin(order)]
        first = first.loc[index]
    place = {label: i for i, label in enumerate(index)}
    names = first["name"].fillna("").tolist()
    return {
        "total": total,
        "labels": index.tolist(),
        "names": [0 if name == label else _short(name) for name, label in zip(names, index, strict=True)],
        "train": _integers(first, "train_count"),
        "support": _integers(first, "support"),
        "runs": [_run(run.name, frame.reindex(index), place, first) for run, frame in zip(runs, frames, strict=True)],
    }


def _short(name: str) -> str:
    return name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…"


def _integers(frame: pd.DataFrame, name: str) -> list[int]:
    return frame[name].fillna(0).astype(np.int64).tolist()


def _run(name: str, frame: pd.DataFrame, place: dict[str, int], first: pd.DataFrame) -> dict[str, Any]:
    """Make a run's columns; `support` is 0 if it is the same as that of all runs."""
    support = _integers(frame, "support")
    precision = (frame["average_precision"] * 1000).round().fillna(-1).astype(int)
    confused = [
        [place[x] for x in row if x in place] if isinstance(row, list | np.ndarray) else []
        for row in frame["confused_with"]
    ]
    return {
        "name": name,
        "tp": _integers(frame, "tp"),
        "fp": _integers(frame, "fp"),
        "support": 0 if support == _integers(first, "support") else support,
        "ap": precision.tolist(),
        "confused": [row or 0 for row in confused],
    }


def embed(value: Any) -> Markup:
    """Write JSON for a script element: no `<` of it can end the element."""
    return Markup(json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c"))
