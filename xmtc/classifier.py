"""`xmtc.Classifier`: training and prediction as a scikit-learn estimator.

Suffixes: N texts, K labels of each, L classes.
"""

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from xmtc.artefact.output import model_of_run
from xmtc.data.readers.in_memory import column_names, column_of
from xmtc.data.targets import Targets
from xmtc.errors import DataError
from xmtc.files import writing
from xmtc.own_data import train
from xmtc.predict.predictor import Model
from xmtc.predict.request import Request
from xmtc.run.config import SEEDS
from xmtc.track.console import quiet

_LABELS = "labels"
"""Column of a table with the labels, if they are not given apart."""


class Classifier(ClassifierMixin, BaseEstimator):
    """Trains on texts and labels, as `xmtc train` does, and predicts: a classifier for scikit-learn.

    It works in pipelines, with `clone`, `cross_val_score` and `GridSearchCV`, and a fitted one can be pickled. Each fit
    is a run: a part of the texts is kept out, on which the model is tuned and reported.

    Args:
        budget: time that a fit may take on this machine, such as `10m`; it decides which recipe is trained.
        fields: columns of a table to read as text. None: all, without that of the labels.
        directory: folder in which every fit makes a folder for its run, `fit-1`, `fit-2` and so on. None: a temporary
            one, which is deleted with the classifier.
        device: where to predict: `auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1` …
        random_state: seed of the run, or a `RandomState` that gives one. None: the default seed, so that fits of the
            same texts do not differ by chance.
        verbose: whether to show progress and figures.

    Attributes:
        classes_: the L labels, sorted; of an indicator matrix, its columns in order: their names, or numbers.
        run_: folder of the run, with its report in `eval`.
        model_: the trained `xmtc.Model`, with evidence and other rules for decisions.
        feature_names_in_: the fields, if texts came as a table.

    Example:
        >>> classifier = xmtc.Classifier(budget="10m").fit(["a text", …], [["a label", "another"], …])
        >>> classifier.predict(["another text"])
        [['a label']]
    """

    run_: Path
    classes_: NDArray[Any]

    def __init__(
        self,
        *,
        budget: str = "10m",
        fields: Sequence[str] | None = None,
        directory: str | Path | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.budget = budget
        self.fields = fields
        self.directory = directory
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on texts and labels.

        Args:
            X: N texts in a list, Series, array or column; or a table with one or several text columns: a DataFrame, an
                Arrow table, a Hugging Face `Dataset`, a mapping of columns, or an array with a row for each document.
            y: a list of labels for each document, for a multi-label classifier; an indicator matrix (N, L) of zeros and
                ones, which may be sparse or a DataFrame, for the same; or one label for each document, for a
                single-label classifier. None: the column `labels` of the table.

        Raises:
            DataError: texts and labels do not match, or nothing can be learnt from them.
            ConfigError: a setting is wrong.
            StorageError: the folder cannot be written.
        """
        table = _table_of(X)
        fields = self._fields_of(table, labels_within=y is None)
        targets = Targets.of(column_of(table, _LABELS) if y is None else y)
        columns = {} if fields is None else {"text": fields}
        folder = self._new_folder()
        with nullcontext() if self.verbose else quiet():
            model = train(
                table,
                targets.lists,
                budget=self.budget,
                directory=folder,
                label_column=_unused_name(fields or ["text"]),
                task=targets.task,
                seed=self._seed(),
                **columns,
            )
        self.run_ = folder
        self._model: Model | None = model
        self._folder = model_of_run(folder)
        self._targets = targets
        self.classes_ = np.array(list(targets.classes.values()))
        self.__dict__.pop("feature_names_in_", None)
        if fields is not None:
            self.feature_names_in_ = np.array(fields, object)
        return self

    @property
    def model_(self) -> Model:
        """The trained model.

        Raises:
            NotFittedError: there is none yet.
        """
        check_is_fitted(self, "classes_")
        if self._model is None:  # this classifier was pickled
            self._model = Model.from_pretrained(self._folder, device=self.device)
        return self._model

    def predict(self, X: Any) -> Any:
        """Predict the labels of N documents by the model's decision, which was tuned on texts that it had not seen.

        Args:
            X: documents, with the columns of training.

        Returns:
            Labels in the form of those in training: a list for each document, best first; an indicator matrix (N, L);
            or an array of one label each.

        Raises:
            NotFittedError: the classifier is not fitted.
            DataError: a document is empty, or no text.
        """
        threshold = None if self._task == "single_label" else "tuned"
        texts = self.model_.predict(_table_of(X), threshold=threshold)
        lists = [[prediction.label for prediction in labels] for labels in texts]
        return self._targets.given(lists)

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Predict the probability of each label for N documents, float32 (N, L).

        A label that no scorer of the model proposes for a document has the probability 0, and so has a label of which
        every document was kept out of training.

        Args:
            X: documents, with the columns of training.

        Raises:
            NotFittedError: the classifier is not fitted.
            DataError: a document is empty, or no text.
        """
        model = self.model_
        documents = model.scorer.tokenise(model.scorer.texts(_table_of(X)))
        answer = model.scorer.score(documents, Request(top_k=len(model.labels)))
        columns = {label: column for column, label in enumerate(self._targets.classes)}
        column_K = np.array([columns[label] for label in model.labels.labels])
        rows, ranks = np.nonzero(answer.label_ids_NK >= 0)
        known = answer.label_ids_NK[rows, ranks]
        probabilities_NL = np.zeros((len(documents), len(columns)), np.float32)
        probabilities_NL[rows, column_K[known]] = answer.scores_NK[rows, ranks]
        return probabilities_NL

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Measure micro-F1 of the predicted labels; with one label each, this is the share that is right.

        Args:
            X: N documents.
            y: their labels, in any form that `fit` takes.
            sample_weight: a weight for each document.

        Raises:
            NotFittedError: the classifier is not fitted.
            DataError: a document is empty, or documents and labels do not match.
        """
        predicted = Targets.of(self.predict(X)).lists
        right = Targets.of(y).lists
        if len(predicted) != len(right):
            raise DataError(
                f"there are {len(predicted):,} documents and labels of {len(right):,}; give as many"
            )
        weights_N = np.ones(len(right)) if sample_weight is None else sample_weight
        pairs = list(zip(predicted, right, strict=True))
        hits_N = [len(set(labels) & set(truth)) for labels, truth in pairs]
        labels_N = [len(labels) + len(truth) for labels, truth in pairs]
        total = float(np.dot(weights_N, labels_N))
        return 2 * float(np.dot(weights_N, hits_N)) / total if total else 0.0

    def save(self, directory: str | Path) -> Path:
        """Write the model's folder, which `xmtc predict`, `xmtc serve` and `xmtc.Model.from_pretrained` take.

        Args:
            directory: a new place, or that of another model, which is replaced.

        Returns:
            The new folder.

        Raises:
            NotFittedError: the classifier is not fitted.
            ConfigError: the directory holds something that is not a model.
            StorageError: the directory cannot be written.
        """
        return self.model_.save(directory)

    @property
    def _task(self) -> str:
        check_is_fitted(self, "classes_")
        return self._targets.task

    def _seed(self) -> int | None:
        """Return the seed of the run."""
        if isinstance(self.random_state, np.random.RandomState):
            return int(self.random_state.randint(SEEDS, dtype=np.int64))
        return self.random_state

    def _fields_of(self, table: Any, *, labels_within: bool) -> list[str] | None:
        """List the columns with text; None if documents are plain texts."""
        names = [str(name) for name in column_names(table)]
        if self.fields is not None:
            return [str(name) for name in self.fields]
        fields = [name for name in names if not (labels_within and name == _LABELS)]
        return fields or None

    def _new_folder(self) -> Path:
        """Make the folder of a run."""
        if self.directory is None:
            folder = Path(tempfile.mkdtemp(prefix="xmtc-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            return folder
        number = 1
        root = Path(self.directory).absolute()
        with writing(root):
            root.mkdir(parents=True, exist_ok=True)
            while True:  # others may be at work in the same folder
                folder = root / f"fit-{number}"
                try:
                    folder.mkdir()
                except FileExistsError:
                    number += 1
                else:
                    return folder

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the files of the model instead of the model, which may be on a GPU."""
        state: dict[str, Any] = dict(vars(self))
        state.pop("_model", None)
        folder: Path | None = state.pop("_folder", None)
        if folder is not None:
            state["_files"] = {
                path.relative_to(folder).as_posix(): path.read_bytes()
                for path in sorted(folder.rglob("*"))
                if path.is_file()
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Write the files of the model to a temporary folder, from which it is loaded on first use."""
        files: Mapping[str, bytes] | None = state.pop("_files", None)
        super().__setstate__(state)
        if files is None:
            return
        folder = Path(tempfile.mkdtemp(prefix="xmtc-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self._folder = folder
        self._model = None

    def __sklearn_tags__(self) -> Tags:
        """Say what X and y may be."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        tags.input_tags.string = True
        tags.target_tags.multi_output = True
        if tags.classifier_tags is not None:
            tags.classifier_tags.multi_label = True
        return tags


def _table_of(X: Any) -> Any:
    """Return documents as a list or a table: rows of an array become columns, which are called 0, 1 and so on."""
    if isinstance(X, np.ndarray) and X.ndim == 2:
        return {str(column): X[:, column] for column in range(X.shape[1])}
    return X


def _unused_name(fields: Sequence[str]) -> str:
    """Name the column of labels unlike those of text."""
    name = _LABELS
    while name in fields:
        name = f"{name}_"
    return name
