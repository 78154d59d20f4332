"""Finds labels by parts of their id, or of a name in any language."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from unicodedata import normalize

import numpy as np

from xmtc.data.labels import LabelTable

_MAX_OCCURRENCES = 20_000
"""Places that are looked at inside of names: a short query occurs in most of them, and labels at words come first."""
_PLACES_PER_LABEL = 5
"""Places that are collected for each label that is asked for: a label may have several."""


class LabelSearch:
    """A search over all labels of a model.

    All labels are lines of a single string, the most frequent first, so that a search of 50,000 labels takes a few
    milliseconds, and the first places that are found are those of the most frequent labels. The id and the names of a
    label are separated by tabs.
    """

    def __init__(self, labels: LabelTable) -> None:
        self.labels = labels
        by_count = np.argsort(-labels.train_counts, kind="stable")
        names_of_labels = [
            *zip(
                labels.labels, labels.names, *labels.translations.values(), strict=True
            )
        ]
        lines = [_line(names_of_labels[label_id]) for label_id in by_count]
        self._label_ids = by_count.tolist()
        self._text = "\n" + "\n".join(lines) + "\n"
        self._starts = list(
            accumulate((len(line) + 1 for line in lines[:-1]), initial=1)
        )

    def find(self, query: str, limit: int) -> list[int]:
        """Find label ids: exact matches, then prefixes, prefixes of words, and other parts; frequent labels first.

        An empty query gives the most frequent labels.
        """
        wanted = " ".join(normalize("NFC", query).casefold().split())
        if not wanted:
            return self._label_ids[:limit]
        label_ids: dict[int, None] = {}
        for positions in self._ranked_positions(wanted, limit):
            for position in positions:
                line = bisect_right(self._starts, position) - 1
                label_ids[self._label_ids[line]] = None
                if len(label_ids) == limit:
                    return list(label_ids)
        return list(label_ids)

    def _ranked_positions(self, wanted: str, limit: int) -> Iterator[Iterable[int]]:
        """Yield places of a query in the text, group by group, the best group first, and each in the text's order."""
        most = limit * _PLACES_PER_LABEL
        yield self._positions(
            [f"{before}{wanted}{after}" for before in "\n\t" for after in "\n\t"], most
        )
        yield self._positions([f"{before}{wanted}" for before in "\n\t"], most)
        at_words: list[int] = []
        inside_words: list[int] = []
        for position in islice(self._occurrences(wanted), _MAX_OCCURRENCES):
            if self._text[position - 1].isalnum():
                inside_words.append(position)
            else:
                at_words.append(position)
            if len(at_words) > most:
                break
        yield at_words
        yield inside_words

    def _positions(self, patterns: Iterable[str], most: int) -> list[int]:
        """List the first places behind the first character of several patterns, in the text's order."""
        positions: list[int] = []
        for pattern in patterns:
            positions += [
                place + 1 for place in islice(self._occurrences(pattern), most)
            ]
        return sorted(positions)

    def _occurrences(self, pattern: str) -> Iterator[int]:
        """Yield the places of a pattern in the text."""
        place = self._text.find(pattern)
        while place >= 0:
            yield place
            place = self._text.find(pattern, place + 1)


def _line(names: Iterable[str]) -> str:
    """Write the id and the names of a label as one line, each once."""
    distinct = dict.fromkeys(name for name in names if name)
    return "\t".join(" ".join(name.casefold().split()) for name in distinct)
