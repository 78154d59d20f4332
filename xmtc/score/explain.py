"""`xmtc explain`: why a label, word by word, on the terminal and as a page.

The page is self-contained: no network, no script, light and dark by the reader's setting.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from jinja2 import Environment
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from xmtc.errors import DataError
from xmtc.score.evidence import Explanation
from xmtc.score.inputs import RawBlock, TextColumns, find_files, read_blocks
from xmtc.score.predictor import Model

BAR_WORDS = 12
_BAR_WIDTH = 30
_ROWS = 1024


@dataclass(frozen=True)
class Piece:
    """A stretch of text on the page.

    Attributes:
        text: as in the document.
        side: `for`, `against` or empty.
        strength: how strongly it is coloured, from 0 to 1.
        value: what the page shows on pointing at it.
    """

    text: str
    side: str = ""
    strength: float = 0.0
    value: str = ""


@dataclass(frozen=True)
class Bar:
    """A word of the bar chart; several occurrences are one bar."""

    word: str
    value: float
    attention: float
    share: float
    received: dict[str, float]


@dataclass(frozen=True)
class Section:
    """A label on the page."""

    explanation: Explanation
    name: str
    probability: float
    predicted: bool
    words_sum: float
    bars: list[Bar]
    contributions: list[Piece]
    looks: dict[str, list[Piece]]


def find_document(inputs: Sequence[str], columns: TextColumns, doc_id: str) -> str:
    """The text of a document.

    Raises:
        DataError: no file has it.
    """
    found = find_files(inputs)
    for index, file in enumerate(found):
        for block in read_blocks(index, file, columns, _ROWS):
            if doc_id in block.doc_ids:
                return _text(block, doc_id)
    raise DataError(f"no document {doc_id!r} in {', '.join(file.path for file in found)}: check --doc-id and --id")


def _text(block: RawBlock, doc_id: str) -> str:
    return block.texts[block.doc_ids.index(doc_id)]


def explain_text(model: Model, text: str, labels: Sequence[str], top_k: int) -> list[Section]:
    """Sections for the best `top_k` labels, then for the chosen ones that are not among them.

    Raises:
        DataError: the text is empty, or the model knows no such label.
        ConfigError: the model's head cannot say what speaks for a label.
    """
    scores = {one.label: one.score for one in model.predict([text], top_k=len(model.labels))[0]}
    best = list(scores)[:top_k]
    names = model.labels.names
    wanted = [*best, *(label for label in labels if label not in best)]
    predicted = _predicted(model, scores)
    return [
        make_section(text, one, names[model.labels.index(one.label)], scores[one.label], one.label in predicted)
        for one in model.explain(text, wanted)
    ]


def _predicted(model: Model, scores: dict[str, float]) -> set[str]:
    """The labels that count as predicted: the first of those that exclude each other, else by the thresholds."""
    if model.info.task == "single_label":
        return set(list(scores)[:1])
    own = model.thresholds_L
    thresholds = np.full(len(model.labels), model.threshold) if own is None else own
    return {label for label, score in scores.items() if score >= thresholds[model.labels.index(label)]}


def make_section(text: str, explanation: Explanation, name: str, probability: float, predicted: bool) -> Section:
    """What the page and the terminal show of one label."""
    values = [word.contribution for word in explanation.words]
    return Section(
        explanation=explanation,
        name=name,
        probability=probability,
        predicted=predicted,
        words_sum=sum(values),
        bars=_bars(explanation),
        contributions=_pieces(text, explanation, values, "{:+.3f}"),
        looks={
            name: _pieces(text, explanation, values, "{:.1%} of the attention")
            for name, values in {"attention": explanation.attention, **explanation.received}.items()
        },
    )


def _bars(explanation: Explanation) -> list[Bar]:
    """The words that matter most, for or against, occurrences added up."""
    kinds = list(explanation.received)
    values = ([word.contribution for word in explanation.words], explanation.attention, *explanation.received.values())
    sums: dict[str, NDArray[np.float64]] = {}
    for word, *numbers in zip(explanation.words, *values, strict=True):
        sums[word.text.lower()] = sums.get(word.text.lower(), 0.0) + np.array(numbers)
    best = sorted(sums.items(), key=lambda item: -abs(item[1][0]))[:BAR_WORDS]
    largest = max((abs(numbers[0]) for _, numbers in best), default=0.0) or 1.0
    return [
        Bar(word, value, attention, abs(value) / largest, dict(zip(kinds, received, strict=True)))
        for word, (value, attention, *received) in ((word, numbers.tolist()) for word, numbers in best)
    ]


def _pieces(text: str, explanation: Explanation, values: Sequence[float], form: str) -> list[Piece]:
    """The whole text in pieces, each word with its colour."""
    largest = max((abs(value) for value in values), default=0.0) or 1.0
    pieces, at = [], 0
    for word, value in zip(explanation.words, values, strict=True):
        pieces.append(Piece(text[at : word.start]))
        strength = abs(value) / largest
        side = ("for" if value > 0 else "against") if strength >= 0.02 else ""
        pieces.append(Piece(word.text, side, round(strength, 3), form.format(value)))
        at = word.end
    pieces.append(Piece(text[at:]))
    return [piece for piece in pieces if piece.text]


def print_sections(sections: Sequence[Section], console: Console) -> None:
    """Bar charts on the terminal."""
    for section in sections:
        e = section.explanation
        name = f" {section.name}" if section.name != e.label else ""
        parts = f"bias {e.bias:+.3f}, special tokens {e.special:+.3f}, words {section.words_sum:+.3f}"
        verdict = "predicted" if section.predicted else "not predicted"
        console.print(Text(f"{e.label}{name}: probability {section.probability:.3f}, {verdict}", style="bold"))
        console.print(Text(f"logit {e.logit:+.3f} = {parts}"))
        table = Table("word", "adds", "attention", *e.received, "", box=None, pad_edge=False)
        for bar in section.bars:
            colour = "blue" if bar.value > 0 else "dark_orange"
            length = max(1, round(bar.share * _BAR_WIDTH))
            shares = [f"{share:.1%}" for share in (bar.attention, *bar.received.values())]
            table.add_row(Text(bar.word), f"{bar.value:+.3f}", *shares, Text("█" * length, style=colour))
        console.print(table)
        console.print()


def write_page(path: Path, sections: Sequence[Section], *, title: str, model: str) -> None:
    """Write the evidence page.

    Raises:
        DataError: it cannot be written.
    """
    template = (files("xmtc.score") / "assets" / "evidence.html").read_text(encoding="utf-8")
    page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(template)
    try:
        path.write_text(page.render(sections=sections, title=title, model=model), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}; choose another --output") from error
