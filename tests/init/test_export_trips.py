"""Exports of annotation tools become corpora with the labels that people gave."""

import random
from collections import Counter
from pathlib import Path

import pytest
import yaml

from format_cases import exports, folders
from format_cases.made import Write, make_case
from formats import run_xmtc
from xmtc.data.corpus import Corpus

TOOLS: dict[str, Write] = {
    "Label Studio, JSON": exports.label_studio,
    "Label Studio, JSON-MIN": exports.label_studio_min,
    "Label Studio, CSV": exports.label_studio_csv,
    "doccano, JSONL": exports.doccano,
    "doccano, CSV": exports.doccano_csv,
    "Prodigy": exports.prodigy_choices,
    "Argilla": exports.argilla,
    "spaCy": exports.spacy_cats,
    "fastText": exports.fasttext,
    "svmlight": folders.sparse_features,
    "Annif, TSV": folders.annif_tsv,
    "Annif, folder": folders.annif_folder,
}


@pytest.mark.parametrize("tool", TOOLS)
def test_a_corpus_has_the_labels_of_the_export(tmp_path: Path, tool: str) -> None:
    """One corpus of train, dev and test: every document that somebody judged, with its labels."""
    case = make_case(random.Random(tool), phrases=False)
    files = tmp_path / "files"
    files.mkdir()
    path = TOOLS[tool](case, files)
    for arguments in (("init", str(path), "-o", "a.yaml"), ("prepare", "a.yaml")):
        said = run_xmtc(tmp_path, arguments)
        assert (said.status, said.fault) == (0, None), said.output
    config = yaml.safe_load((tmp_path / "a.yaml").read_text())
    corpus = Corpus.open(tmp_path / config["data"]["corpus"])
    prepared: Counter[frozenset[str]] = Counter()
    for name in ("train", "dev", "test"):
        split = corpus.split(name)
        for document in range(len(split)):
            labels = split.label_ids(document)
            prepared[frozenset(corpus.labels.labels[label] for label in labels)] += 1
    assert prepared == Counter(case.expected.values())
    assert sum(prepared.values()) == len(case.expected) > 40
