"""Files, look-up tables and display of a ranking."""

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from mig_cases import RandomSplit
from rich.console import Console
from safetensors.numpy import save_file

from xmtc.errors import DataError, StorageError
from xmtc.planting.mig.config import ChiSquaredConfig, MigConfig
from xmtc.planting.mig.ranking import (
    TokenRanking,
    rank_corpus,
    rank_tokens,
    ranking_fingerprint,
    saved_fingerprint,
)
from xmtc.planting.mig.show import show

V = 40


@pytest.fixture(scope="module")
def ranking() -> TokenRanking:
    split = RandomSplit(documents=200, vocab_size=V, labels=12, seed=0)
    config = MigConfig(min_documents=2, top_k=10)
    return replace(
        rank_tokens(split, config, special_token_ids=[0], vocab_size=V),
        fingerprint="abc",
    )


def ranks_by_loop(
    ranking: TokenRanking, labels: list[int], vocab_size: int
) -> np.ndarray:
    expected = np.full((len(labels), vocab_size), ranking.k)
    for row, label in enumerate(labels):
        for rank, token in enumerate(ranking.top(label, ranking.k)):
            expected[row, token.token_id] = rank
    return expected


def test_ranks_over_many_calls_of_changing_size(ranking: TokenRanking) -> None:
    rng = np.random.default_rng(0)
    table = ranking.table(V + 3, np.arange(ranking.k + 1, dtype=np.int16))
    for size in (3, 8, 1, 12, 5, 0, 12):
        labels = rng.choice(12, size, replace=False)
        ranks = table(labels)
        assert ranks.dtype == np.int16
        np.testing.assert_array_equal(
            ranks, ranks_by_loop(ranking, labels.tolist(), V + 3)
        )


def test_ranks_of_short_rows() -> None:
    split = RandomSplit.of(
        [[2, 3], [3, 4], []], [[0, 2], [2], [2]], vocab_size=5, labels=3
    )
    ranking = rank_tokens(
        split, MigConfig(min_documents=1, top_k=4), special_token_ids=[], vocab_size=5
    )
    table = ranking.table(5, np.arange(5))
    for labels in ([1, 0, 2], [0, 1, 2], [0, 0, 1]):
        np.testing.assert_array_equal(
            table(np.array(labels)), ranks_by_loop(ranking, labels, 5)
        )


def test_table_of_grades(ranking: TokenRanking) -> None:
    grade_of_rank = np.array([5, 4, 4, 3, 3, 3, 2, 2, 1, 1, 0], np.uint8)
    table = ranking.table(V, grade_of_rank)
    for labels in ([3, 1], [0, 5, 7], [2]):
        grades = table(np.array(labels))
        assert grades.dtype == np.uint8
        np.testing.assert_array_equal(
            grades, grade_of_rank[ranks_by_loop(ranking, labels, V)]
        )
    with pytest.raises(ValueError, match="3 values for 10 ranks"):
        ranking.table(V, np.zeros(3))
    with pytest.raises(ValueError, match="vocabulary of 39"):
        ranking.table(V - 1, grade_of_rank)


def test_save_and_load(ranking: TokenRanking, tmp_path: Path) -> None:
    path = tmp_path / "mig" / "ranking.safetensors"
    assert saved_fingerprint(path) is None
    ranking.save(path)
    ranking.save(path)
    assert [file.name for file in path.parent.iterdir()] == ["ranking.safetensors"]
    assert saved_fingerprint(path) == "abc"
    loaded = TokenRanking.load(path)
    assert (loaded.documents, loaded.fingerprint, loaded.k) == (200, "abc", 10)
    for name in (
        "token_ids_LK",
        "scores_LK",
        "together_LK",
        "token_documents_V",
        "label_documents_L",
    ):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(ranking, name))
        assert getattr(loaded, name).dtype == getattr(ranking, name).dtype


def test_labels_of_a_worker_are_read_alone(
    ranking: TokenRanking, tmp_path: Path
) -> None:
    path, own = tmp_path / "ranking.safetensors", slice(1, 3)
    ranking.save(path)
    loaded = TokenRanking.load(path, own)
    np.testing.assert_array_equal(loaded.token_ids_LK, ranking.token_ids_LK[own])
    np.testing.assert_array_equal(
        loaded.label_documents_L, ranking.label_documents_L[own]
    )
    np.testing.assert_array_equal(loaded.token_documents_V, ranking.token_documents_V)


