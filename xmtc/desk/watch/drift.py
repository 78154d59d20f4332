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
from xmtc.predict.statistics import STATISTICS, Statistics, kinds_of, of_answers, of_tokens, of_words
from xmtc.predict.tokenised import tokenised
from xmtc.report.charts import Axis, Bars, bar_chart
from xmtc.report.section import Chart, Figures, Part, Table, label_title

BOUND = 0.1
_CHANCE = 0.001
_TEXTS, _STEPS, _SHOWN = 256, 10, 20
_STOP_WORD = 0.2  # share of documents from which a word is one of the language
_LEAST = 5
"""Documents of a word that is listed."""
_DRAWS, _BLOCK = 1000, 100
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
class New:
    """What was measured of new documents.

    Attributes:
        found: statistics.
        kinds: numbers of each kind's values.
        words: for words that the model does not know, what F1 is expected of their documents.
        skipped: documents without tokens.
    """

    found: Statistics
    kinds: dict[str, Counter[str]]
    words: dict[str, list[float]]
    skipped: int

    @property
    def documents(self) -> int:
        """Number of documents with tokens."""
        return len(self.found["tokens"])


def profile_of(model: Model) -> Profile:
    """Return what a model remembers of its texts.

    Raises:
        ConfigError: it remembers nothing.
    """
    if model.profile is None:
        raise ConfigError(f"{model.info.name}: the model has no profile of its texts; train it again to get one")
    return model.profile


def measure(model: Model, profile: Profile, texts: Iterable[str]) -> New:
    """Measure new texts.

    Raises:
        DataError: no text has tokens.
    """
    parts: list[Statistics] = []
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    words: dict[str, list[float]] = {}
    skipped, rest = 0, iter(texts)
    while batch := list(islice(rest, _TEXTS)):
        lengths = tokenised(batch, model.scorer.tokenizer, model.info.max_length).lengths
        kept = [text for text, length in zip(batch, lengths, strict=True) if length]
        skipped += len(batch) - len(kept)
        if not kept:
            continue
        documents = model.scorer.tokenise(kept)
        counted = model.scorer.words(documents)
        answer = model.scorer.score(documents, Request(top_k=CONSIDERED), words=counted)
        ids_NK = answer.label_ids_NK
        scores_NK = answer.scores_NK
        found = of_tokens(profile, documents.ids_N) | of_answers(model.decision, ids_NK, scores_NK)
        if model.scorer.ensemble is not None and counted is not None:
            found |= of_words(model.scorer.ensemble, counted, found["tokens"])
            for text, expected in zip(kept, found["expected_f1"], strict=True):
                for word in set(words_of(text)) - model.scorer.ensemble.vocabulary.ids.keys():
                    words.setdefault(word, []).append(float(expected))
        parts.append(found)
        for name, values in kinds_of(model.scorer.tokenizer, documents.ids_N, counted).items():
            kinds[name].update(values)
        kinds["languages"].update(languages_of(kept))
        chosen = ids_NK[model.decision.chosen(ids_NK, scores_NK)]
        kinds["labels"].update(model.labels.labels[label] for label in chosen)
    if not parts:
        raise DataError("no new document has tokens; give files with texts")
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return New(whole, kinds, words, skipped)


def compare_with_profile(profile: Profile, new: New, model: Model) -> list[Drift]:
    """Compare new documents with the profile; a model without scorers has fewer statistics."""
    rows = []
    for name in STATISTICS:
        if name in profile.sample and name in new.found:
            before, now = profile.sample[name], new.found[name].astype(np.float32)
            test: Any = ks_2samp(before, now)
            medians = [f"{np.median(values):.3g}" for values in (before, now)]
            rows.append(Drift(name, medians[0], medians[1], float(test.statistic), float(test.pvalue)))
    for name, before in profile.kinds.items():
        values = _compared(name, before, new.kinds[name], model)
        dev, now = ([counts.get(value, 0) for value in values] for counts in (before, new.kinds[name]))
        rows.append(compare_counts(name, dev, now, values))
    return rows


def _compared(name: str, before: Mapping[str, int], now: Mapping[str, int], model: Model) -> list[str]:
    """List the values of a kind: those of dev and now; of labels only dev's, if others may be what dev had, too."""
    if name != "labels" or (len(before) < MOST_LABELS and model.info.dev):  # no metrics: labels changed since
        return list(dict.fromkeys([*before, *now]))
    return [value for value in before if value in model.labels]


