"""Controls for signals: rankings that must not help, because their tokens say nothing about their labels."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from scipy import sparse
from typing_extensions import override

from xmtc.config.base import config
from xmtc.planting.mig.config import SignalSettings
from xmtc.planting.mig.counts import row_count
from xmtc.planting.mig.measures import MutualInformation, Signal


@config
class ShuffledConfig(SignalSettings):
    """The control that must not help: mutual information gain after the documents' label sets were permuted."""

    kind: Literal["shuffled"] = "shuffled"
    """Mutual information gain with shuffled labels."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the permutation. Label frequencies and label co-occurrence stay what they are."""

    @override
    def build(self) -> Signal:
        return Shuffled(self.seed)


@config
class ExchangedConfig(SignalSettings):
    """The stricter control: mutual information gain of another label with as many training documents, or nearly."""

    kind: Literal["exchanged"] = "exchanged"
    """Mutual information gain of another label."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the exchange. Each label gets the real signal of another label."""

    @override
    def build(self) -> Signal:
        return Exchanged(self.seed)


class Shuffled(MutualInformation):
    """Mutual information gain with the documents' label sets permuted.

    Args:
        seed: seed of the permutation.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    @override
    def permute(self, labels_NL: sparse.csr_array) -> sparse.csr_array:
        """Give every document the label set of another one."""
        return labels_NL[
            np.random.default_rng(self._seed).permutation(row_count(labels_NL))
        ]


class Exchanged(MutualInformation):
    """Mutual information gain of another label with as many, or nearly as many, training documents.

    Args:
        seed: seed of the order among labels of equal frequency.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    @override
    def permute(self, labels_NL: sparse.csr_array) -> sparse.csr_array:
        """Give every label the documents of the next label in order of frequency; the last one gets the first's."""
        counts_L = np.asarray(labels_NL.sum(axis=0)).ravel()
        order_L = np.lexsort(
            (np.random.default_rng(self._seed).random(len(counts_L)), counts_L)
        )
        own_L = np.empty_like(order_L)
        own_L[order_L] = np.roll(order_L, -1)
        return sparse.csr_array(labels_NL[:, own_L])