def test_a_failed_save_leaves_the_old_file(
    ranking: TokenRanking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ranking.safetensors"
    ranking.save(path)
    before = path.read_bytes()

    def full_disk(tensors: dict, filename: Path, metadata: dict) -> None:
        filename.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("xmtc.planting.mig.ranking.save_file", full_disk)
    with pytest.raises(StorageError, match=r"cannot be written: .*No space left"):
        ranking.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(StorageError, match="cannot be written: "):
        ranking.save(path / "below a file" / "ranking.safetensors")


def test_bad_files_are_named(ranking: TokenRanking, tmp_path: Path) -> None:
    path = tmp_path / "ranking.safetensors"
    with pytest.raises(DataError, match="no such token ranking"):
        TokenRanking.load(path)
    ranking.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="damaged"):
        TokenRanking.load(path)
    save_file({"weight": np.zeros(1)}, path)
    with pytest.raises(DataError, match="another version"):
        TokenRanking.load(path)


def test_fingerprint_follows_corpus_and_settings() -> None:
    configs = [
        MigConfig(),
        MigConfig(top_k=500),
        MigConfig(signed=False),
        MigConfig(signal=ChiSquaredConfig()),
    ]
    prints = {ranking_fingerprint("corpus", config) for config in configs}
    assert len(prints) == len(configs)
    assert ranking_fingerprint("corpus", MigConfig()) in prints
    assert ranking_fingerprint("other", MigConfig()) not in prints


class Letters:
    def decode(self, token_ids: list[int]) -> str:
        return {1: " a", 2: "[/b]", 3: "\N{REPLACEMENT CHARACTER}", 4: ""}.get(
            token_ids[0], f"t{token_ids[0]}"
        )

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f"<raw{token_id}>" for token_id in ids]


def test_show_prints_tokens_with_their_counts() -> None:
    documents = [[1, 2, 3, 4, 5], [5], [5], []]
    split = RandomSplit.of(documents, [[0], [2], [2], [2]], vocab_size=6, labels=4)
    ranking = rank_tokens(
        split, MigConfig(min_documents=1, top_k=6), special_token_ids=[], vocab_size=6
    )
    console = Console(width=150)
    with console.capture() as capture:
        console.print(show(ranking, 0, Letters(), title="first [rare]"))
        console.print(show(ranking, 1, Letters()))
    text = capture.get()
    assert "first [rare]: 5 tokens ranked on 1 of 4 training documents" in text
    for name in (
        "▁a",
        "[/b]",
        "<raw3>",
        "<raw4>",
        "0.562335",
    ):  # ln 4 / 4 + 3/4 · ln 4/3 = H(1/4)
        assert name in text
    assert "label 1: no training document, so nothing is ranked" in text


class SmallTokenizer:
    all_special_ids: ClassVar[list[int]] = [0]

    def __len__(self) -> int:
        return V


class SmallCorpus:
    fingerprint = "one"

    def split(self, name: str) -> RandomSplit:
        assert name == "train"
        return RandomSplit(documents=100, vocab_size=V, labels=5, seed=0)

    def tokenizer(self) -> SmallTokenizer:
        return SmallTokenizer()


def test_a_corpus_is_ranked_once(tmp_path: Path) -> None:
    path, corpus, config = (
        tmp_path / "ranking.safetensors",
        SmallCorpus(),
        MigConfig(top_k=5),
    )
    first, reused = rank_corpus(corpus, config, path)
    assert not reused
    assert 0 not in first.token_ids_LK
    second, reused = rank_corpus(corpus, config, path)
    assert reused
    np.testing.assert_array_equal(first.token_ids_LK, second.token_ids_LK)
    assert not rank_corpus(corpus, MigConfig(top_k=6), path)[1]
    corpus.fingerprint = "two"
    assert not rank_corpus(corpus, MigConfig(top_k=6), path)[1]
    save_file({"weight": np.zeros(1)}, path)  # another format: ranked again
    assert not rank_corpus(corpus, config, path)[1]


def test_nothing_to_rank_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"mig\.min_documents"):
        rank_corpus(
            SmallCorpus(),
            MigConfig(min_documents=101),
            tmp_path / "ranking.safetensors",
        )
    assert not list(tmp_path.iterdir())
