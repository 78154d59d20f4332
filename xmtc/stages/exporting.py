"""Export the model that a stage has produced."""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from xmtc.artefact.export import ModelParts, export_model
from xmtc.artefact.info import ModelInfo
from xmtc.data.readers.table_config import document_columns, label_file
from xmtc.fusion.decision import BEST, Outcomes
from xmtc.fusion.ensemble import Ensemble
from xmtc.mining.index import LabelIndex
from xmtc.models.classifier import Classifier
from xmtc.models.heads.config import NoHeadConfig
from xmtc.predict.smoke import write_answers
from xmtc.scorers.predictions import SparsePredictions
from xmtc.stages.profile import profile
from xmtc.stages.worker import Worker


def export(
    worker: Worker,
    trained: Mapping[str, Tensor],
    ensemble: Ensemble | None,
    outcomes: Outcomes | None,
    metrics: dict[str, dict[str, float]],
    dev: SparsePredictions,
    index: LabelIndex | None = None,
) -> None:
    """Export the model, replacing an earlier one of the run; without a head if the ensemble has none.

    A model with LoRA adapters brings no answers to check it by.

    Args:
        worker: worker of the first rank.
        trained: whole trained tensors, by the classifier's names.
        ensemble: scorers and their fusion; None if only the head scores.
        outcomes: outcomes of dev, on which the decision is tuned; None for single-label tasks.
        metrics: metrics by split, for the model card.
        dev: predictions for dev, for the profile.
        index: index of the labels, with its recall.
    """
    config, classifier = worker.config, worker.classifier
    model = replace(config.model, init_from=None)
    if worker.initial_model is not None:
        trained = worker.initial_model.encoder_tensors(classifier) | dict(trained)
    if ensemble is not None and not ensemble.has_head and model.head.scores:
        none = NoHeadConfig()
        model = replace(model, head=none)
        head = none.build(classifier.encoder.width, classifier.labels)
        classifier = Classifier(classifier.encoder, head, classifier.labels)
    info = ModelInfo(
        name=config.name,
        model=model,
        vocab_size=len(worker.tokenizer),
        max_length=config.data.max_length,
        task=config.data.task,
        corpus=worker.corpus.fingerprint,
        columns=document_columns(config.data.source),
        fields=worker.corpus.vocabulary().fields,
        categories=worker.corpus.vocabulary().categories,
        label_file=label_file(config.data.source),
        vocabulary=worker.corpus.manifest.vocabulary,
        weights=model.encoder.weights,
        dev=metrics.get("dev", {}),
    )
    labels, decision = worker.corpus.labels, BEST
    if outcomes is not None:
        decision = outcomes.tuned(config.evaluate.decision, labels.train_counts)
    own = profile(worker, decision, ensemble, dev)
    parts = ModelParts(
        info,
        classifier,
        worker.tokenizer,
        labels,
        decision,
        outcomes,
        ensemble,
        profile=own,
    )
    backbone = config.model.encoder.backbone
    # A large backbone would be loaded again to answer, while other ranks wait.
    finish = write_answers if backbone is None or backbone.lora is None else None
    export_model(worker.paths.model, parts, trained, metrics, index, finish)
