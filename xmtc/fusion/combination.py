"""How a fusion turns the inputs of a (document, label) pair into one logit that is a sum over the inputs.

Suffixes: N documents, K candidates, L labels, X inputs (the last is 1).
"""

from collections.abc import Mapping
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from xmtc.data.array_contract import Arrays
from xmtc.fusion.config import CombinationKind
from xmtc.scorers.regrouping import Regrouping

Floats = NDArray[np.float64]


class Combination(Protocol):
    """A fitted function of the inputs of pairs.

    Attributes:
        kind: its name in settings and files.
        ARRAYS: the arrays that it is saved as; X is the number of inputs, L that of labels.
    """

    kind: ClassVar[CombinationKind]
    ARRAYS: ClassVar[Arrays]

    def logits(self, inputs_XNK: Floats, label_ids_NK: NDArray[np.int32]) -> Floats:
        """Compute logits (N, K)."""
        ...

    def terms(self, inputs_XNK: Floats, label_ids_NK: NDArray[np.int32]) -> Floats:
        """Compute what each input adds to the logit, (X, N, K); the terms sum to the logit."""
        ...

    def extended(self, labels: int, like: int) -> Self:
        """Return the combination with this many more labels, which are treated like an existing one."""
        del labels, like
        return self

    def regrouped(self, regrouping: Regrouping, counts_L: NDArray[np.int64]) -> Self:
        """Return the combination with fewer labels; a merged label is treated like its most frequent part."""
        del regrouping, counts_L
        return self

    def tensors(self) -> dict[str, NDArray]:
        """Return the arrays that `from_tensors` restores the combination from, by name."""
        return {name: getattr(self, name) for name in self.ARRAYS}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray]) -> Self:
        """Restore a combination.

        Raises:
            ValueError: its arrays do not fit each other.
        """
        return cls(**{name: tensors[name] for name in cls.ARRAYS})
