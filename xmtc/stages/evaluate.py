"""The last stage: score dev and test with the best weights, tune thresholds, write metrics, export the model."""

from collections.abc import Mapping
from dataclasses import replace

from scipy import sparse
from torch import Tensor

from xmtc.data.corpus import Split
from xmtc.distributed.collectives import all_reduce_sum_floats, barrier
from xmtc.evaluate.calibration import calibrated, fit_calibration, note_uncalibrated
from xmtc.evaluate.evaluation import EvaluatedDocuments
from xmtc.evaluate.evaluation import evaluate as measure
from xmtc.evaluate.histogram import ScoreHistogram
from xmtc.evaluate.predictions import SparsePredictions
from xmtc.evaluate.store import write_evaluation
from xmtc.evaluate.thresholds import Thresholds
from xmtc.models.export import ModelParts, export_model
from xmtc.models.info import ModelInfo
from xmtc.models.label_text import may_name, name_unseen_labels
from xmtc.models.lexical import Lexical
from xmtc.run.stage import Stage
from xmtc.stages.overlap import write_overlap
from xmtc.stages.scoring import numbers_of, score, shortlist_of, thresholds_of
from xmtc.stages.worker import Worker
from xmtc.train.weights import read_weights

RECALL_DOCUMENTS, RECALL_TOKENS = 200, 2048  # few at a time: these get every logit
MOST_LABELS_WITH_AUC = 200_000  # 8 · 512 bytes a label: 0.8 GB of score counts


def evaluate(worker: Worker) -> None:
    """Score dev and test with the best weights, tune thresholds on dev, write metrics and the exported model."""
    trained = load_best(worker)
    worker.refresh_labels()
    if worker.config.model.lexical is not None:
        worker.classifier.lexical = Lexical.load(worker.paths.lexical)
    if worker.config.model.label_text or (worker.texts and may_name(worker.corpus.labels)):
        name_unseen_labels(worker.classifier, worker.corpus.labels, worker.embed)
        trained |= {f"head.{name}": table.detach() for name, table in worker.classifier.head.label_tables().items()}
    thresholds, metrics = None, {}
    for name in (s for s in ("dev", "test") if s in worker.corpus.splits):
        split = worker.corpus.split(name)
        histogram = _histogram(worker)
        cached = name == "dev" and not worker.encoder_trains()  # fine-tuning has read dev from the cache already
        top_k = worker.config.evaluate.top_k
        _, predictions = score(worker, split, top_k=top_k, cached=cached, histogram=histogram)
        gold = split.label_matrix()
        if name == "dev":
            _calibrate(worker, predictions, gold)
            predictions = calibrated(predictions, worker.classifier.calibration)
            thresholds = thresholds_of(worker, predictions, gold)
        evaluation = measure(
            predictions,
            gold,
            worker.corpus.labels,
            len(worker.train),
            config=worker.config.evaluate,
            thresholds=thresholds,
            documents=EvaluatedDocuments(split.doc_ids(), split.lengths),
            histogram=histogram,
        )
        note_uncalibrated(evaluation, predictions, gold, worker.classifier.calibration)
        evaluation.metrics.update(_shortlist_recall(worker, split))
        metrics[name] = numbers_of(evaluation.metrics)
        if worker.is_first:
            folder = worker.paths.evaluation(name)
            write_evaluation(
                folder,
                evaluation,
                predictions=predictions,
                doc_ids=split.doc_ids(),
                labels=worker.corpus.labels.labels,
            )
    if worker.config.model.head.attends_by_label:
        write_overlap(worker)
    if worker.is_first:
        _export(worker, trained, thresholds, metrics)
    barrier()


def _calibrate(worker: Worker, predictions: SparsePredictions, gold: sparse.csr_array) -> None:
    """From now on the classifier's logits are calibrated, where the configuration wants it."""
    config = worker.config
    if config.evaluate.calibration and config.data.task == "multi_label":
        counts_L = worker.corpus.labels.train_counts
        worker.classifier.calibration = fit_calibration(predictions, gold, counts_L, config.evaluate.bins)


def _histogram(worker: Worker) -> ScoreHistogram | None:
    """Counts of all scores for the areas under the curve, where all are computed and their tables stay small."""
    labels = len(worker.corpus.labels)
    if labels > MOST_LABELS_WITH_AUC or worker.config.evaluate.shortlist is not None:
        return None
    return ScoreHistogram(labels, device=worker.strategy.device)


def _shortlist_recall(worker: Worker, split: Split) -> dict[str, float]:
    """What the shortlist keeps of the best five labels, on a sample of the split; empty where all labels are scored."""
    shortlist = shortlist_of(worker)
    if shortlist is None:
        return {}
    collate, device = worker.collator(split), worker.strategy.device
    sample = worker.batches(split, RECALL_TOKENS, RECALL_DOCUMENTS)
    documents = sum(float(batch.weights.sum()) for batch in sample)
    worker.classifier.eval()
    recall = shortlist.recall((collate(batch).to(device) for batch in sample), 5)
    total, count = all_reduce_sum_floats([recall * documents, documents])
    return {"shortlist_recall@5": total / count}


def load_best(worker: Worker) -> dict[str, Tensor]:
    """Put the weights of the best epoch into the classifier; returns them by the classifier's names."""
    prefix = "classifier."
    path = worker.paths.checkpoints_of(Stage.FINETUNE) / "best.safetensors"
    trained = {name.removeprefix(prefix): tensor for name, tensor in read_weights(path).items()}
    worker.classifier.load_state_dict(trained, strict=False)
    return trained


def _export(
    worker: Worker, trained: Mapping[str, Tensor], thresholds: Thresholds | None, metrics: dict[str, dict[str, float]]
) -> None:
    config = worker.config
    info = ModelInfo(
        name=config.name,
        model=config.model,
        vocab_size=len(worker.tokenizer),
        max_length=config.data.max_length,
        task=config.data.task,
        corpus=worker.corpus.fingerprint,
    )
    parts = ModelParts(info, worker.classifier, worker.tokenizer, worker.corpus.labels)
    if thresholds is not None:
        parts = replace(parts, threshold=thresholds.global_, thresholds_L=thresholds.per_label)
    export_model(worker.paths.model, parts, trained, metrics)
