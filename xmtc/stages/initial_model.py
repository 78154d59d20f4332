"""Continue training from an exported model: take over its weights, and initialise new labels.

Suffixes: L labels of the run, K labels that the model knows too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from xmtc.artefact.export import ModelParts, load_model
from xmtc.artefact.info import vocabulary_warning
from xmtc.data.labels import LabelTable
from xmtc.data.tokenizer import same_ids
from xmtc.errors import ConfigError
from xmtc.models.classifier import Classifier
from xmtc.models.encoders.base import FOLDER as ENCODER
from xmtc.models.heads.base import Head
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths


@dataclass(frozen=True)
class InitialModel:
    """The model that training continues from.

    Attributes:
        name: name that the user gave.
        folder: folder of the model.
        digest: digest of the weights.
        classifier: classifier with the model's weights.
        known_K: int64 (K,), ids in the run of the labels that the model knows.
        theirs_K: int64 (K,), their ids in the model.
        new_labels: number of labels of the run that the model does not know.
        gone_labels: number of labels of the model that the run does not have.
        vocabulary: version of the model's vocabulary.
    """

    name: str
    folder: Path
    digest: str
    classifier: Classifier
    known_K: Tensor
    theirs_K: Tensor
    new_labels: int
    gone_labels: int
    vocabulary: str

    def load_shared(self, classifier: Classifier) -> None:
        """Load the encoder, and the head's tensors that all labels share, into `classifier`.

        Raises:
            ConfigError: the settings of encoder or head do not fit the model.
        """
        self._load(
            classifier.encoder, self.classifier.encoder.state_dict(), "model.encoder"
        )
        if classifier.head.settings.scores:
            rows = dict(classifier.head.label_tables())
            self._load(
                classifier.head, self.classifier.head.state_dict() | rows, "model.head"
            )

    def load_rows(self, head: Head, own: slice) -> None:
        """Load the rows of known labels into `head`, which holds the rows of the labels `own`; other rows stay."""
        if not head.settings.scores:
            return
        here_K = (self.known_K >= own.start) & (self.known_K < own.stop)
        known_K = self.known_K[here_K] - own.start
        theirs_K = self.theirs_K[here_K]
        theirs = self.classifier.head.label_tables()
        with torch.no_grad():
            for name, table in head.label_tables().items():
                table[known_K.to(table.device)] = (
                    theirs[name].detach()[theirs_K].to(table.device, table.dtype)
                )

    def encoder_tensors(self, classifier: Classifier) -> dict[str, Tensor]:
        """Return the whole encoder by the classifier's names, if the model contains one; otherwise nothing."""
        if not (self.folder / ENCODER).is_dir():
            return {}
        return {
            f"encoder.{name}": tensor
            for name, tensor in classifier.encoder.state_dict().items()
        }

    def describe(self, vocabulary: str) -> str:
        """Describe which labels are known and which are new, in a line.

        Args:
            vocabulary: version of the corpus's vocabulary.
        """
        line = f"init_from: {self.name}: {len(self.known_K):,} labels are known, {self.new_labels:,} are new"
        if self.gone_labels:
            line += f"; {self.gone_labels:,} of its labels are not in the corpus"
        warning = vocabulary_warning(self.vocabulary, vocabulary, "the corpus")
        if warning:
            line += f"; warning: {warning}"
        return line

    def _load(
        self, module: torch.nn.Module, tensors: Mapping[str, Tensor], section: str
    ) -> None:
        try:
            module.load_state_dict(dict(tensors))
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise ConfigError(
                f"{section}: does not fit model.init_from: {self.name} ({reason}); take over {section} from its "
                "configuration, or leave out model.init_from"
            ) from error


def open_initial_model(
    config: RunConfig,
    paths: RunPaths,
    tokenizer: PreTrainedTokenizerFast,
    labels: LabelTable,
) -> InitialModel | None:
    """Open the model that a run continues from; None without `model.init_from`.

    Raises:
        ConfigError: its tokenizer differs from the corpus's.
        CheckpointError: the model is damaged.
    """
    name, folder = config.model.init_from, paths.initial_model
    if name is None:
        return None
    assert folder is not None, "the run's copies have been made"
    parts = load_model(folder)
    if not same_ids(parts.tokenizer, tokenizer):
        raise other_tokenizer(name, folder)
    return _match_labels(name, folder, parts, labels)


def other_tokenizer(name: str, folder: Path) -> ConfigError:
    """Make the error for a model whose tokenizer differs from the corpus's."""
    return ConfigError(
        f"model.init_from: {name}: its tokenizer assigns other token ids than the corpus's; set "
        f"data.tokenizer to {{kind: pretrained, name: {folder / 'tokenizer'}}}"
    )


def _match_labels(
    name: str, folder: Path, parts: ModelParts, labels: LabelTable
) -> InitialModel:
    known_ids = [
        label_id
        for label_id, label in enumerate(labels.labels)
        if label in parts.labels
    ]
    their_ids = [parts.labels.index(labels.labels[label_id]) for label_id in known_ids]
    return InitialModel(
        name=name,
        folder=folder,
        digest=parts.digest,
        classifier=parts.classifier,
        known_K=torch.tensor(known_ids, dtype=torch.int64),
        theirs_K=torch.tensor(their_ids, dtype=torch.int64),
        new_labels=len(labels) - len(known_ids),
        gone_labels=len(parts.labels) - len(known_ids),
        vocabulary=parts.info.vocabulary,
    )
