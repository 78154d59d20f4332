"""What a prepared corpus holds, in a few lines, and a warning where its labels look like something else than labels."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice

import numpy as np

from xmtc.data.analyzer import script_of
from xmtc.data.corpus import Corpus
from xmtc.data.pretrained import unknown_languages
from xmtc.data.readers.base import quoted_cell, quoted_label
from xmtc.data.readers.cells import near_pairs
from xmtc.data.separators import separator_of

_COMMONEST = 5
"""Labels and languages that are named."""
_NAMES = 1000
"""Names of labels whose scripts are counted."""
_SHOWN = 0.005
"""Shares up to this are not shown."""
_RELABELLED = 0.1
"""From this share of documents on whose text has another label elsewhere, rows may be labels and not documents."""
_ABSENT = frozenset({"nan", "none", "null", "na", "n/a", "#n/a"})
"""What R, spreadsheets, databases and Python write where there is no value."""
ONE_LABEL = 0.98
"""From this share of documents with exactly one label on, labels may be combinations."""


def overview(corpus: Corpus) -> list[str]:
    """Summarise documents, labels, labels per document, the commonest labels, cuts, repetitions and languages.

    Labels are shown, text never.
    """
    manifest = corpus.manifest
    rows_by_split = {name: split.rows for name, split in manifest.splits.items()}
    documents = ", ".join(f"{name} {rows:,}" for name, rows in rows_by_split.items())
    cut = manifest.counts.truncated / max(1, sum(rows_by_split.values()))
    per_document = _labels_per_document(corpus)
    mean = per_document.sum() / max(1, len(per_document))
    most = per_document.max(initial=0)
    unseen = int((corpus.labels.train_counts == 0).sum())
    only_later = f", {unseen:,} of them only in dev or test" if unseen else ""
    scripts = Counter(map(script_of, islice(corpus.labels.names, _NAMES)))
    return [
        f"documents: {documents}; {cut:.1%} cut to {manifest.max_length:,} tokens; "
        f"{manifest.counts.duplicates:,} of dev and test are also in train",
        f"labels: {len(corpus.labels):,}{only_later}; {mean:.2f} per document, at most {most:,}; "
        f"most frequent in train: {_commonest(corpus)}",
        f"texts: {_shares(manifest.languages)}; in train, {_lengths(corpus)}",
        f"names of labels: {_shares(scripts)}",
    ]


def corpus_warnings(corpus: Corpus) -> list[str]:
    """List signs that the labels of a corpus are wrong, or its texts in languages that the encoder does not know."""
    counts = dict(
        zip(corpus.labels.labels, corpus.labels.train_counts.tolist(), strict=True)
    )
    alone = bool((_labels_per_document(corpus) <= 1).mean() >= ONE_LABEL)
    relabelled = _relabelled(corpus) if alone else 0.0
    warnings = warnings_of(counts, alone=alone, joined=alone, relabelled=relabelled)
    languages = unknown_languages(
        corpus.manifest.tokenizer.name, corpus.manifest.languages
    )
    if languages:
        warnings.append(languages)
    return warnings


def warnings_of(
    counts: Mapping[str, int], *, alone: bool, joined: bool, relabelled: float
) -> list[str]:
    """List signs that labels are wrong.

    Args:
        counts: documents of each label.
        alone: whether nearly every document has one label.
        joined: whether these may be several that are joined to one, of which nobody has been told.
        relabelled: share of documents, of one label each, whose text occurs before with another label.
    """
    warnings = [*_absent_warnings(counts), *_near_warnings(counts)]
    if not alone and counts.keys() == {"0", "1"}:
        warnings.append(
            "the only labels are 0 and 1: if lists of them are vectors, write the names of the ones instead"
        )
    if joined:
        warnings += combination_warning(counts)
    if relabelled >= _RELABELLED:
        warnings.append(
            f"{relabelled:.0%} of the documents repeat a text that has another label: if every row is one label of a "
            "document, write one row for each document, with the list of its labels"
        )
    return warnings


def _relabelled(corpus: Corpus) -> float:
    """Return the share of training documents whose text occurs before with another label."""
    split = corpus.split("train")
    rows_P, labels_P = split.label_matrix().nonzero()
    hashes_P = split.text_hashes()[rows_P]
    pairs = np.unique(np.column_stack([hashes_P, labels_P.astype(np.uint64)]), axis=0)
    return (len(pairs) - len(np.unique(hashes_P))) / len(split)


def _labels_per_document(corpus: Corpus) -> np.ndarray:
    return np.concatenate(
        [np.diff(corpus.split(name).label_matrix().indptr) for name in corpus.splits]
    )


def _shares(counts: Mapping[str, int]) -> str:
    """Write the commonest kinds with their shares, such as `Latin 98%`."""
    total = sum(counts.values())
    shares = {
        kind: number / total for kind, number in Counter(counts).most_common(_COMMONEST)
    }
    return ", ".join(
        f"{kind} {share:.0%}" for kind, share in shares.items() if share > _SHOWN
    )


def _lengths(corpus: Corpus) -> str:
    """Describe the shortest and the longest training document."""
    split = corpus.split("train")
    tokens = np.concatenate([np.diff(offsets) for _, offsets in split.token_blocks()])
    doc_ids = split.doc_ids()
    shortest = quoted_cell(doc_ids[int(tokens.argmin())])
    longest = quoted_cell(doc_ids[int(tokens.argmax())])
    cut = " or more" if tokens.max() == corpus.manifest.max_length else ""
    least = "1 token" if tokens.min() == 1 else f"{tokens.min():,} tokens"
    return (
        f"the shortest has {least} (identifier: {shortest}), the longest {tokens.max():,}{cut} "
        f"(identifier: {longest})"
    )


def _commonest(corpus: Corpus) -> str:
    """Write the labels with the most training documents, with their names if they have others."""
    table = corpus.labels
    described: list[str] = []
    for place in np.argsort(-table.train_counts, kind="stable")[:_COMMONEST]:
        label = table.labels[place]
        name = table.names[place]
        shown = (
            quoted_label(label)
            if name == label
            else f"{quoted_label(label)} {quoted_label(name)}"
        )
        described.append(f"{shown} ({table.train_counts[place]:,})")
    return ", ".join(described)


def _near_warnings(labels: Iterable[str]) -> list[str]:
    pairs = near_pairs(labels)
    if not pairs:
        return []
    shown = ", ".join(
        f"{quoted_label(label)} and {quoted_label(other)}"
        for label, other in pairs[:_COMMONEST]
    )
    return [
        f"labels that differ from others only in case, blanks, leading zeros, a final .0 or a dot: {len(pairs):,}, "
        f"such as {shown}; if they mean the same, make them equal (data.fold_label_case ignores case)"
    ]


def _absent_warnings(counts: Mapping[str, int]) -> list[str]:
    return [
        f"documents with the label {quoted_label(label)}: {count:,}; if it means that no label is known, remove it"
        for label, count in counts.items()
        if label.lower() in _ABSENT
    ]


def combination_warning(counts: Mapping[str, int]) -> list[str]:
    """Return a warning, or none, that documents with one label each seem to have several joined to one.

    Args:
        counts: documents of each label.
    """
    separator = separator_of({label: max(count, 1) for label, count in counts.items()})
    if separator is None:
        return []
    examples = " and ".join(quoted_label(label) for label in separator.examples)
    return [
        f"{separator.joined:,} of {len(counts):,} labels look like combinations, such as {examples}: split at "
        f"{separator.name}, there would be {separator.parts:,}. If so, give lists, or "
        f"data.source.columns.label_separator: {separator.text!r}"
    ]
