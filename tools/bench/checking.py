"""What it costs to check every array of a model when it is loaded: how much longer loading takes, in pairs.

    python tools/bench/checking.py [MODEL …] [--labels 100000 --terms 100000 --weights 10000000] [--rounds 9]

Loads each model with the checks of `xmtc.artefact.contract` and without them, in turn, in another order each time. Then
makes the file of a linear scorer of these sizes, and reads it with and without its checks: in models of many labels,
nearly all arrays are of this kind. Seconds are CPU seconds of this process, so that other work on the machine counts
little; files are in memory already. Prints a JSON line for each: milliseconds of loading without the checks (median),
milliseconds that they add (median of the pairs), and the ratio of both loadings with a 95% interval by bootstrap.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from scipy import sparse

from xmtc.artefact.export import load_model
from xmtc.data.array_contract import Sizes, check_tensors
from xmtc.data.checked_tensors import reading_once
from xmtc.scorers.linear import Linear

RESAMPLES = 2_000


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds that this process spends on some work."""
    began = time.process_time()
    work()
    return time.process_time() - began


def without_checks(model: Path) -> None:
    """Load a model as if its arrays were sound."""
    with (
        patch("xmtc.artefact.export.check_arrays"),
        patch("xmtc.artefact.export.check_labels"),
    ):
        load_model(model)


def compare(
    checked: Callable[[], object], unchecked: Callable[[], object], rounds: int
) -> dict[str, object]:
    """Do both in turn, and compare what they take."""
    checked()
    unchecked()
    pairs = []
    for number in range(rounds):
        if number % 2:
            without_s = seconds(unchecked)
            with_s = seconds(checked)
        else:
            with_s = seconds(checked)
            without_s = seconds(unchecked)
        pairs.append((with_s, without_s))
    with_R, without_R = np.array(pairs).T
    rng = np.random.default_rng(0)
    draws = rng.integers(rounds, size=(RESAMPLES, rounds))
    ratios = np.median(with_R[draws] / without_R[draws], axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return {
        "loading_ms": round(1000 * float(np.median(without_R)), 1),
        "checks_ms": round(1000 * float(np.median(with_R - without_R)), 1),
        "ratio": round(float(np.median(with_R / without_R)), 3),
        "ci95": [round(float(low), 3), round(float(high), 3)],
        "rounds": rounds,
    }


def linear_scorer(folder: Path, labels: int, terms: int, weights: int) -> Linear:
    """Write a linear scorer with weights at random places."""
    rng = np.random.default_rng(0)
    starts = np.sort(rng.integers(weights + 1, size=terms + 1))
    starts[[0, -1]] = 0, weights
    table = sparse.csr_array(
        (
            rng.normal(size=weights).astype(np.float32),
            rng.integers(labels, size=weights, dtype=np.int32),
            starts,
        ),
        shape=(terms, labels),
    )
    scorer = Linear(table, np.ones(1, np.float32))
    scorer.save(folder)
    return scorer


def main() -> None:
    """Compare, and print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL")
    parser.add_argument("--labels", type=int, default=100_000)
    parser.add_argument("--terms", type=int, default=100_000)
    parser.add_argument("--weights", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for model in given.models:
        found = compare(
            partial(load_model, model), partial(without_checks, model), given.rounds
        )
        megabytes = (
            sum(path.stat().st_size for path in model.rglob("*") if path.is_file())
            / 1e6
        )
        print(
            json.dumps(
                {"model": model.parent.name, "megabytes": round(megabytes, 1), **found}
            ),
            flush=True,
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        linear_scorer(folder, given.labels, given.terms, given.weights)
        path = folder / Linear.FILE
        sizes = Sizes({"C": given.terms, "L": given.labels, "F": 1})

        def checked() -> None:
            with reading_once():
                check_tensors(path, Linear.ARRAYS or {}, sizes.own())
                Linear.load(folder)

        found = compare(checked, partial(Linear.load, folder), given.rounds)
        made = {"labels": given.labels, "terms": given.terms, "weights": given.weights}
        print(
            json.dumps(
                {**made, "megabytes": round(path.stat().st_size / 1e6, 1), **found}
            )
        )


if __name__ == "__main__":
    main()
