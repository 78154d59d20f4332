"""The ranking of a corpus, computed once."""

from pathlib import Path
from typing import Protocol

from xmtc.data.progress import Progress
from xmtc.errors import DataError
from xmtc.mig.config import MigConfig
from xmtc.mig.counts import TokenSplit
from xmtc.mig.ranking import TokenRanking, rank_tokens, ranking_fingerprint, saved_fingerprint


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that ranking needs."""

    @property
    def all_special_ids(self) -> list[int]:
        """Ids that are never ranked."""
        ...

    def __len__(self) -> int:
        """Return the size of the vocabulary, added tokens included."""
        ...


class RankableCorpus(Protocol):
    """The part of `xmtc.data.corpus.Corpus` that ranking needs."""

    @property
    def fingerprint(self) -> str:
        """Changes with the corpus."""
        ...

    def split(self, name: str) -> TokenSplit:
        """Return the named split."""
        ...

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer that made the token ids."""
        ...


def rank_corpus(
    corpus: RankableCorpus,
    config: MigConfig,
    path: Path | str,
    progress: Progress | None = None,
) -> tuple[TokenRanking, bool]:
    """Rank the tokens of a corpus's training split, or read the ranking from `path` if it is up to date.

    Args:
        corpus: only its `train` split is read.
        config: signal and limits.
        path: safetensors file.
        progress: receives how many labels are ranked.

    Returns:
        The ranking, and whether it was there already.

    Raises:
        DataError: no token can be ranked for any label, or the file at `path` is damaged.
    """
    fingerprint = ranking_fingerprint(corpus.fingerprint, config)
    if saved_fingerprint(path) == fingerprint:
        return TokenRanking.load(path), True
    tokenizer = corpus.tokenizer()
    ranking = rank_tokens(
        corpus.split("train"),
        config,
        special_token_ids=tokenizer.all_special_ids,
        vocab_size=len(tokenizer),
        fingerprint=fingerprint,
        progress=progress,
    )
    if ranking.unranked == len(ranking.label_documents_L):
        raise DataError(
            f"no token could be ranked for any label: of {ranking.documents} training documents, none has both a label "
            f"and a token that {config.min_documents} documents hold, or all have the same labels; lower "
            "mig.min_documents or add documents"
        )
    ranking.save(path)
    return ranking, False
