"""The opening of the report: three numbers, each with its interval and a sentence in words, and one picture."""

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from xmtc.data.bins import UNSEEN
from xmtc.evaluate.scorer_groups import (
    FEWEST_DOCUMENTS,
    FEWEST_LABELS,
    groups_lost_by_fusion,
    is_judged,
)
from xmtc.evaluate.summary import percent
from xmtc.report.run_results import RunResults
from xmtc.report.section import (
    Figures,
    KeyFigure,
    KeyFigures,
    Page,
    Paragraph,
    Part,
    Section,
)
from xmtc.report.sections.metrics import frequency_chart, groups_with_labels

_FEWEST_DOCUMENTS = 5
"""Documents that a group of labels needs to be shown for rare or for frequent labels."""
_TO_A_WHOLE_PERCENT = 100


class OverviewSection(Section):
    """How often the first label is right, how many of the true labels are found, and how rare labels fare."""

    name, heading, link = "overview", "At a glance", "At a glance"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        figures = [_first_label(page), _true_labels_found(page)]
        groups = groups_with_labels(page)
        if page.one_label and len(groups) < 2:
            return [KeyFigures([*figures, _mean_over_classes(page)])]
        return [
            KeyFigures([*figures, _rare_labels(page)]),
            *_lost_by_fusion(page),
            Figures([frequency_chart(page, groups, "macro_f1")]),
        ]


def _lost_by_fusion(page: Page) -> list[Paragraph]:
    """Warn of groups of labels for which a scorer alone is better than all."""
    return [
        Paragraph(
            f"{run.name}, on dev, {sentence}. The fused score may lose these labels; see Scorers.",
            "warning",
        )
        for run in page.runs
        if run.scorers
        for sentence in groups_lost_by_fusion(run.scorers)
    ]


def _first_label(page: Page) -> KeyFigure:
    """Say how often the best label is right."""
    name = "accuracy" if page.one_label else "p@1"
    sentences = [
        f"Of 100 documents, about {_of_hundred(run, name)} get a right label in first place{_likely(run, name)}."
        for run in page.runs
    ]
    return _key_figure(page, "The first label is right", name, sentences)


def _true_labels_found(page: Page) -> KeyFigure:
    """Say how many of the labels that people gave are predicted; of classes, how many documents of each are found."""
    if page.one_label:
        return _key_figure(
            page,
            "Documents of a class that are found",
            "macro_recall",
            [
                f"Of 100 documents of a class, about {_of_hundred(run, 'macro_recall')} are given that class, where "
                f"every class counts the same{_likely(run, 'macro_recall')}."
                for run in page.runs
            ],
        )
    return _key_figure(
        page,
        "True labels that are found",
        "micro_recall",
        [
            f"Of 100 labels that documents have, about {_of_hundred(run, 'micro_recall')} are predicted"
            f"{_likely(run, 'micro_recall')}. Of 100 labels that are predicted{_by_threshold(run)}, about "
            f"{_of_hundred(run, 'micro_precision')} are right."
            for run in page.runs
        ],
    )


def _by_threshold(run: RunResults) -> str:
    """Say from which score a label is predicted, where all labels have the same threshold."""
    if run.metrics.get("decision") != "micro":
        return ""
    return f" (scores of {run.metrics['threshold']:.2f} or more)"


def _mean_over_classes(page: Page) -> KeyFigure:
    """Say how classes fare on average."""
    sentence = (
        "F1 is 100 for a class that is given to exactly the documents that have it. This is its mean over classes: "
        "a small class counts as much as a large one."
    )
    sentences = [sentence] * len(page.runs)
    return _key_figure(page, "F1 of a class, on average", "macro_f1", sentences)


def _rare_labels(page: Page) -> KeyFigure:
    """Compare the F1 of the rarest group of labels that has enough documents with that of the most frequent one."""
    ends = [_rarest_and_most_frequent(run) for run in page.runs]
    values = []
    for run, bins in zip(page.runs, ends, strict=True):
        if bins is None:
            values.append("–")
        else:
            rare, frequent = (run.metrics["bins"][name] for name in bins)
            values.append(f"{_macro_f1(rare)} against {_macro_f1(frequent)}")
    return KeyFigure(
        _title_of(ends),
        values,
        [
            _sentence_on_rare_labels(run, bins)
            for run, bins in zip(page.runs, ends, strict=True)
        ],
    )


def _title_of(ends: Sequence[tuple[str, str] | None]) -> str:
    """Name the two groups of labels, if all runs have the same ones."""
    first = ends[0]
    if first is None or any(other != first for other in ends):
        return "Rare labels against frequent ones"
    rare, frequent = map(_in_words, first)
    return f"Labels with {rare} training documents against labels with {frequent}"


def _rarest_and_most_frequent(run: RunResults) -> tuple[str, str] | None:
    """Find the two groups of labels; None with fewer than two. Labels without training documents are no group here.

    Groups that are large enough to be judged go first.
    """
    names = [
        name
        for name in _measured(run)
        if run.metrics["bins"][name]["docs"] >= _FEWEST_DOCUMENTS
    ]
    judged = [name for name in names if is_judged(run.metrics["bins"][name])]
    if len(judged) > 1:
        names = judged
    return (names[0], names[-1]) if len(names) > 1 else None


