"""The last stage: score dev and test with the best weights, tune the decision, write metrics, export the model."""

from collections.abc import Callable
from functools import cache, partial

from torch import Tensor

from xmtc.data.corpus import Split
from xmtc.distributed.collectives import all_reduce_sum_floats, run_collectively
from xmtc.distributed.memory import freed_memory_returned
from xmtc.evaluate.store import write_evaluation
from xmtc.fusion.decision import Outcomes
from xmtc.mining.index import IndexRecall, LabelIndex
from xmtc.models.label_rows import may_name, name_unseen_labels
from xmtc.predict.shortlist_scores import ShortlistScores
from xmtc.scorers.predictions import SparsePredictions
from xmtc.stages.exporting import export
from xmtc.stages.finetune import load_best
from xmtc.stages.fused_predictor import FusedPredictor, load_ensemble
from xmtc.stages.head_scores import HeadPredictor, build_index
from xmtc.stages.measuring import measure_split, numeric_metrics
from xmtc.stages.scorers import fitted_on_dev_too
from xmtc.stages.worker import Worker

RECALL_DOCUMENTS = 200
"""Documents on which the recall of shortlists is measured."""
RECALL_TOKENS = 2048
"""Tokens of a batch there: few, because every logit is computed."""
RECALL_SHORTLIST = 500
"""Labels of a shortlist whose recall is measured, unless the configuration says."""
BEST = 5
"""The best labels that a shortlist should hold."""


def evaluate(worker: Worker) -> None:
    """Score dev and test with the best weights, tune the decision on dev, write metrics and the exported model."""
    trained = load_model(worker)
    scored = predictor(worker)
    splits = [
        worker.corpus.split(name)
        for name in ("dev", "test")
        if name in worker.corpus.splits
    ]
    outcomes = None
    metrics: dict[str, dict[str, float]] = {}
    dev = None
    index_of = cache(
        _index
    )  # built once, and if possible after the metrics, which take as much memory as the index
    for split in splits:
        predictions, outcomes, metrics[split.name] = _evaluate_split(
            worker, split, scored, outcomes, index_of
        )
        if split is splits[0]:
            dev = predictions
            if isinstance(scored, FusedPredictor) and worker.config.evaluate.fit_on_dev:
                scored.ensemble = fitted_on_dev_too(worker, scored.ensemble)
    index = index_of(worker)
    if index is not None and worker.classifier.labels > 1:
        index.recall = _recall(worker, splits[0], index)
    assert dev is not None, "a corpus has dev documents"
    write = partial(
        export, worker, trained, scored.ensemble, outcomes, metrics, dev, index
    )
    run_collectively(write, here=worker.is_first)


def load_model(worker: Worker) -> dict[str, Tensor]:
    """Load the weights of the best epoch, and compute those of labels without training documents.

    Returns:
        What was trained or computed, by the classifier's names.
    """
    trained = load_best(worker) if worker.config.model.head.scores else {}
    worker.refresh_labels()
    if worker.config.model.label_text or (
        worker.texts and may_name(worker.corpus.labels)
    ):
        name_unseen_labels(worker.classifier, worker.corpus.labels, worker.embed)
        for name, table in worker.classifier.head.label_tables().items():
            trained[f"head.{name}"] = table.detach()
    return trained


def predictor(worker: Worker) -> FusedPredictor | HeadPredictor:
    """Return what predicts with the loaded model.

    Its scorers are not fused before it predicts dev.
    """
    model = worker.config.model
    if not model.scorers:
        return HeadPredictor(worker)
    ensemble = load_ensemble(worker, has_head=model.head.scores)
    return FusedPredictor(worker, ensemble, cached=not worker.encoder_use.trains)


def _evaluate_split(
    worker: Worker,
    split: Split,
    scored: FusedPredictor | HeadPredictor,
    outcomes: Outcomes | None,
    index_of: Callable[[Worker], LabelIndex | None],
) -> tuple[SparsePredictions, Outcomes | None, dict[str, float]]:
    """Score a split and write its evaluation. Return predictions, outcomes, from here if not given, and metrics."""
    predictions, histogram = scored.predict(split)
    evaluation, outcomes = measure_split(
        worker, split, predictions, outcomes, histogram
    )
    if worker.config.evaluate.shortlist is not None:
        index = index_of(worker)
        if index is not None:
            evaluation.metrics["shortlist_recall@5"] = _recall(
                worker, split, index
            ).share
    write = partial(
        write_evaluation,
        worker.paths.evaluation(split.name),
        evaluation,
        predictions=predictions,
        doc_ids=split.doc_ids(),
        labels=worker.corpus.labels.labels,
    )
    run_collectively(write, here=worker.is_first)
    return predictions, outcomes, numeric_metrics(evaluation.metrics)


def _index(worker: Worker) -> LabelIndex | None:
    """Build the index of the calibrated labels; None if the model has none."""
    config = worker.config
    if not config.model.head.scores or config.data.task != "multi_label":
        return None
    with freed_memory_returned(kept_again=worker.strategy.keeps_freed_memory):
        return build_index(worker)


def _recall(worker: Worker, split: Split, index: LabelIndex) -> IndexRecall:
    """Measure how many of the best five labels a shortlist contains, on a sample of the split. Collective."""
    size = worker.config.evaluate.shortlist or min(
        RECALL_SHORTLIST, worker.classifier.labels // 2
    )
    shortlist = ShortlistScores(worker.classifier, size, index)
    cached = (
        split.name == "dev" and not worker.encoder_use.trains
    )  # fine-tuning has cached dev already
    own_batches = worker.batches.share(split, RECALL_TOKENS, RECALL_DOCUMENTS)
    own_documents = sum(float(micro_batch.weights.sum()) for micro_batch in own_batches)
    worker.classifier.eval()
    batches = worker.batches.read(split, RECALL_TOKENS, RECALL_DOCUMENTS, cached=cached)
    with worker.strategy.autocast():
        own_recall = shortlist.recall((batch for _, batch in batches), BEST)
    total, count = all_reduce_sum_floats([own_recall * own_documents, own_documents])
    return IndexRecall(
        share=min(1.0, total / count),
        best=min(BEST, size),
        shortlist=size,
        documents=int(count),
    )
