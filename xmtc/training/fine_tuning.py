"""Stage 2: fine-tune classifier, attention and, phase by phase, the backbone."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from xmtc.data.collate import Batch
from xmtc.losses.base import LossOutput
from xmtc.mining.index import LabelVectors
from xmtc.mining.miner import Miner
from xmtc.models.classifier import Classifier
from xmtc.models.label_rows import TextVectors, refresh
from xmtc.training.config import FinetuneConfig
from xmtc.training.label_losses import build_label_loss
from xmtc.training.label_shard import LabelShard
from xmtc.training.objective import Objective


class FinetuneObjective(Objective):
    """Classifies documents.

    Args:
        classifier: backbone and head.
        settings: see `FinetuneConfig`.
        evaluate: measures the classifier on dev; collective.
        shard: this worker's label rows of the classifier.
        texts: texts of this worker's labels, for a head that computes rows from texts.
    """

    def __init__(
        self,
        classifier: Classifier,
        settings: FinetuneConfig,
        evaluate: Callable[[], dict[str, float]],
        shard: LabelShard,
        texts: TextVectors | None = None,
    ) -> None:
        super().__init__(classifier, evaluate)
        classifier.head.sparse_gradients = settings.samples_labels is not None
        self.shard = shard
        self.texts = texts
        device = next(classifier.parameters()).device
        self.miner = (
            Miner(settings.mining, self._label_vectors, device)
            if settings.mining
            else None
        )
        self.label_loss = build_label_loss(
            settings, classifier.head, shard, texts, self.miner
        )

    @override
    def before_step(self, step: int) -> None:
        """Keeps the index of labels young."""
        if self.miner is not None:
            self.miner.before_step(step)

    @override
    def read_metrics(self) -> dict[str, float]:
        """How mining goes, on this rank."""
        return self.miner.read_metrics() if self.miner is not None else {}

    @override
    def forward(self, batch: Batch, seed: int) -> LossOutput:
        """Compute the loss of a micro-batch over all labels, or an unbiased estimate of it from some labels.

        It is this worker's labels' share; the sum over workers is the loss of all documents.
        """
        documents = self.shard.gather(self.classifier.read(batch), batch)
        output = self.label_loss(documents, seed)
        if self.shard.world == 1:
            return output
        return LossOutput(output.sum, batch.weight_B.sum())

    def _label_vectors(self) -> NDArray[np.float32]:
        """Copy the current vectors to index."""
        if self.texts is not None:
            refresh(self.classifier.head, self.texts)
        return LabelVectors.of(self.classifier.head)[:]