def _measured(run: RunResults) -> list[str]:
    """List the groups of labels that have an F1 and training documents, the rarest first."""
    return [
        name
        for name, group in run.metrics["bins"].items()
        if name != UNSEEN and group.get("macro_f1") is not None
    ]


def _sentence_on_rare_labels(run: RunResults, ends: tuple[str, str] | None) -> str:
    """Say in words what the two groups are, and how much of the distance may be chance."""
    if ends is None:
        return (
            f"Fewer than two groups of labels have {_FEWEST_DOCUMENTS} or more documents here, so that rare and "
            "frequent labels cannot be compared."
        )
    rare, frequent = (run.metrics["bins"][name] for name in ends)
    return (
        "F1 is 100 for a label that is given to exactly the documents that have it. Over "
        f"{_labels_with(rare, ends[0])}, its mean is {_whole(rare)}; over {_labels_with(frequent, ends[1])}, it is "
        f"{_whole(frequent)}. {_verdict(rare, frequent)}{_on_left_out(run, ends)}{_on_unseen_labels(run)}"
    )


def _on_left_out(run: RunResults, ends: tuple[str, str]) -> str:
    """Say which rarer and which more frequent labels are not compared, because there are too few of them."""
    names = _measured(run)
    first, last = map(names.index, ends)
    left_out = [
        f"{_labels_with(run.metrics['bins'][name], name)} ({_whole(run.metrics['bins'][name])})"
        for name in (*names[:first], *names[last + 1 :])
    ]
    if not left_out:
        return ""
    return f" Left out, because they are too few or in too few documents: {' and '.join(left_out)}."


def _on_unseen_labels(run: RunResults) -> str:
    """Say how labels without training documents fare, if there are some."""
    group = run.metrics["bins"].get(UNSEEN)
    if not group or group.get("macro_f1") is None:
        return ""
    count = group["labels"]
    labels = "the only label" if count == 1 else f"the {count:,} labels"
    return f" Over {labels} without training documents, it is {_whole(group)}."


def _labels_with(group: Mapping[str, Any], name: str) -> str:
    """Say how many labels are in a group, and how often they occur in training."""
    count = group["labels"]
    labels = "the only label" if count == 1 else f"the {count:,} labels"
    return f"{labels} with {_in_words(name)} training documents"


def _in_words(name: str) -> str:
    """Write the numbers of training documents that a group's name stands for."""
    return name.replace(">", "more than ").replace("-", " to ")


def _whole(group: Mapping[str, Any]) -> str:
    return f"{_TO_A_WHOLE_PERCENT * group['macro_f1']:.0f}"


def _verdict(rare: Mapping[str, Any], frequent: Mapping[str, Any]) -> str:
    """Say which group fares better, where both are large enough and their intervals do not overlap."""
    small = [group for group in (rare, frequent) if not is_judged(group)]
    if small:
        labels = min(group["labels"] for group in small)
        documents = min(group["docs"] for group in small)
        return (
            f"{labels:,} labels in {documents:,} documents are too few to say which fare better: that takes "
            f"{FEWEST_LABELS} labels in {FEWEST_DOCUMENTS} documents of each kind."
        )
    intervals = [group.get("ci95", {}).get("macro_f1") for group in (rare, frequent)]
    if None in intervals:
        return ""
    of_rare, of_frequent = intervals
    if of_rare[1] < of_frequent[0]:
        return "Rare labels fare worse, by more than chance explains."
    if of_rare[0] > of_frequent[1]:
        return "Rare labels fare better, by more than chance explains."
    return "The two intervals overlap: these documents do not settle which fare better."


def _macro_f1(group: Mapping[str, Any]) -> str:
    """Format the macro-F1 of a group of labels, with its interval if there is enough behind it."""
    interval = group.get("ci95", {}).get("macro_f1") if is_judged(group) else None
    return percent(group["macro_f1"], interval)


def _key_figure(
    page: Page, title: str, name: str, sentences: Sequence[str]
) -> KeyFigure:
    """Make a key figure of a metric of every run."""
    values = [percent(run.metrics.get(name), run.interval(name)) for run in page.runs]
    return KeyFigure(title, values, sentences)


def _of_hundred(run: RunResults, name: str) -> str:
    """Format a metric as a number of 100."""
    value = run.metrics.get(name)
    return "–" if value is None else f"{_TO_A_WHOLE_PERCENT * value:.0f}"


def _likely(run: RunResults, name: str) -> str:
    """Say how far the number may be off; nothing where the ends of the interval round to the same number."""
    interval = run.interval(name)
    if interval is None:
        return ""
    low, high = (f"{_TO_A_WHOLE_PERCENT * end:.0f}" for end in interval)
    if low == high:
        return ""
    return f" (other documents of this kind would give between {low} and {high})"
