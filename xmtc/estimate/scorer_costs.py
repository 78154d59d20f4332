"""What fitting and using a scorer costs: figures of one core, times the sizes of the corpus.

`figures.json` has seconds and bytes for a unit of each part, measured on one machine. A unit such as `terms * labels`
is a product of sizes.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from xmtc.config.plain import to_plain
from xmtc.estimate.size import Size
from xmtc.files import read_json
from xmtc.run.config import RunConfig
from xmtc.scorers.config import ScorerSettings

FIGURES: dict[str, Any] = read_json(Path(__file__).with_name("figures.json"))
_SEARCHED_EXACTLY = 200_000  # documents; beyond, inverted lists are searched
_LINEAR_LABELS_AT_ONCE = 512
_TERMS_KEPT = 400  # of each label, for each of its documents
_BRANCHES = 100  # of a tree of labels


def not_measured(config: RunConfig) -> list[str]:
    """List the scorers that take time which no figure tells: those of other packages."""
    return [
        scorer.kind
        for scorer in config.model.scorers
        if scorer.kind not in FIGURES["scorers"]
    ]


def scorer_bytes(config: RunConfig, size: Size, width: int) -> float:
    """Estimate the peak memory of fitting; scorers are fitted one after another."""
    peak = 0.0
    for scorer in config.model.scorers:
        sizes = scorer_sizes(scorer, size, width, config.data.words.most_terms)
        peak = max(peak, total_of(figures_of_scorer(scorer.kind, "bytes"), sizes))
    return peak


def figures_of_scorer(
    kind: str, part: Literal["fit", "fit_products", "score", "score_products", "bytes"]
) -> dict[str, float]:
    """Return the figures of a scorer; none for one that another package adds."""
    return FIGURES["scorers"].get(kind, {}).get(part, {})


def total_of(figures: Mapping[str, float], sizes: Mapping[str, float]) -> float:
    """Add the units, each a product of sizes, times their figures."""
    total = 0.0
    for unit, figure in figures.items():
        total += figure * math.prod(sizes[name] for name in unit.split(" * "))
    return total


def scorer_sizes(
    scorer: ScorerSettings, size: Size, width: int, most_terms: int
) -> dict[str, float]:
    """Compute the sizes that units of scorers name.

    Args:
        scorer: settings of the scorer.
        size: size of the corpus.
        width: D, width of the encoder.
        most_terms: number of terms that preparation keeps.
    """
    settings = to_plain(scorer)
    terms = max(1, min(size.terms(most_terms), settings.get("most_terms", most_terms)))
    smaller = min(terms, size.train)
    branches = min(_BRANCHES, size.labels)
    documents_per_label = max(
        size.train * size.labels_per_document / max(size.labels, 1), 1
    )
    searched = size.train if size.train <= _SEARCHED_EXACTLY else 32 * size.train**0.5
    return {
        "documents": size.train,
        "searched": searched,
        "labels": size.labels,
        "labels_at_once": min(size.labels, _LINEAR_LABELS_AT_ONCE),
        "labels_per_document": size.labels_per_document,
        "words": size.words,
        "width": width,
        "terms": terms,
        "size": smaller,
        "size_per_term": smaller / terms,
        "kept_per_term": min(1.0, _TERMS_KEPT * documents_per_label / terms),
        "dual": 1.0 if smaller < terms else 0.0,
        "trees": settings.get("trees", 1),
        "branches": branches,
        "leaves": size.labels / branches if size.labels > branches else 0.0,
    }


def states_readers(scorers: Sequence[ScorerSettings]) -> list[ScorerSettings]:
    """Select the scorers that read the encoder's pooled states."""
    return [scorer for scorer in scorers if "states" in scorer.needs]