def compare_counts(name: str, before: Sequence[int], now: Sequence[int], values: Sequence[str]) -> Drift:
    """Compare numbers of values; chance is how often as many, drawn from both samples together, have as large a χ²."""
    table_2V = np.array([before, now], np.int64).reshape(2, -1)
    pooled_V, sums_2 = table_2V.sum(axis=0), table_2V.sum(axis=1)
    if not sums_2.all():
        return Drift(name, "–", "–", float(sums_2.any()), 0.0 if sums_2.any() else 1.0)

    def strangeness(now_RV: NDArray[np.int64]) -> NDArray[np.float64]:
        return ((now_RV - pooled_V * sums_2[1] / sums_2.sum()) ** 2 / np.maximum(pooled_V, 1)).sum(axis=-1)

    blocks, rng = range(_DRAWS // _BLOCK), np.random.default_rng(0)
    drawn = [strangeness(rng.multivariate_hypergeometric(pooled_V, sums_2[1], _BLOCK)) for _ in blocks]
    as_strange = int((np.concatenate(drawn) >= strangeness(table_2V[1]) - 1e-9).sum())
    most = [values[int(counts_V.argmax())] for counts_V in table_2V]
    distance = float(np.abs(np.diff(table_2V / sums_2[:, None], axis=0)).sum() / 2)
    return Drift(name, most[0], most[1], distance, (1 + as_strange) / (1 + _DRAWS))


def drift_parts(profile: Profile, new: New, rows: Sequence[Drift], bound: float, model: Model) -> list[Part]:
    """Make tables and pictures."""
    shown = []
    for row in sorted(rows, key=lambda row: -row.distance):
        numbers = (row.before, row.now, f"{row.distance:.3f}", f"{row.p_value:.1g}")
        shown.append([STATISTICS.get(row.name, row.name), *numbers, "drift" if row.is_beyond(bound) else ""])
    columns = ["statistic", "dev", "now", "distance", "p", ""]
    caption = f"Medians, or what is most frequent, and how far apart; drift is beyond {bound:g}, and beyond chance"
    parts: list[Part] = [Table("drift", columns, shown, caption=caption, in_summary=True)]
    parts += [_shares(name, before, new.kinds[name], model) for name, before in profile.kinds.items()]
    charts = [_chart(row.name, profile.sample[row.name], new.found[row.name]) for row in rows if row.name in new.found]
    return [*parts, _words(new), Figures(charts)]


def _shares(name: str, before: Mapping[str, int], now: Mapping[str, int], model: Model) -> Table:
    values = _compared(name, before, now, model)
    sums = [max(sum(counts.get(value, 0) for value in values), 1) for counts in (before, now)]
    shares = {value: (before.get(value, 0) / sums[0], now.get(value, 0) / sums[1]) for value in values}
    most = sorted(shares.items(), key=lambda item: -abs(item[1][0] - item[1][1]))[:_SHOWN]
    names = {one: model.labels.names[model.labels.index(one)] for one, _ in most} if name == "labels" else {}
    rows = [[label_title(value, names.get(value, value)), *map(percent, pair)] for value, pair in most]
    file, columns = f"drift_{name.replace('/', '_')}", [_TITLES.get(name, name), "dev, %", "now, %"]
    return Table(file, columns, rows, caption=f"Shares that change most: {name}")


def _words(new: New) -> Table:
    mean = float(new.found["expected_f1"].mean())
    most = _STOP_WORD * len(new.found["tokens"])
    listed = [(word, values) for word, values in new.words.items() if _LEAST <= len(values) < most]
    low = sorted(listed, key=lambda item: sum(item[1]) - mean * len(item[1]))
    rows = [
        [word, f"{len(values):,}", percent(float(np.mean(values)))]
        for word, values in low[:_SHOWN]
        if np.mean(values) < mean
    ]
    caption = f"Words that the model does not know, in documents of low expected F1 (mean of all: {percent(mean)} %)"
    return Table("new_words", ["word", "documents", "expected F1, %"], rows, caption=caption)


def _chart(name: str, before: np.ndarray, now: np.ndarray) -> Chart:
    ends = np.unique(np.quantile(np.concatenate([before, now]).astype(np.float64), np.linspace(0, 1, _STEPS + 1)))
    edges = np.append(ends[:-1], np.inf) if len(ends) > 1 else np.array([ends[0], np.inf])
    bars = []
    for run, (title, values) in enumerate((("dev", before), ("now", now))):
        counts = np.histogram(values, edges)[0]
        bars.append(Bars(title, (counts / max(counts.sum(), 1)).tolist(), run))
    groups = [f"{edge:.2g}" for edge in edges[:-1]]
    svg = bar_chart(groups, bars, f"{STATISTICS[name]}, from", Axis("documents, %", percent=True), name)
    return Chart(name, f"{STATISTICS[name]}: dev (left) and now (right), in tenths of both", svg)


def write_distances(path: Path, rows: Sequence[Drift], new: New, bound: float) -> None:
    """Write the changes as JSON."""
    found = {row.name: {**vars(row), "drift": row.is_beyond(bound)} for row in rows}
    content = {"documents": len(new.found["tokens"]), "without_tokens": new.skipped, "bound": bound, "changes": found}
    write_json(path, content | {"drift": any(row.is_beyond(bound) for row in rows)}, indent=2)
