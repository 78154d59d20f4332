"""`xmtc explain`: explain a label word by word, on the terminal and as a page like the report, without a script."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from xmtc.files import check_page, write_text
from xmtc.models.heads.base import AttendsByLabel
from xmtc.predict.arguments import as_count, as_labels, as_text
from xmtc.predict.evidence import DOCUMENTS, LEAST_SHARE, Evidence, Explanation
from xmtc.predict.predictions import Prediction
from xmtc.predict.predictor import Model
from xmtc.predict.request import Request
from xmtc.report.charts import environment
from xmtc.report.write import asset
from xmtc.track.console import counted, printable

BAR_WORDS = 12
_BAR_WIDTH, _UNREAD = 30, 20_000  # characters
_SPREAD = 0.25
"""Evidence counts as spread if at least this fraction of the words makes up half of it. With equal words it is 0.5."""


@dataclass(frozen=True)
class Stretch:
    """A stretch of text on the page.

    Attributes:
        text: text, as in the document.
        side: `for`, `against`, `unread` or empty.
        strength: strength of the colour, from 0 to 1.
        value: text that the page shows when the reader points at it.
    """

    text: str
    side: str = ""
    strength: float = 0.0
    value: str = ""


@dataclass(frozen=True)
class Bar:
    """A word of the bar chart. All `count` occurrences of the word in a field share one bar."""

    word: str
    field: str
    count: int
    value: float
    attention: float
    share: float

    @property
    def title(self) -> str:
        """The word, its field, and its number of occurrences there."""
        return _with_field(self.word, self.field) + (
            f" ×{self.count}" if self.count > 1 else ""
        )


@dataclass(frozen=True)
class LabelEvidence:
    """A label on the page.

    `threshold` is the probability at which the label counts as predicted; None if the decision has none. `chosen`:
    the user asked for this label by name. `exclusive`: labels
    exclude each other. `half` is the smallest number of words that make up half of what words
    contribute, for or against. `attends`: each label has attention of its own, which is worth showing.
    """

    explanation: Explanation
    name: str
    probability: float
    predicted: bool
    threshold: float | None
    exclusive: bool
    chosen: bool
    words_sum: float
    half: int
    attends: bool
    bars: list[Bar]
    other_words: int
    contributions: list[Stretch]
    attention: list[Stretch]

    @property
    def parts(self) -> str:
        """What sums to the logit: the bias, and what each part adds."""
        e = self.explanation
        votes = sum(value for _, value in e.documents)
        parts = {"words": self.words_sum, DOCUMENTS: votes}
        parts |= {f"the name “{name}”": value for name, value in e.names}
        parts["other (what belongs to no word, such as punctuation)"] = e.other
        return f"bias {e.bias:+.3f}" + "".join(
            f", {part} {value:+.3f}" for part, value in parts.items() if value
        )

    @property
    def rest(self) -> str:
        """Name the words without a bar."""
        return counted(self.other_words, "other word")

    @property
    def others(self) -> float:
        """Sum of the contributions of words without a bar."""
        return self.words_sum - sum(bar.value for bar in self.bars)

    @property
    def spread(self) -> str:
        """Describe whether a few words decide, or all words contribute a little."""
        total = len(self.explanation.words)
        if not any(word.contribution for word in self.explanation.words):
            why = (
                "no scorer knows one"
                if self.explanation.scorers
                else "the pooling reads only a special token"
            )
            return f"No word has a contribution: {why}"
        verb = "makes" if self.half == 1 else "make"
        said = f"Of what words add or take away, {self.half} of the {total} words {verb} up half"
        if self.half >= _SPREAD * total and total > 2 * BAR_WORDS:
            said += ": the evidence is spread over the document, and no word decides"
        return said

    @property
    def standing(self) -> str:
        """Describe whether the model predicts this label."""
        below = (
            ""
            if self.threshold is None
            else f": below its threshold of {self.threshold:.3f}"
        )
        return (
            "predicted" if self.predicted else f"not predicted{below}"
        ) + "; chosen" * self.chosen


def explain_text(
    model: Model, text: str, labels: Iterable[str] | str, top_k: int
) -> list[LabelEvidence]:
    """Make sections for the best `top_k` labels, then for chosen labels that are not among them.

    Raises:
        DataError: the text is empty, or the model has no such label.
        ConfigError: the model's head gives no evidence.
    """
    top_k, chosen = as_count(top_k, "top_k", 0), dict.fromkeys(as_labels(labels))
    # Fused scorers score only candidates, and the chosen labels have to be among them.
    request = Request(top_k=len(model.labels), candidates=tuple(chosen))
    checked = as_text(text, longest=model.scorer.longest_document)
    answer = model.scorer.score(model.scorer.tokenise([checked]), request)
    found = {one.label: one for one in model.scorer.predictions(answer, request)[0]}
    best = list(found)[:top_k]
    why = model.explain(text, list(dict.fromkeys([*best, *chosen])))
    return [
        _section(model, text, one, found[one.label], chosen=one.label not in best)
        for one in why
    ]


def _section(
    model: Model,
    text: str,
    explanation: Explanation,
    found: Prediction,
    *,
    chosen: bool,
) -> LabelEvidence:
    values = [word.contribution for word in explanation.words]
    row = model.labels.index(explanation.label)
    attends = isinstance(model.scorer.classifier.head, AttendsByLabel)
    bars = _bars(explanation) if attends or any(values) else []
    return LabelEvidence(
        explanation=explanation,
        name=model.labels.names[row],
        probability=found.score,
        predicted=found.predicted,
        threshold=float(model.decision.limit(row)) or None,
        exclusive=model.info.task == "single_label",
        chosen=chosen,
        words_sum=sum(values),
        half=words_of_half(values),
        attends=attends,
        bars=bars,
        other_words=len(set(map(_key, explanation.words))) - len(bars),
        contributions=_pieces(text, explanation, values, "{:+.3f}"),
        attention=_pieces(
            text, explanation, explanation.attention, "{:.1%} of the attention"
        ),
    )


def words_of_half(values: Sequence[float]) -> int:
    """Return the smallest number of words whose contributions, for or against, make up half of all."""
    if not len(values):
        return 0
    sums = np.sort(np.abs(values))[::-1].cumsum()
    return int(np.searchsorted(sums, sums[-1] / 2)) + 1


def _bars(explanation: Explanation) -> list[Bar]:
    """Choose the words with the greatest total contributions, for or against; if none has any, by attention.

    Words that add little beside the strongest one, such as most articles and conjunctions, are left out.
    """
    values = [word.contribution for word in explanation.words]
    counts = Counter(map(_key, explanation.words))
    sums: dict[tuple[str, str], NDArray[np.float64]] = {}
    for word, *numbers in zip(
        explanation.words, values, explanation.attention, strict=True
    ):
        sums[_key(word)] = sums.get(_key(word), 0.0) + np.array(numbers)
    by = 0 if any(values) else 1
    best = sorted(sums.items(), key=lambda item: -abs(item[1][by]))[:BAR_WORDS]
    largest = max((abs(numbers[by]) for _, numbers in best), default=0.0) or 1.0
    return [
        Bar(*key, counts[key], *numbers.tolist(), share=abs(numbers[by]) / largest)
        for key, numbers in best
        if abs(numbers[by]) >= LEAST_SHARE * largest
    ]


def _with_field(text: str, field: str) -> str:
    return f"{text} ({field})" if field else text


def _key(word: Evidence) -> tuple[str, str]:
    return (word.text.lower(), word.field) if word.end > word.start else (word.text, "")


def _pieces(
    text: str, explanation: Explanation, values: Sequence[float], form: str
) -> list[Stretch]:
    """Split the text into pieces, each word with its colour; a long rest that is not read is cut."""
    largest = max((abs(value) for value in values), default=0.0) or 1.0
    pieces, at = [], 0
    for word, value in zip(explanation.words, values, strict=True):
        if word.end == word.start:  # the value of a category
            continue
        pieces.append(Stretch(text[at : word.start]))
        strength = abs(value) / largest
        side = ("for" if value > 0 else "against") if strength >= LEAST_SHARE else ""
        pieces.append(
            Stretch(
                word.text,
                side,
                round(strength, 3),
                _with_field(form.format(value), word.field),
            )
        )
        at = word.end
    rest, more = text[at : at + _UNREAD], len(text) - at - _UNREAD
    rest += f" … and {more:,} characters more" if more > 0 else ""
    pieces.append(Stretch(rest, "unread" if any(c.isalnum() for c in rest) else ""))
    return [piece for piece in pieces if piece.text]


def print_sections(sections: Sequence[LabelEvidence], console: Console) -> None:
    """Print bar charts on the terminal."""
    for section in sections:
        e = section.explanation
        name = f" {section.name}" if section.name != e.label else ""
        heading = f"{e.label}{name}: probability {section.probability:.3f}, {section.standing}"
        console.print(Text(printable(heading), style="bold"))
        console.print(Text(printable(f"logit {e.logit:+.3f} = {section.parts}")))
        console.print(Text(section.spread, style="dim"))
        columns = ["word", "adds", ""] + ["attention"] * section.attends
        table = Table(*columns, box=None, pad_edge=False)
        for bar in section.bars:
            drawn = Text(
                "█" * max(1, round(bar.share * _BAR_WIDTH)),
                "blue" if bar.value >= 0 else "dark_orange",
            )
            attention = [f"{bar.attention:.1%}"] * section.attends
            table.add_row(
                Text(printable(bar.title)), f"{bar.value:+.3f}", drawn, *attention
            )
        if section.other_words:
            table.add_row(
                Text(section.rest, style="dim"),
                f"{section.others:+.3f}",
            )
        console.print(table)
        console.print()


def write_page(
    path: Path, sections: Sequence[LabelEvidence], *, title: str, model: str
) -> None:
    """Write the evidence page.

    Raises:
        StorageError: it cannot be written, or the path holds something that is not an evidence page.
    """
    check_page(path)
    page = (
        environment()
        .get_template("evidence.html")
        .render(
            title=f"Evidence: {title}",
            heading=f"Evidence: {title}",
            css=asset("report.css") + asset("evidence.css"),
            model=model,
            sections=sections,
            single=any(section.exclusive for section in sections),
            unread=any(
                piece.side == "unread"
                for section in sections
                for piece in section.contributions
            ),
            plain=LEAST_SHARE,
            attends=any(section.attends for section in sections),
        )
    )
    write_text(path, page)
