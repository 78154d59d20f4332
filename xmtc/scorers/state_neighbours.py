"""Votes of the training documents with the most similar pooled states: w = exp(20 · (cos − 1)).

Suffixes: B query documents, N training documents, K neighbours, D width of states.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from xmtc.data.array_contract import Array, Arrays, SparseMatrix
from xmtc.data.arrays import Floats
from xmtc.data.tensor_files import read_fields
from xmtc.errors import DataError
from xmtc.scorers.base import Features, Training
from xmtc.scorers.config import StateNeighboursConfig
from xmtc.scorers.vectors import (
    centred_index,
    check_index,
    nearest,
    read_index,
    unit_rows,
    write_index,
)
from xmtc.scorers.votes import Votes

_SHARPNESS = 20.0
_INDEX = "states.faiss"


@dataclass(frozen=True)
class StateNeighbours(Votes):
    """Search by cosine of pooled states.

    Attributes:
        index: FAISS index of the training documents.
        mean_D: float32, mean that is subtracted from every state.
    """

    reads_states: ClassVar[bool] = True
    ARRAYS: ClassVar[Arrays | None] = {
        "labels_NL": SparseMatrix("F32", "NL", least=0),
        "k": Array("I64", least=1),
        "mean_D": Array("F32", "D"),
    }
    index: Any
    mean_D: Floats

    @classmethod
    @override
    def fit(cls, training: Training, settings: StateNeighboursConfig) -> Self:
        states_ND = training.features.states_ND
        if states_ND is None:
            raise DataError(
                "state_neighbours needs pooled states, but there are none: leave it out"
            )
        return cls(
            training.labels_NL.astype(np.float32),
            settings.neighbours,
            *centred_index(states_ND),
        )

    @override
    def nearest(self, features: Features) -> tuple[NDArray[np.int64], Floats]:
        """Finds the nearest training documents.

        Raises:
            DataError: the documents have no states, or their width differs.
        """
        states_ND = features.states("state_neighbours", len(self.mean_D))
        return nearest(self.index, unit_rows(states_ND, self.mean_D), self.k)

    @override
    def weights(self, cosines: Floats) -> Floats:
        return np.exp(_SHARPNESS * (cosines - 1))

    @override
    def save(self, folder: Path) -> None:
        """Writes the index beside the votes and the mean."""
        super().save(folder)
        write_index(folder / _INDEX, self.index)

    @classmethod
    @override
    def load(cls, folder: Path) -> Self:
        scorer = read_fields(folder / cls.FILE, cls, index=read_index(folder / _INDEX))
        check_index(
            folder / _INDEX, scorer.index, scorer.labels_NL.shape[0], len(scorer.mean_D)
        )
        return scorer
