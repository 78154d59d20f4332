"""Finds labels by parts of their id, or of a name in any language."""

from collections.abc import Iterable
from unicodedata import normalize

import numpy as np

from xmtc.data.labels import LabelTable

_MAX_HITS = 5000
_EDGES = (("\n", "\n"), ("\n", "\t"), ("\t", "\n"), ("\n", ""), ("\t", ""), ("", ""))
"""Characters before and after a hit, the best matches first, because a short query has more hits than are counted."""


class LabelSearch:
    """A search over all labels of a model.

    All labels are lines of a single string, so a search of a million labels takes a few milliseconds.
    """

    def __init__(self, labels: LabelTable) -> None:
        self.labels = labels
        every = zip(labels.labels, labels.names, *labels.translations.values(), strict=True)
        self._lines = [_line(names) for names in every]
        self._text = "\n" + "\n".join(self._lines) + "\n"
        self._starts = np.cumsum([1, *(len(line) + 1 for line in self._lines)])[:-1]
        self._by_count = np.argsort(-labels.train_counts, kind="stable")

    def find(self, query: str, limit: int) -> list[int]:
        """Find label ids: exact matches, then prefixes, prefixes of words, and other parts; frequent labels first.

        An empty query gives the most frequent labels.
        """
        wanted = " ".join(normalize("NFC", query).casefold().split())
        if not wanted:
            return self._by_count[:limit].tolist()
        found = self._hits(wanted)
        return sorted(found, key=lambda at: (found[at], -int(self.labels.train_counts[at]), at))[:limit]

    def _hits(self, wanted: str) -> dict[int, int]:
        """Score how well each label id matches; 0 is best."""
        found: dict[int, int] = {}
        for before, after in _EDGES:
            at = self._text.find(f"{before}{wanted}{after}")
            while at >= 0 and len(found) < _MAX_HITS:
                start = at + len(before)
                row = int(np.searchsorted(self._starts, start, side="right")) - 1
                found[row] = min(found.get(row, 9), self._rank(start, len(wanted)))
                at = self._text.find(f"{before}{wanted}{after}", at + 1)
        return found

    def _rank(self, at: int, length: int) -> int:
        before, after = self._text[at - 1], self._text[at + length]
        if before in "\n\t":
            return 0 if after in "\n\t" else 1
        return 3 if before.isalnum() else 2


def _line(names: Iterable[str]) -> str:
    return "\t".join(" ".join(part.casefold().split()) for part in dict.fromkeys(filter(None, names)))
