"""A linear tree over words, by omikuji: Bonsai (Khandagale et al. 2020) or Parabel (Prabhu et al. 2018).

omikuji trains from a file and predicts one document at a time; both run in native code.

Suffixes: N documents, C columns of words, F fields, L labels.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from joblib import cpu_count
from scipy import sparse
from sklearn.datasets import dump_svmlight_file
from typing_extensions import override

from xmtc.data.array_contract import Array, Arrays
from xmtc.data.arrays import Floats, Matrix
from xmtc.data.tensor_files import read_tensors, write_tensors
from xmtc.errors import CheckpointError, ConfigError, TrainingError
from xmtc.files import reading
from xmtc.scorers.base import (
    Features,
    LabelNames,
    Scorer,
    SparseScored,
    Training,
    field_weights,
    with_empty_columns,
)
from xmtc.scorers.config import TreeConfig
from xmtc.scorers.regrouping import Regrouping

_SHAPES: dict[str, dict[str, Any]] = {
    "bonsai": {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3},
    "parabel": {},
}
_BEAM = 30  # nodes that a search keeps on each level
_FOUND = 100  # labels that a search returns
_FOLDER = "omikuji"


@dataclass(frozen=True)
class Tree(Scorer):
    """A fitted omikuji model. Its scores do not decompose into words, so it gives no reasons.

    Attributes:
        model: `omikuji.Model`.
        size: L.
        fields_F: float32, weight of each field; 0 if it is not read.
        new_ids: new ids of the labels that the tree was trained with, -1 for removed ones; empty if none was removed.
    """

    FILE: ClassVar[str] = "tree.safetensors"
    ARRAYS: ClassVar[Arrays | None] = {
        "labels": Array("I64", "A", least=-1),
        "fields": Array("F32", "F", least=0),
    }
    model: Any
    size: int
    fields_F: Floats
    new_ids: tuple[int, ...] = ()

    @property
    @override
    def labels(self) -> int:
        return self.size

    @classmethod
    @override
    def fit(cls, training: Training, settings: TreeConfig) -> Self:
        """Trains the trees on all cores that this process may use.

        Raises:
            ConfigError: omikuji is not installed.
        """
        omikuji = _omikuji()
        parameters = omikuji.Model.default_hyper_param()
        for key, value in {
            **_SHAPES[settings.shape],
            "n_trees": settings.trees,
        }.items():
            setattr(parameters, key, value)
        words, labels_NL = training.features.words, training.labels_NL
        fields_F = field_weights(settings.fields, settings.kind, words.vocabulary)
        words_NC = _with_bare(words.apart(fields_F))
        with tempfile.NamedTemporaryFile(suffix=".txt") as file, _quiet():
            file.write(
                f"{len(training)} {words_NC.shape[1]} {labels_NL.shape[1]}\n".encode()
            )
            dump_svmlight_file(
                _narrow(words_NC),
                _narrow(labels_NL),
                file,
                zero_based=True,
                multilabel=True,
            )
            file.flush()
            try:
                model = omikuji.Model.train_on_data(file.name, parameters, cpu_count())
            except RuntimeError as error:
                reason = str(error).splitlines()[0][:200]
                raise TrainingError(
                    f"the scorer `tree`: omikuji cannot train ({reason}); leave it out"
                ) from error
        return cls(model, int(labels_NL.shape[1]), fields_F)

    @override
    def score(self, features: Features) -> SparseScored:
        """Computes scores in (0, 1] of the labels that the search reaches."""
        words_NC = _with_bare(features.words.apart(self.fields_F))
        columns_of_rows: list[int] = []
        values_of_rows: list[float] = []
        starts = [0]
        for row in range(len(features)):
            for label, value in self.model.predict(
                _pairs(words_NC, row), beam_size=_BEAM, top_k=_FOUND
            ):
                columns_of_rows.append(label)
                values_of_rows.append(value)
            starts.append(len(columns_of_rows))
        columns = np.array(columns_of_rows, np.int32)
        values = np.array(values_of_rows, np.float32)
        shape = (len(features), len(self.new_ids) or self.size)
        if len(columns) and not 0 <= columns.min() <= columns.max() < shape[1]:
            raise CheckpointError(
                "the scorer `tree`: its trees have other labels; export the model again"
            )
        scores_NL = sparse.csr_array((values, columns, starts), shape=shape)
        scores_NL.sort_indices()
        if self.new_ids:
            kept = np.flatnonzero(
                np.array(self.new_ids) >= 0
            )  # both ids ascend: removal keeps the order
            scores_NL = with_empty_columns(scores_NL[:, kept], self.size - len(kept))
        return SparseScored(scores_NL)

    @override
    def extended(self, new: LabelNames) -> Self:
        """The scorer never proposes the new labels."""
        return replace(self, size=self.size + len(new))

    @override
    def regrouped(self, regrouping: Regrouping) -> Self:
        """The search still reaches removed labels, but does not return them."""
        if regrouping.merged:
            raise ConfigError(
                "the scorer `tree` cannot merge labels: each is a separate leaf; train a model without this scorer"
            )
        ids = np.array(self.new_ids or range(self.size))
        new_ids = tuple(np.where(ids < 0, -1, regrouping.new_L[ids]).tolist())
        return replace(self, size=len(regrouping), new_ids=new_ids)

    @override
    def save(self, folder: Path) -> None:
        (folder / _FOLDER).mkdir(exist_ok=True)
        with _quiet():
            self.model.save(str(folder / _FOLDER))
        labels = np.array([self.size, *self.new_ids], np.int64)
        write_tensors(folder / self.FILE, {"labels": labels, "fields": self.fields_F})

    @classmethod
    @override
    def load(cls, folder: Path) -> Self:
        """Reads a saved model.

        Raises:
            CheckpointError: a file is missing or damaged.
            ConfigError: omikuji is not installed.
        """
        found = read_tensors(folder / cls.FILE, ("labels", "fields"))
        labels, *new_ids = found["labels"].tolist()
        with (
            reading(
                folder / _FOLDER, CheckpointError, "copy it again", "missing or damaged"
            ),
            _quiet(),
        ):
            model = _omikuji().Model.load(str(folder / _FOLDER))
        return cls(model, labels, found["fields"], tuple(new_ids))


def _with_bare(words_NC: Matrix) -> Matrix:
    """Add a column of documents without a known word: omikuji reads no document without a feature."""
    bare_N1 = sparse.csr_array(
        (np.diff(words_NC.indptr) == 0).astype(np.float32)[:, None]
    )
    return sparse.hstack([words_NC, bare_N1], format="csr")


def _narrow(matrix: Matrix) -> sparse.csr_matrix:
    """Convert the matrix to 32-bit indices, which the writer needs."""
    indices, starts = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return sparse.csr_matrix((matrix.data, indices, starts), shape=matrix.shape)


def _pairs(words_NC: Matrix, row: int) -> list[tuple[int, float]]:
    part = slice(words_NC.indptr[row], words_NC.indptr[row + 1])
    return list(
        zip(words_NC.indices[part].tolist(), words_NC.data[part].tolist(), strict=True)
    )


def _omikuji() -> Any:
    try:
        import omikuji
    except ImportError as error:
        raise ConfigError(
            "the scorer `tree` needs omikuji: pip install 'xmtc[trees]'"
        ) from error
    return omikuji


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress omikuji's progress bars, which native code writes to both standard streams."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        for stream, descriptor in enumerate(kept, start=1):
            os.dup2(descriptor, stream)
            os.close(descriptor)
        os.close(nowhere)
