"""Documents with known labels, and the variations that files of strangers have."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SUBJECTS = {
    "plain": [
        "politics",
        "sport",
        "economy",
        "health",
        "music",
        "law",
        "travel",
        "science",
    ],
    "capitals": [
        "Politics",
        "Sport",
        "Economy",
        "Health",
        "Music",
        "Law",
        "Travel",
        "Science",
    ],
    "codes": ["A01.1", "B20.9", "C34", "D50.0", "E11.65", "F32.1", "I10", "J45"],
    "digits": ["0101", "0202", "0303", "1404", "2505", "3606", "4707", "5808"],
    "umlauts": [
        "Politik",
        "Sport",
        "Ökonomie",
        "Gesundheit",
        "Musik",
        "Recht",
        "Reisen",
        "Naturkunde",
    ],
    "hyphens": [
        "foreign-policy",
        "winter-sport",
        "micro-economy",
        "public-health",
        "jazz",
        "civil-law",
        "air-travel",
        "bio",
    ],
}
"""Labels without blanks or marks, so that every format can hold them."""
PHRASES = {
    "two words": [
        "foreign policy",
        "winter sport",
        "labour market",
        "public health",
        "chamber music",
        "civil law",
    ],
    "long names": [
        "history of art",
        "organic chemistry",
        "maritime law",
        "data protection",
        "soil science",
        "early music",
    ],
}
"""Labels with blanks."""
WORDS = (
    *(
        "minister",
        "parliament",
        "vote",
        "team",
        "coach",
        "season",
        "bank",
        "rate",
        "inflation",
        "hospital",
        "nurse",
    ),
    *(
        "vaccine",
        "orchestra",
        "concert",
        "violin",
        "court",
        "judge",
        "appeal",
        "airport",
        "hotel",
        "ticket",
    ),
    *(
        "telescope",
        "molecule",
        "experiment",
        "budget",
        "border",
        "summit",
        "league",
        "striker",
        "export",
        "tariff",
    ),
)


@dataclass(frozen=True)
class Document:
    """A text and what is known of its labels.

    Attributes:
        text: never the same in two documents of a case.
        labels: those that it has.
    """

    text: str
    labels: tuple[str, ...]


@dataclass
class Case:
    """What a format gets to write, and what must be read from what it wrote.

    Attributes:
        documents: all documents, in the order of the file.
        pool: all labels.
        draw: source of chance for the format's own choices.
        expected: labels by text of every document that must be in the corpus; formats remove or change entries.
        optional: texts of documents that may be read or left out, such as some that nobody annotated.
    """

    documents: list[Document]
    pool: list[str]
    draw: random.Random
    expected: dict[str, frozenset[str]] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)

    def leave_out(self, document: Document) -> None:
        """Say that a document must not be in the corpus."""
        self.expected.pop(document.text, None)


Write = Callable[[Case, Path], Path]
"""Writes a case into an empty folder and returns what a user would give to `xmtc init`."""


def make_case(draw: random.Random, *, phrases: bool, single: bool = False) -> Case:
    """Draw 60 to 120 documents.

    Args:
        draw: source of chance.
        phrases: whether labels may have blanks.
        single: whether each document has exactly one label.
    """
    kinds = [*SUBJECTS.values(), *(PHRASES.values() if phrases else ())]
    pool = list(draw.choice(kinds))[: draw.randrange(5, 9)]
    documents = []
    for number in range(draw.randrange(60, 121)):
        words = " ".join(draw.choice(WORDS) for _ in range(draw.randrange(8, 25)))
        count = 1 if single else draw.choice([1, 1, 2, 2, 3])
        documents.append(
            Document(f"Report {number} on {words}.", tuple(draw.sample(pool, count)))
        )
    case = Case(documents, pool, draw)
    case.expected = {
        document.text: frozenset(document.labels) for document in documents
    }
    return case
