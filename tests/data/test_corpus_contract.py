"""Corpora whose checksums are right, and whose files hold what no corpus does, are refused in one line."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from attack_cases.corpora import DEV, FILES, MANIFESTS, ODD, TRAIN, WRONG
from corpora import small_corpus
from xmtc.data.corpus import Corpus
from xmtc.errors import DataError, XmtcError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = {"most_documents": 1.0}
    return small_corpus(tmp_path_factory.mktemp("made"), words=words).path


@pytest.fixture
def corpus(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "corpus")


def read(corpus: Path) -> None:
    """Read everything that training reads."""
    opened = Corpus.open(corpus)
    opened.verify()
    for name in opened.splits:
        split = opened.split(name)
        split.label_matrix().sum(axis=0)
        split.words().together()
        split.doc_ids()
        assert len(split.text_hashes()) == len(split)


@pytest.mark.parametrize("shard", [TRAIN, DEV])
@pytest.mark.parametrize("name", WRONG)
def test_a_shard_with_what_no_corpus_holds_is_refused(
    corpus: Path, name: str, shard: str
) -> None:
    WRONG[name](corpus, shard=shard)
    with pytest.raises(DataError, match=shard) as refusal:
        read(corpus)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", [*ODD, *MANIFESTS, *FILES])
def test_what_is_odd_is_read_or_refused(corpus: Path, name: str) -> None:
    if name in ODD:
        ODD[name](corpus, shard=TRAIN)
    else:
        (MANIFESTS | FILES)[name](corpus)
    with suppress(XmtcError):
        read(corpus)
