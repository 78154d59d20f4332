"""Votes of the training documents with the most similar pooled states: w = exp(20 · (cos − 1)).

FAISS searches states that are centred and have unit length, by inner product.

Suffixes: B query documents, N training documents, K neighbours, D width of states.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from xmtc.data.arrays import Floats
from xmtc.data.tensor_files import read_fields
from xmtc.errors import CheckpointError, DataError, StorageError
from xmtc.files import reading, replacing
from xmtc.scorers.base import FILE, Features, Training
from xmtc.scorers.config import StateNeighboursConfig
from xmtc.scorers.votes import Votes

MAX_EXACT = 200_000
"""With more training documents, the search visits only some inverted lists."""
LISTS_SEARCHED = 32
_SHARPNESS = 20.0
_VECTORS_A_LIST = 64  # that the lists are trained on
_INDEX = "states.faiss"
_UNTYPED: Any = faiss  # its stubs do not know the class


@dataclass(frozen=True)
class StateNeighbours(Votes):
    """Search by cosine of pooled states.

    Attributes:
        index: FAISS index of the training documents.
        mean_D: float32, mean that is subtracted from every state.
    """

    index: Any
    mean_D: Floats

    @property
    @override
    def reads_states(self) -> bool:
        return True

    @classmethod
    @override
    def fit(cls, training: Training, settings: StateNeighboursConfig) -> Self:
        states_ND = training.features.states_ND
        if states_ND is None:
            raise DataError("state_neighbours needs pooled states, but there are none: leave it out")
        mean_D = states_ND.mean(axis=0, dtype=np.float64).astype(np.float32)
        index = index_of(_unit_rows(states_ND, mean_D))
        return cls(training.labels_NL.astype(np.float32), settings.neighbours, index, mean_D)

    @override
    def nearest(self, features: Features) -> tuple[NDArray[np.int64], Floats]:
        """Finds the nearest training documents.

        Raises:
            DataError: the documents have no states, or their width differs.
        """
        states_BD = features.states_ND
        if states_BD is None or states_BD.shape[1] != len(self.mean_D):
            found = "none" if states_BD is None else f"states of width {states_BD.shape[1]}"
            raise DataError(f"state_neighbours needs pooled states of width {len(self.mean_D)}, but was given {found}")
        parameters = None
        if isinstance(self.index, faiss.IndexIVF):
            parameters = _UNTYPED.SearchParametersIVF(nprobe=min(LISTS_SEARCHED, self.index.nlist))
        k = min(self.k, self.index.ntotal)
        cosines_BK, found_BK = self.index.search(_unit_rows(states_BD, self.mean_D), k, params=parameters)
        return found_BK, cosines_BK

    @override
    def weights(self, cosines: Floats) -> Floats:
        return np.exp(_SHARPNESS * (cosines - 1))

    @override
    def save(self, folder: Path) -> None:
        """Writes the index beside the votes and the mean.

        Raises:
            StorageError: FAISS cannot write the file.
        """
        super().save(folder)
        path = folder / _INDEX
        try:
            with replacing(path) as partial:
                faiss.write_index(self.index, str(partial))
        except RuntimeError as error:
            raise StorageError(
                f"{path}: cannot be written: {error}; free disk space, or choose another folder"
            ) from error

    @classmethod
    @override
    def load(cls, folder: Path) -> Self:
        """Reads a saved scorer; the index is memory-mapped."""
        path = folder / _INDEX
        try:
            with reading(path, CheckpointError, "export the model again"):
                index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise CheckpointError(f"{path}: cannot be read: {error}; export the model again") from error
        return read_fields(folder / FILE, cls, index=index)


def index_of(vectors_ND: Floats) -> Any:
    """Build an index, exact up to `MAX_EXACT` documents; beyond, with inverted lists."""
    documents, width = vectors_ND.shape
    if documents <= MAX_EXACT:
        index: Any = faiss.IndexFlatIP(width)
    else:
        lists = max(1, min(round(4 * documents**0.5), documents // _VECTORS_A_LIST))
        index = faiss.index_factory(width, f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
        step = max(1, documents // (_VECTORS_A_LIST * index.nlist))
        index.train(np.ascontiguousarray(vectors_ND[::step]))
    index.add(vectors_ND)
    return index


def _unit_rows(states_ND: NDArray[np.floating], mean_D: Floats) -> Floats:
    """Subtract the corpus mean from states, and scale them to unit length."""
    centred_ND = states_ND.astype(np.float32) - mean_D
    norms_N1 = np.linalg.norm(centred_ND, axis=1, keepdims=True)
    return centred_ND / np.maximum(norms_N1, np.finfo(np.float32).tiny)
