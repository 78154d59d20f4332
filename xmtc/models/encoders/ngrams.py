"""N-gram evidence beside an encoder: what a linear model of word pairs knows, learned together with the encoder.

Suffixes: W windows, U tokens, D width of the base encoder, K labels, F buckets, X n-grams of a document.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Discriminator, Field
from torch import Tensor, nn
from torch.nn import functional as F

from xmtc.config.base import config
from xmtc.errors import ConfigError
from xmtc.models.encoders.bag import BagConfig
from xmtc.models.encoders.bigru import BiGRUConfig
from xmtc.models.encoders.cnn import CNNConfig
from xmtc.models.encoders.embedding import LightEncoder
from xmtc.models.encoders.lstm import LSTMConfig
from xmtc.models.encoders.multilevel import MultilevelConfig
from xmtc.models.encoders.self_attention import SelfAttentionConfig

LightConfig = Annotated[
    SelfAttentionConfig | MultilevelConfig | BiGRUConfig | LSTMConfig | CNNConfig | BagConfig, Discriminator("kind")
]
# a prime; times a bucket and plus a token id it stays far below 2**63, so that no platform's overflow matters
_MULTIPLIER = 1_000_003


class Documents(Protocol):
    """What counting needs of a split."""

    def __len__(self) -> int: ...

    def tokens(self, document: int) -> NDArray[np.int32]:
        """Token ids of a document."""
        ...

    def label_ids(self, document: int) -> NDArray[np.int32]:
        """Label ids of a document."""
        ...


@config
class NGramsConfig:
    """A lightweight encoder whose hidden states also carry how much the n-grams that end there speak for each label.

    Each n-gram's share for a label is its naive-Bayes log-odds in train times a learned gain, as in NB-SVM (Wang &
    Manning 2012), but hashed and trained with the encoder. For tasks with few labels: the table has `buckets` rows of
    one number a label.
    """

    kind: Literal["ngrams"] = "ngrams"
    """Which encoder."""
    base: LightConfig = MultilevelConfig()
    """The encoder beside which the n-grams stand."""
    labels: Annotated[int, Field(ge=2, le=256)]
    """Labels of the corpus: so many dimensions are added to the hidden states."""
    longest: Annotated[int, Field(ge=1, le=8)] = 3
    """N-grams of 1 to this many tokens."""
    buckets: Annotated[int, Field(ge=1024)] = 1 << 20
    """Rows of the table, into which n-grams are hashed."""
    min_documents: Annotated[int, Field(ge=1)] = 3
    """An n-gram in fewer train documents than this counts for nothing."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.3
    """Share of the n-grams that are left out in training."""

    def build(self, vocab_size: int) -> "NGramEncoder":
        """The encoder, started at random; `NGramEncoder.start` counts the n-grams."""
        return NGramEncoder(self.base.build(vocab_size), self)


