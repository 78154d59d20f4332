"""Drift: how far texts and answers are from those that a model was trained and calibrated on.

A statistic of documents differs by the greatest distance of its two distributions (Kolmogorov-Smirnov), a kind by half
the sum of the differences of its shares (total variation); both lie from 0 to 1. Only what chance does not explain is
drift.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp

from xmtc.artefact.profile import MOST_LABELS, Profile
from xmtc.data.analyzer import words_of
from xmtc.data.languages import languages_of
from xmtc.errors import ConfigError, DataError
from xmtc.evaluate.summary import percent
from xmtc.files import write_json
from xmtc.fusion.decision import CONSIDERED
from xmtc.predict.predictor import Model
from xmtc.predict.request import Request
from xmtc.predict.statistics import (
    STATISTICS,
    Statistics,
    kinds_of,
    of_answers,
    of_tokens,
    of_words,
)
from xmtc.predict.tokenised import tokenised
from xmtc.report.charts import Axis, Bars, bar_chart
from xmtc.report.section import Chart, Figures, Part, Table, label_title

BOUND = 0.1
"""Distance beyond which something has drifted, unless another one is given."""
_CHANCE = 0.001
"""Probability below which chance does not explain a distance."""
_TEXTS = 256
"""Texts that are measured together."""
_STEPS = 10
_SHOWN = 20
_STOP_WORD = 0.2
"""Share of documents from which on a word is one of the language, not of a subject."""
_LEAST = 5
"""Documents of a word that is listed."""
_DRAWS = 1000
_BLOCK = 100
_ROUNDING = 1e-9
_TITLES = {"labels": "label predicted", "scripts": "script", "languages": "language"}


@dataclass(frozen=True)
class Drift:
    """How far one statistic or kind has drifted.

    Attributes:
        name: its name.
        before: median of dev; of a kind, its most frequent value.
        now: the same of the new documents.
        distance: from 0 to 1.
        p_value: probability of so great a distance by chance.
    """

    name: str
    before: str
    now: str
    distance: float
    p_value: float

    def is_beyond(self, bound: float) -> bool:
        """Whether this is more than the bound and more than chance."""
        return self.distance > bound and self.p_value < _CHANCE


@dataclass(frozen=True)
class NewDocuments:
    """What was measured of new documents.

    Attributes:
        statistics: values of each statistic, one for each document with tokens.
        kinds: how often each value of a kind occurs, by kind.
        expected_f1_by_word: for each word that the model does not know, what F1 is expected of the documents with it.
        skipped: number of documents without tokens.
    """

    statistics: Statistics
    kinds: Mapping[str, Counter[str]]
    expected_f1_by_word: Mapping[str, Sequence[float]]
    skipped: int

    @property
    def documents(self) -> int:
        """Number of documents with tokens."""
        return len(self.statistics["tokens"])


def profile_of(model: Model) -> Profile:
    """Return what a model remembers of its texts.

    Raises:
        ConfigError: it remembers nothing.
    """
    if model.profile is None:
        raise ConfigError(
            f"{model.info.name}: the model has no profile of its texts; train it again to get one"
        )
    return model.profile


def measure(model: Model, profile: Profile, texts: Iterable[str]) -> NewDocuments:
    """Measure new texts.

    Raises:
        DataError: no text has tokens.
    """
    parts: list[Statistics] = []
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    expected_f1_by_word: dict[str, list[float]] = defaultdict(list)
    skipped = 0
    remaining = iter(texts)
    while batch := list(islice(remaining, _TEXTS)):
        lengths = tokenised(
            batch, model.scorer.tokenizer, model.info.max_length
        ).lengths
        readable = [text for text, length in zip(batch, lengths, strict=True) if length]
        skipped += len(batch) - len(readable)
        if readable:
            statistics = _measure_batch(
                model, profile, readable, kinds, expected_f1_by_word
            )
            parts.append(statistics)
    if not parts:
        raise DataError("no new document has tokens; give files with texts")
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return NewDocuments(whole, kinds, expected_f1_by_word, skipped)


def _measure_batch(
    model: Model,
    profile: Profile,
    texts: Sequence[str],
    kinds: Mapping[str, Counter[str]],
    expected_f1_by_word: Mapping[str, list[float]],
) -> Statistics:
    """Measure some texts: return their statistics, and add to the counts of kinds and to the words."""
    scorer = model.scorer
    documents = scorer.tokenise(texts)
    words = scorer.words(documents)
    answer = scorer.score(documents, Request(top_k=CONSIDERED), words=words)
    statistics = of_tokens(profile, documents.ids_N)
    statistics |= of_answers(model.decision, answer.label_ids_NK, answer.scores_NK)
    if scorer.ensemble is not None and words is not None:
        statistics |= of_words(scorer.ensemble, words, statistics["tokens"])
        known_words = scorer.ensemble.vocabulary.ids.keys()
        for text, expected_f1 in zip(texts, statistics["expected_f1"], strict=True):
            for word in set(words_of(text)) - known_words:
                expected_f1_by_word[word].append(float(expected_f1))
    for name, values in kinds_of(scorer.tokenizer, documents.ids_N, words).items():
        kinds[name].update(values)
    kinds["languages"].update(languages_of(texts))
    chosen_NK = model.decision.chosen(answer.label_ids_NK, answer.scores_NK)
    kinds["labels"].update(
        model.labels.labels[label_id] for label_id in answer.label_ids_NK[chosen_NK]
    )
    return statistics


def compare_with_profile(
    profile: Profile, new: NewDocuments, model: Model
) -> list[Drift]:
    """Compare new documents with the profile; a model without scorers has fewer statistics."""
    drifts = []
    for name in STATISTICS:
        if name in profile.sample and name in new.statistics:
            drifts.append(
                _compare_values(
                    name, profile.sample[name], new.statistics[name].astype(np.float32)
                )
            )
    for name, counts_on_dev in profile.kinds.items():
        values = _compared_values(name, counts_on_dev, new.kinds[name], model)
        dev = [counts_on_dev.get(value, 0) for value in values]
        now = [new.kinds[name].get(value, 0) for value in values]
        drifts.append(compare_counts(name, dev, now, values))
    return drifts


def _compare_values(
    name: str, dev_N: NDArray[np.float32], now_N: NDArray[np.float32]
) -> Drift:
    """Compare the distributions of a statistic."""
    test: Any = ks_2samp(dev_N, now_N)  # its type has no attributes
    return Drift(
        name=name,
        before=f"{np.median(dev_N):.3g}",
        now=f"{np.median(now_N):.3g}",
        distance=float(test.statistic),
        p_value=float(test.pvalue),
    )


def _compared_values(
    name: str, dev: Mapping[str, int], now: Mapping[str, int], model: Model
) -> list[str]:
    """List the values of a kind that are compared: those of dev and of the new documents.

    Of labels, only those of dev, if dev may have had others as well: the profile remembers the most frequent ones, and
    labels may have changed since (then the model has no metrics of dev).
    """
    remembers_all = len(dev) < MOST_LABELS and bool(model.info.dev)
    if name != "labels" or remembers_all:
        return list(dict.fromkeys([*dev, *now]))
    return [value for value in dev if value in model.labels]


def compare_counts(
    name: str, before: Sequence[int], now: Sequence[int], values: Sequence[str]
) -> Drift:
    """Compare how often the values of a kind occur.

    Args:
        name: name of the kind.
        before: how often each value occurs on dev.
        now: how often each value occurs in new documents.
        values: the values.

    Returns:
        The drift. Its p-value is how often as many documents, drawn from both samples together, have as large a χ².
    """
    table_2V = np.array([before, now], np.int64).reshape(2, -1)
    pooled_V = table_2V.sum(axis=0)
    sums_2 = table_2V.sum(axis=1)
    if not sums_2.all():
        is_other = bool(sums_2.any())
        return Drift(
            name, "–", "–", distance=float(is_other), p_value=0.0 if is_other else 1.0
        )
    expected_V = pooled_V * sums_2[1] / sums_2.sum()

    def chi_squared(now_RV: NDArray[np.int64]) -> NDArray[np.float64]:
        return ((now_RV - expected_V) ** 2 / np.maximum(pooled_V, 1)).sum(axis=-1)

    observed = chi_squared(table_2V[1])
    rng = np.random.default_rng(0)
    as_large = 0
    for _ in range(_DRAWS // _BLOCK):
        drawn_RV = rng.multivariate_hypergeometric(pooled_V, sums_2[1], _BLOCK)
        as_large += int((chi_squared(drawn_RV) >= observed - _ROUNDING).sum())
    shares_2V = table_2V / sums_2[:, None]
    most_frequent = [values[int(counts_V.argmax())] for counts_V in table_2V]
    return Drift(
        name=name,
        before=most_frequent[0],
        now=most_frequent[1],
        distance=float(np.abs(shares_2V[1] - shares_2V[0]).sum() / 2),
        p_value=(1 + as_large) / (1 + _DRAWS),
    )


def drift_parts(
    profile: Profile,
    new: NewDocuments,
    drifts: Sequence[Drift],
    bound: float,
    model: Model,
) -> list[Part]:
    """Make tables and pictures.

    Args:
        profile: what the model remembers.
        new: what was measured of new documents.
        drifts: how far they are apart.
        bound: distance beyond which something has drifted.
        model: the model.
    """
    parts: list[Part] = [_drift_table(drifts, bound)]
    for name, counts_on_dev in profile.kinds.items():
        parts.append(_table_of_shares(name, counts_on_dev, new.kinds[name], model))
    parts.append(_table_of_words(new))
    charts = []
    for drift in drifts:
        if drift.name in new.statistics:
            charts.append(
                _chart(
                    drift.name, profile.sample[drift.name], new.statistics[drift.name]
                )
            )
    return [*parts, Figures(charts)]


def _drift_table(drifts: Sequence[Drift], bound: float) -> Table:
    rows = []
    for drift in sorted(drifts, key=lambda drift: -drift.distance):
        verdict = "drift" if drift.is_beyond(bound) else ""
        title = STATISTICS.get(drift.name, drift.name)
        rows.append(
            [
                title,
                drift.before,
                drift.now,
                f"{drift.distance:.3f}",
                f"{drift.p_value:.1g}",
                verdict,
            ]
        )
    columns = ["statistic", "dev", "now", "distance", "p", ""]
    caption = f"Medians, or what is most frequent, and how far apart; drift is beyond {bound:g}, and beyond chance"
    return Table("drift", columns, rows, caption=caption, in_summary=True)


def _table_of_shares(
    name: str, dev: Mapping[str, int], now: Mapping[str, int], model: Model
) -> Table:
    """List the values of a kind whose share of the documents has changed most."""
    values = _compared_values(name, dev, now, model)
    total_on_dev = max(sum(dev.get(value, 0) for value in values), 1)
    total_now = max(sum(now.get(value, 0) for value in values), 1)
    shares = {
        value: (dev.get(value, 0) / total_on_dev, now.get(value, 0) / total_now)
        for value in values
    }
    most_changed = sorted(
        values, key=lambda value: -abs(shares[value][1] - shares[value][0])
    )[:_SHOWN]
    rows = []
    for value in most_changed:
        title = (
            model.labels.names[model.labels.index(value)] if name == "labels" else value
        )
        share_on_dev, share_now = shares[value]
        rows.append(
            [label_title(value, title), percent(share_on_dev), percent(share_now)]
        )
    columns = [_TITLES.get(name, name), "dev, %", "now, %"]
    file_name = f"drift_{name.replace('/', '_')}"
    return Table(file_name, columns, rows, caption=f"Shares that change most: {name}")


def _table_of_words(new: NewDocuments) -> Table:
    """List words that the model does not know, in documents of which less F1 is expected than of all."""
    mean_of_all = float(new.statistics["expected_f1"].mean())
    most_documents = _STOP_WORD * new.documents
    listed = []
    for word, values in new.expected_f1_by_word.items():
        loss = sum(mean_of_all - value for value in values)
        if _LEAST <= len(values) < most_documents and loss > 0:
            listed.append((loss, word, values))
    listed.sort(key=lambda item: -item[0])
    rows = [
        [word, f"{len(values):,}", percent(float(np.mean(values)))]
        for _, word, values in listed[:_SHOWN]
    ]
    caption = (
        "Words that the model does not know, in documents of low expected F1 "
        f"(mean of all: {percent(mean_of_all)} %)"
    )
    return Table(
        "new_words", ["word", "documents", "expected F1, %"], rows, caption=caption
    )


def _chart(name: str, dev: NDArray[np.floating], now: NDArray[np.floating]) -> Chart:
    """Draw the distributions of a statistic, in tenths of both together."""
    both = np.concatenate([dev, now]).astype(np.float64)
    ends = np.unique(np.quantile(both, np.linspace(0, 1, _STEPS + 1)))
    starts = ends[:-1] if len(ends) > 1 else ends
    edges = np.append(starts, np.inf)
    bars = []
    for run, (title, values) in enumerate((("dev", dev), ("now", now))):
        counts, _ = np.histogram(values, edges)
        bars.append(Bars(title, (counts / max(counts.sum(), 1)).tolist(), run))
    groups = [f"{start:.2g}" for start in starts]
    svg = bar_chart(
        groups,
        bars,
        f"{STATISTICS[name]}, from",
        Axis("documents, %", percent=True),
        name,
    )
    return Chart(
        name, f"{STATISTICS[name]}: dev (left) and now (right), in tenths of both", svg
    )


def write_distances(
    path: Path, drifts: Sequence[Drift], new: NewDocuments, bound: float
) -> None:
    """Write the distances as JSON."""
    changes = {
        drift.name: {**vars(drift), "drift": drift.is_beyond(bound)} for drift in drifts
    }
    content = {
        "documents": new.documents,
        "without_tokens": new.skipped,
        "bound": bound,
        "changes": changes,
        "drift": any(drift.is_beyond(bound) for drift in drifts),
    }
    write_json(path, content, indent=2)
