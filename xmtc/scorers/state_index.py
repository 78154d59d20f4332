"""A FAISS index over pooled states of training documents, by cosine after centring.

Suffixes: B query documents, N training documents, K neighbours, D width.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import faiss
import numpy as np
from numpy.typing import NDArray

from xmtc.data.arrays import Floats
from xmtc.data.tensor_files import read_tensors, write_tensors
from xmtc.errors import CheckpointError, DataError, StorageError
from xmtc.files import reading, replacing
from xmtc.scorers.base import Features
from xmtc.scorers.linear import unit_rows

_MAX_FLAT = 200_000
_TRAINING_VECTORS = 64  # per inverted list
_LINKS = 32
_UNTYPED: Any = faiss  # its stubs know neither class


@dataclass(frozen=True)
class StateIndex:
    """Nearest training documents by pooled states.

    Attributes:
        index: index of centred states at unit length, by inner product.
        mean_D: float32, mean that is subtracted from every state.
        probes: number of inverted lists that a search visits.
    """

    index: Any
    mean_D: Floats
    probes: int

    @property
    def reads_states(self) -> bool:
        """Yes."""
        return True

    @classmethod
    def of(
        cls, states_ND: NDArray[np.floating], kind: Literal["auto", "flat", "ivf", "hnsw"], probes: int
    ) -> "StateIndex":
        """Build an index.

        Args:
            states_ND: states of the training documents.
            kind: see `StateNeighboursConfig.index`.
            probes: see `StateNeighboursConfig.probes`.
        """
        mean_D = states_ND.mean(axis=0, dtype=np.float64).astype(np.float32)
        vectors_ND = unit_rows(states_ND, mean_D)
        index = _empty(kind, *vectors_ND.shape)
        if not index.is_trained:
            step = max(1, len(vectors_ND) // (_TRAINING_VECTORS * index.nlist))
            index.train(np.ascontiguousarray(vectors_ND[::step]))
        index.add(vectors_ND)
        return cls(index, mean_D, probes)

    def nearest(self, features: Features, k: int) -> tuple[NDArray[np.int64], Floats]:
        """Find rows and cosines (B, K) of the nearest training documents; -1 pads.

        Raises:
            DataError: the documents have no states, or their width differs.
        """
        states_BD = features.states_ND
        if states_BD is None or states_BD.shape[1] != len(self.mean_D):
            found = "none" if states_BD is None else f"states of width {states_BD.shape[1]}"
            raise DataError(f"state_neighbours needs pooled states of width {len(self.mean_D)}, but was given {found}")
        parameters = _parameters(self.index, self.probes)
        k = min(k, self.index.ntotal)
        cosines_BK, found_BK = self.index.search(unit_rows(states_BD, self.mean_D), k, params=parameters)
        return found_BK, cosines_BK

    def save(self, folder: Path) -> None:
        """Write `states.faiss` and `states.safetensors`.

        Raises:
            StorageError: FAISS cannot write the file.
        """
        path = folder / "states.faiss"
        try:
            with replacing(path) as partial:
                faiss.write_index(self.index, str(partial))
        except RuntimeError as error:
            raise StorageError(
                f"{path}: cannot be written: {error}; free disk space, or choose another folder"
            ) from error
        numbers = np.array([self.probes], np.int64)
        write_tensors(folder / "states.safetensors", {"mean_D": self.mean_D, "probes": numbers})

    @classmethod
    def load(cls, folder: Path) -> "StateIndex":
        """Memory-map a saved index.

        Raises:
            CheckpointError: a file is missing or damaged.
        """
        path = folder / "states.faiss"
        tensors = read_tensors(folder / "states.safetensors", ("mean_D", "probes"))
        try:
            with reading(path, CheckpointError, "export the model again"):
                index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise CheckpointError(f"{path}: cannot be read: {error}; export the model again") from error
        return cls(index, tensors["mean_D"], int(tensors["probes"][0]))


def _empty(kind: Literal["auto", "flat", "ivf", "hnsw"], documents: int, width: int) -> Any:
    if kind == "auto":
        kind = "flat" if documents <= _MAX_FLAT else "ivf"
    if kind == "flat":
        return faiss.IndexFlatIP(width)
    if kind == "hnsw":
        return faiss.IndexHNSWFlat(width, _LINKS, faiss.METRIC_INNER_PRODUCT)
    lists = max(1, min(round(4 * documents**0.5), documents // _TRAINING_VECTORS))
    return faiss.index_factory(width, f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)


def _parameters(index: Any, probes: int) -> Any:
    if isinstance(index, faiss.IndexIVF):
        return _UNTYPED.SearchParametersIVF(nprobe=min(probes, index.nlist))
    if isinstance(index, faiss.IndexHNSW):
        return _UNTYPED.SearchParametersHNSW(efSearch=4 * probes)
    return None
