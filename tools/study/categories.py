"""What a category (the column `type` of EURLEX57K and of the library's records) adds to scorers of words.

    python tools/study/categories.py data
    python tools/study/categories.py data --sets gnd_tib --weights 0.25 --tree

Everything is fitted and measured as `quality.py` does it, words alone. `linear` (and a Parabel tree) gets a column for
each value, with a weight beside those of title and text. The other way to use a category is a scorer with the share of
documents of the same type that have a label, which the fusion weighs; its control has the share of all documents.
Prints a JSON line for each system, and the difference to the one without the category (paired bootstrap).
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import sparse

from quality import RECIPES, Clock, Json, Measured, candidates, fused
from quality_data import Case, load_case
from xmtc.scorers.base import BLOCK
from xmtc.scorers.config import LinearConfig, ScorerSettings, TreeConfig
from xmtc.scorers.predictions import SparsePredictions

CATEGORY = "type"
FIELDS = {"title": 1.0, "text": 2.0}
_BEST = 100  # labels of a document that a scorer finds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", type=Path, help="folder with a folder for each data set"
    )
    parser.add_argument("--sets", default="eurlex57k,gnd_tib")
    parser.add_argument("--weights", default="0.1,0.25,0.5,1")
    parser.add_argument(
        "--documents",
        type=int,
        help="draw so many training documents, and a quarter as many others",
    )
    parser.add_argument("--tree", action="store_true", help="also a Parabel tree")
    parser.add_argument("--resamples", type=int, default=1000, help="of the bootstrap")
    arguments = parser.parse_args()
    for name in arguments.sets.split(","):
        for line in study(name, arguments):
            print(json.dumps(line), flush=True)


def study(name: str, arguments: argparse.Namespace) -> Iterator[Json]:
    """One line for each system on one data set, each followed by its difference."""
    clock, recipe = Clock(), RECIPES[name]
    whole = {"categories": (CATEGORY,), "most": arguments.documents}
    case = clock(
        "words", lambda: load_case(arguments.data / name, recipe.words, **whole)
    )
    measured = Measured(name, case, arguments.resamples)
    others = {
        one: found(case, settings, clock)
        for one, settings in recipe.scorers.items()
        if one != "ridge"
    }
    for weight in (0.0, *map(float, arguments.weights.split(","))):
        fields = FIELDS | ({CATEGORY: weight} if weight else {})
        ridge = recipe.scorers["ridge"]
        assert isinstance(ridge, LinearConfig)
        own = {"linear": found(case, replace(ridge, fields=fields), clock)}
        if arguments.tree:
            own["tree"] = found(
                case, TreeConfig(shape="parabel", trees=1, fields=fields), clock
            )
        for system, some in {
            **{one: {one: own[one]} for one in own},
            "fused": own | others,
        }.items():
            yield from lines(
                measured, case, f"{system} {weight}", some, f"{system} 0.0"
            )
        if not weight:
            for system, some in {
                "by type": prior(case),
                "of all": prior(case, by_type=False),
            }.items():
                yield from lines(
                    measured,
                    case,
                    f"fused, shares {system}",
                    own | others | {"shares": some},
                    "fused 0.0",
                )
            yield measured.difference("fused, shares by type", "fused, shares of all")


def found(case: Case, settings: ScorerSettings, clock: Clock) -> SparsePredictions:
    """Fit a scorer, and find the best labels of the held-out documents."""
    scorer = clock(settings.kind, lambda: settings.fit(case.training))
    rows = [
        slice(start, start + BLOCK) for start in range(0, len(case.held_out), BLOCK)
    ]
    parts = [scorer.score(case.held_out.take(some)).top(_BEST) for some in rows]
    ids, scores = (
        np.concatenate(arrays)
        for arrays in zip(*((p.label_ids_NK, p.scores_NK) for p in parts), strict=True)
    )
    return SparsePredictions(ids, scores)


def lines(
    measured: Measured,
    case: Case,
    system: str,
    scorers: Mapping[str, SparsePredictions],
    than: str,
) -> Iterator[Json]:
    """Measure fused scorers, and compare them with a system."""
    pairs = candidates([], case.held_out, list(scorers.values()), len(case.labels))
    yield measured.line(system, fused(case, list(scorers), pairs))
    if system != than:
        yield measured.difference(system, than)


def prior(case: Case, *, by_type: bool = True) -> SparsePredictions:
    """The most frequent labels of each document's type, or of all documents, and the share that have them."""
    words = case.training.features.words
    first = len(words.vocabulary.fields) * len(words.vocabulary)
    types_NV, held_NV = (
        part.counts_NC[:, first:] for part in (words, case.held_out.words)
    )
    if not by_type:
        types_NV, held_NV = (
            sparse.csr_array(np.ones((part.shape[0], 1)))
            for part in (types_NV, held_NV)
        )
    shares_VL = (types_NV.T @ case.training.labels_NL.astype(np.float64)).tocsr()
    shares_VL = sparse.diags_array(1 / np.maximum(types_NV.sum(axis=0), 1)) @ shares_VL
    scores_NL = (held_NV @ shares_VL).toarray()
    ids_NK = np.argsort(-scores_NL, axis=1, kind="stable")[:, :_BEST]
    return SparsePredictions(
        ids_NK.astype(np.int32),
        np.take_along_axis(scores_NL, ids_NK, axis=1).astype(np.float32),
    )


if __name__ == "__main__":
    main()
