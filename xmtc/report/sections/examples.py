"""Documents that the user asked to see."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from typing_extensions import override

from xmtc.config.load import load_config
from xmtc.errors import DataError
from xmtc.files import reading
from xmtc.report.section import Example, Page, Part, Section
from xmtc.run.config import RunConfig
from xmtc.run.copies import open_corpus
from xmtc.run.directory import RunDirectory

SHOWN_LABELS = 8


@dataclass(frozen=True)
class _Document(Part):
    """A document with its labels.

    Attributes:
        example: the document.
    """

    template = "parts/document.html"
    example: Example


class ExamplesSection(Section):
    """Paragraph, gold and predicted labels of some documents."""

    name, heading = "examples", "Examples"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        return [_Document(example) for example in page.examples]


def choose_examples(run: Path, split: str, count: int) -> list[Example]:
    """Draw a random sample of a run's evaluated documents by the run's seed, in the order of the split.

    The text is decoded from the corpus's tokens: what the model read, cut and, with most tokenizers, in lower case.

    Args:
        run: run directory, with its corpus still in place.
        split: evaluated split.
        count: documents; all where the split has fewer.

    Raises:
        DataError: the run has no configuration or no predictions, or its corpus is not there.
    """
    directory = RunDirectory(run)
    path = directory.predictions(split)
    for needed in (directory.config, path):
        if not needed.is_file():
            raise DataError(f"{needed}: missing, and --examples needs it: give a run that was trained and evaluated")
    config = load_config(RunConfig, directory.config, [])
    corpus = open_corpus(config)
    part, tokenizer, labels = corpus.split(split), corpus.tokenizer(), corpus.labels.labels
    rows = np.sort(np.random.default_rng(config.seed).permutation(len(part))[:count])
    doc_ids = part.doc_ids()
    predicted = _predictions(path, [doc_ids[row] for row in rows])
    return [
        Example(
            doc_ids[row],
            str(tokenizer.decode(part.tokens(row).tolist())),
            [labels[label] for label in part.label_ids(row)],
            predicted.get(doc_ids[row], []),
        )
        for row in map(int, rows)
    ]


def _predictions(path: Path, doc_ids: list[str]) -> dict[str, list[tuple[str, float]]]:
    """Read the best labels of these documents."""
    with reading(path, fix="evaluate the run again"):
        rows = pq.read_table(path, filters=[("doc_id", "in", doc_ids)]).to_pylist()
        return {row["doc_id"]: list(zip(row["labels"], row["scores"], strict=True))[:SHOWN_LABELS] for row in rows}
