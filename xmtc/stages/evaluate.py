"""The last stage: score dev and test with the best weights, tune thresholds, write metrics, export the model."""

from xmtc.data.corpus import Split
from xmtc.distributed.collectives import all_reduce_sum_floats, barrier
from xmtc.evaluate.store import write_evaluation
from xmtc.models.label_text import may_name, name_unseen_labels
from xmtc.stages.exporting import export
from xmtc.stages.measuring import measure_split
from xmtc.stages.overlap import write_overlap
from xmtc.stages.predicting import FusedSplits, HeadSplits
from xmtc.stages.scoring import numbers_of, shortlist_of
from xmtc.stages.weights import load_best
from xmtc.stages.worker import Worker

RECALL_DOCUMENTS, RECALL_TOKENS = 200, 2048  # few at a time: these get every logit


def evaluate(worker: Worker) -> None:
    """Score dev and test with the best weights, tune thresholds on dev, write metrics and the exported model."""
    trained = load_best(worker) if worker.config.model.head.scores else {}
    worker.refresh_labels()
    if worker.config.model.label_text or (worker.texts and may_name(worker.corpus.labels)):
        name_unseen_labels(worker.classifier, worker.corpus.labels, worker.embed)
        trained |= {f"head.{name}": table.detach() for name, table in worker.classifier.head.label_tables().items()}
    scored = FusedSplits(worker) if worker.config.model.scorers else HeadSplits(worker)
    thresholds, metrics = None, {}
    for name in (s for s in ("dev", "test") if s in worker.corpus.splits):
        split = worker.corpus.split(name)
        predictions, histogram = scored.predict(split)
        evaluation, thresholds = measure_split(worker, split, predictions, thresholds, histogram)
        scored.note(split, evaluation, predictions)
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
        export(worker, trained, scored.ensemble, thresholds, metrics)
    barrier()


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