class NGramEncoder(nn.Module):
    """Hidden states (W, U, D + K): the base encoder's, then the n-grams' evidence for each label.

    Attributes:
        width: D + K.
        window: of the base encoder.
        odds_FK: log-odds of the buckets in train, 0 before `start`; not trained.
        gain_FK: what the log-odds are multiplied with, from 0, so that training starts from the base encoder.
    """

    odds_FK: Tensor

    def __init__(self, base: LightEncoder, config: NGramsConfig) -> None:
        super().__init__()
        self.base, self.config = base, config
        self.width, self.window = base.width + config.labels, base.window
        self.register_buffer("odds_FK", torch.zeros(config.buckets, config.labels))
        self.gain_FK = nn.Parameter(torch.zeros(config.buckets, config.labels))

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Hidden states (W, U, D + K), 0 on padding."""
        hidden_WUD = self.base(input_ids_WU, attention_mask_WU)
        pairs = ngram_buckets(input_ids_WU, attention_mask_WU, self.config.longest, self.config.buckets)
        evidence_WUK = torch.stack([self._evidence(bucket_WU, whole_WU) for bucket_WU, whole_WU in pairs]).sum(0)
        return torch.cat([hidden_WUD, evidence_WUK], 2)

    def _evidence(self, bucket_WU: Tensor, whole_WU: Tensor) -> Tensor:
        kept_WU = F.dropout(whole_WU.to(self.gain_FK.dtype), self.config.dropout, self.training)
        shares_WUK = F.embedding(bucket_WU, self.odds_FK) * F.embedding(bucket_WU, self.gain_FK)
        return shares_WUK * kept_WU.unsqueeze(2)

    def layers(self) -> Sequence[nn.Module]:
        """The base encoder's; the n-grams train with the top one."""
        return self.base.layers()

    def load_vectors(self, vocabulary: dict[str, int]) -> int:
        """See `TokenEmbedding.load_vectors`."""
        return self.base.load_vectors(vocabulary)

    def start(self, documents: Documents, labels: int) -> None:
        """Count the n-grams of the training documents.

        The log-odds are scaled so that their means over a document's tokens have variance 1 over the documents.

        Raises:
            ConfigError: the corpus has another number of labels than `labels` says.
        """
        if labels != self.config.labels:
            raise ConfigError(f"model.encoder.labels: {self.config.labels}, but the corpus has {labels}; set that")
        found = list(self._documents(documents))
        odds_FK = _log_odds([(buckets_X, ids) for buckets_X, ids, _ in found], self.config)
        means_NK = np.array([odds_FK[buckets_X].sum(0) / length for buckets_X, _, length in found])
        odds_FK /= max(float(means_NK.std()), 1e-6)
        self.odds_FK.copy_(torch.from_numpy(odds_FK))

    def _documents(self, documents: Documents) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], int]]:
        """Each document's buckets, every one once, its labels and its length."""
        for row in range(len(documents)):
            ids_1U = torch.from_numpy(documents.tokens(row).astype(np.int64))[None]
            pairs = ngram_buckets(
                ids_1U, torch.ones_like(ids_1U, dtype=torch.bool), self.config.longest, self.config.buckets
            )
            buckets = torch.cat([bucket_1U[whole_1U] for bucket_1U, whole_1U in pairs])
            yield buckets.unique().numpy(), documents.label_ids(row), ids_1U.shape[1]


def ngram_buckets(ids_WU: Tensor, mask_WU: Tensor, longest: int, buckets: int) -> Iterator[tuple[Tensor, Tensor]]:
    """For n = 1, 2 … the bucket (W, U) of the n-gram that ends at each token, and whether there is one there."""
    bucket_WU, whole_WU = torch.zeros_like(ids_WU), mask_WU
    for n in range(longest):
        bucket_WU = (bucket_WU * _MULTIPLIER + _shifted(ids_WU, n) + n + 1) % buckets
        whole_WU = whole_WU & _shifted(mask_WU, n)
        yield bucket_WU, whole_WU


def _shifted(x_WU: Tensor, by: int) -> Tensor:
    """Each row moved `by` tokens to the right; zeros come in."""
    return F.pad(x_WU, (by, 0))[:, : x_WU.shape[1]]


def _log_odds(
    documents: Iterable[tuple[NDArray[np.int64], NDArray[np.int32]]], settings: NGramsConfig
) -> NDArray[np.float32]:
    """Log of how much likelier a bucket is in a document with the label than without, smoothed by one document."""
    counts_FK = np.zeros((settings.buckets, settings.labels), np.float32)
    total_F, total_K, total = np.zeros((settings.buckets, 1), np.float32), np.zeros(settings.labels, np.float32), 0
    for buckets_X, label_ids in documents:
        total_F[buckets_X] += 1
        counts_FK[buckets_X[:, None], label_ids] += 1
        total_K[label_ids] += 1
        total += 1
    with_FK = (counts_FK + 1) / (total_K + 1)
    without_FK = (total_F - counts_FK + 1) / (total - total_K + 1)
    return np.where(total_F >= settings.min_documents, np.log(with_FK / without_FK), 0).astype(np.float32)
