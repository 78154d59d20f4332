"""What a prepared corpus holds, in a few lines, and a warning where its labels look like something else than labels."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from xmtc.data.analyzer import script_of
from xmtc.data.corpus import Corpus
from xmtc.data.pretrained import unknown_languages
from xmtc.data.readers.base import quoted_cell, quoted_label
from xmtc.data.readers.cells import near_pairs

_COMMONEST, _NAMES, _SHOWN = 5, 1000, 0.005
_MANY_PARTS = dict.fromkeys(";；؛|\t\n", 1.5) | dict.fromkeys(",，、،/", 2.5)
"""From this mean number of parts on, labels may be combinations of rare labels; names have commas and slashes too."""
_REPEATED = 0.25
"""From this share of parts on that another label has too, as well."""
_RELABELLED = 0.1
"""From this share of documents on whose text has another label elsewhere, rows may be labels and not documents."""
_ABSENT = frozenset({"nan", "none", "null", "na", "n/a", "#n/a"})
ONE_LABEL = 0.98
"""From this share of documents with exactly one label on, labels may be combinations."""


def overview(corpus: Corpus) -> list[str]:
    """Summarise documents, labels, labels per document, the commonest labels, cuts, repetitions and languages.

    Labels are shown, text never.
    """
    manifest = corpus.manifest
    counts, splits = manifest.counts, {name: split.rows for name, split in manifest.splits.items()}
    per_document = _labels_per_document(corpus)
    cut, total = counts.truncated / max(1, sum(splits.values())), per_document.sum() / max(1, len(per_document))
    return [
        "documents: "
        + ", ".join(f"{name} {rows:,}" for name, rows in splits.items())
        + f"; {cut:.1%} cut to {manifest.max_length:,} tokens; {counts.duplicates:,} of dev and test are also in train",
        f"labels: {len(corpus.labels):,}; {total:.2f} per document, at most {per_document.max(initial=0):,}; "
        f"most frequent in train: {_commonest(corpus)}",
        f"texts: {_shares(manifest.languages)}; in train, {_lengths(corpus)}",
        f"names of labels: {_shares(Counter(map(script_of, islice(corpus.labels.names, _NAMES))))}",
    ]


def corpus_warnings(corpus: Corpus) -> list[str]:
    """List signs that the labels of a corpus are wrong, or its texts in languages that the encoder does not know."""
    counts = dict(zip(corpus.labels.labels, corpus.labels.train_counts.tolist(), strict=True))
    alone = bool((_labels_per_document(corpus) <= 1).mean() >= ONE_LABEL)
    other = unknown_languages(corpus.manifest.tokenizer.name, corpus.manifest.languages)
    relabelled = _relabelled(corpus) if alone else 0.0
    return warnings_of(counts, alone=alone, relabelled=relabelled) + ([other] if other else [])


def warnings_of(counts: Mapping[str, int], *, alone: bool, relabelled: float) -> list[str]:
    """List signs that labels are wrong.

    Args:
        counts: documents of each label.
        alone: whether nearly every document has one label, so that several may be joined to one.
        relabelled: share of documents, of one label each, whose text occurs before with another label.
    """
    found = [*_absent_warning(counts), *_near_warning(counts)]
    if not alone and counts.keys() == {"0", "1"}:
        found.append("the only labels are 0 and 1: if lists of them are vectors, write the names of the ones instead")
    if alone:
        found += combination_warning(list(counts))
    if relabelled >= _RELABELLED:
        found.append(
            f"{relabelled:.0%} of the documents repeat a text that has another label: if every row is one label of a "
            "document, write one row for each document, with the list of its labels"
        )
    return found


def _relabelled(corpus: Corpus) -> float:
    split = corpus.split("train")
    rows_P, labels_P = split.label_matrix().nonzero()
    hashes_P = split.text_hashes()[rows_P]
    pairs = np.unique(np.column_stack([hashes_P, labels_P.astype(np.uint64)]), axis=0)
    return (len(pairs) - len(np.unique(hashes_P))) / len(split)


def _labels_per_document(corpus: Corpus) -> np.ndarray:
    return np.concatenate([np.diff(corpus.split(name).label_matrix().indptr) for name in corpus.splits])


def _shares(counts: Mapping[str, int]) -> str:
    shares = {kind: number / sum(counts.values()) for kind, number in Counter(counts).most_common(_COMMONEST)}
    return ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items() if share > _SHOWN)


def _lengths(corpus: Corpus) -> str:
    """Describe the shortest and the longest training document."""
    split = corpus.split("train")
    tokens = np.concatenate([np.diff(offsets) for _, offsets in split.token_blocks()])
    shortest, longest = (split.doc_ids()[int(place)] for place in (tokens.argmin(), tokens.argmax()))
    least, most = tokens.min(), tokens.max()
    cut = " or more" if most == corpus.manifest.max_length else ""
    return f"{quoted_cell(shortest)} is shortest ({least:,} tokens), {quoted_cell(longest)} longest ({most:,}{cut})"


def _commonest(corpus: Corpus) -> str:
    table, best = corpus.labels, np.argsort(-corpus.labels.train_counts, kind="stable")[:_COMMONEST]
    rows = [(table.labels[i], table.names[i], table.train_counts[i]) for i in best]
    named = [quoted_label(label) + (f" {quoted_label(name)}" if name != label else "") for label, name, _ in rows]
    return ", ".join(f"{label} ({count:,})" for label, (_, _, count) in zip(named, rows, strict=True))


def _near_warning(labels: Iterable[str]) -> Iterator[str]:
    if pairs := near_pairs(labels):
        shown = ", ".join(f"{quoted_label(one)} and {quoted_label(other)}" for one, other in pairs[:_COMMONEST])
        yield (
            f"{len(pairs):,} labels differ from others only in case, blanks, leading zeros, a final .0 or a dot, such "
            f"as {shown}; if they mean the same, make them equal (data.fold_label_case ignores case)"
        )


def _absent_warning(counts: Mapping[str, int]) -> Iterator[str]:
    for label, count in counts.items():
        if label.lower() in _ABSENT:
            documents = f"documents with the label {quoted_label(label)}: {count:,}"
            yield f"{documents}; if it means that no label is known, remove it"


def combination_warning(labels: Sequence[str]) -> list[str]:
    """Return a warning, or none, that documents with one label each seem to have several joined to one."""
    for separator in _MANY_PARTS:
        parts, name = _parts(labels, separator), {"\t": "tabs", "\n": "line breaks"}.get(separator, f"'{separator}'")
        if parts is not None:
            return [
                f"{sum(separator in label for label in labels):,} of {len(labels):,} labels look like combinations: "
                f"split at {name}, there would be {parts:,}. If so, give lists, or data.source.columns.label_separator"
            ]
    return []


def _parts(labels: Sequence[str], separator: str) -> int | None:
    """Count the labels if these were split; None if too few parts recur, as in labels that are names."""
    split = [_split(label, separator) for label in labels]
    uses = Counter(part for parts in split for part in parts)
    joined = set().union(*(parts for parts in split if len(parts) > 1))
    if sum(len(parts) > 1 for parts in split) < 2:
        return None
    recurring = sum(uses[part] > 1 for part in joined)
    few = 2 * recurring >= len(joined) and len(uses) <= len(labels)
    many = uses.total() >= _MANY_PARTS[separator] * len(labels) and len(uses) <= (1 - _REPEATED) * uses.total()
    return len(uses) if few or many else None


def _split(label: str, separator: str) -> set[str]:
    """Split a label; return it whole if a part would begin or end within brackets or quotes."""
    parts = {part.strip() for part in label.split(separator)} - {""}
    whole = all(part.count("(") == part.count(")") and part.count('"') % 2 == 0 for part in parts)
    return parts if whole else {label}
