"""The stages that need the model, as every training worker runs them.

Each reads what earlier ones wrote and writes its own result, so that each can die and resume by itself:
plant → the planted head; finetune → the best weights; evaluate → predictions, metrics, the exported model.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from xmtc.config.schema import RunConfig
from xmtc.data.corpus import Split
from xmtc.data.sampler import MicroBatch
from xmtc.distributed.collectives import all_gather_object, all_reduce_sum_floats, barrier
from xmtc.distributed.strategy import ParameterGroup
from xmtc.evaluate.calibration import calibrated, fit_calibration, note_uncalibrated
from xmtc.evaluate.evaluation import evaluate as measure
from xmtc.evaluate.histogram import ScoreHistogram
from xmtc.evaluate.predictions import SparsePredictions, shape_of
from xmtc.evaluate.store import write_evaluation
from xmtc.evaluate.thresholds import Thresholds, tune_threshold
from xmtc.mig.ranking import TokenRanking
from xmtc.models.export import ModelInfo, export_model
from xmtc.models.label_text import label_tables, may_name, name_unseen_labels
from xmtc.models.lexical import Lexical
from xmtc.orchestrate.copies import fetch_corpus, fetch_run, publish_run
from xmtc.orchestrate.overlap import write_overlap
from xmtc.orchestrate.paths import RunPaths
from xmtc.orchestrate.worker import Worker
from xmtc.score.scorer import Scoring, score_split
from xmtc.score.shortlist import Shortlist
from xmtc.track.console import print_line
from xmtc.train.best import read_weights, write_weights
from xmtc.train.checkpoint import together
from xmtc.train.finetune import AttentionDrift, FinetuneObjective
from xmtc.train.loop import Phase
from xmtc.train.plant import PlantObjective
from xmtc.train.prototypes import plant_classifier
from xmtc.train.sharded_head import ShardedScores
from xmtc.train.unfreeze import PhaseConfig, parameter_groups, with_row_optimizer

RECALL_DOCUMENTS, RECALL_TOKENS = 200, 2048  # few at a time: these get every logit
MOST_LABELS_WITH_AUC = 200_000  # 8 · 512 bytes a label: 0.8 GB of score counts


def run_stage(stage: str, config: RunConfig, paths: RunPaths) -> None:
    """Run one stage on this rank; where run or corpus are at a URI, on this node's copies."""
    together(lambda: fetch_run(paths))
    together(lambda: fetch_corpus(paths))
    worker = Worker(config, paths)
    if worker.is_first and worker.found_vectors and stage == ("plant" if config.plant.enabled else "finetune"):
        print_line(f"word vectors: found for {worker.found_vectors:,} of {len(worker.tokenizer):,} tokens")
    with denormals_as_zero():
        {"plant": plant, "finetune": finetune, "evaluate": evaluate}[stage](worker)
    together(lambda: publish_run(paths), here=worker.is_first)


@contextmanager
def denormals_as_zero() -> Iterator[None]:
    """Compute with zeros for denormal numbers, on a CPU and in this thread.

    Gradients that vanish through a recurrent encoder become denormal, which a CPU computes 4 times as slowly.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def plant(worker: Worker) -> None:
    """Stage 1: the label attention learns to rank tokens; then the classifier rows start from what it sees."""
    settings, classifier = worker.config.plant, worker.classifier
    cached = settings.cache_hidden
    collate = worker.collator(worker.train, cached=cached)
    collate_dev = worker.collator(worker.dev, cached=cached)
    dev = worker.batches(worker.dev, settings.tokens_per_micro_batch, settings.dev_documents)
    ranking = TokenRanking.load(worker.paths.ranking)

    def evaluate() -> dict[str, float]:
        sums = [objective.ndcg(collate_dev(batch).to(worker.strategy.device)) for batch in dev]
        total, count = all_reduce_sum_floats(np.sum(sums, axis=0).tolist())
        return {objective.metric: total / max(count, 1.0)}

    objective = PlantObjective(classifier, ranking, settings, len(worker.tokenizer), evaluate)
    attention = list(classifier.label_attention.attention_parameters())
    optimizer = settings.optimizer

    def groups() -> list[ParameterGroup]:
        trained = {"head.attention": attention}
        return parameter_groups(
            trained, PhaseConfig(epochs=settings.epochs), optimizer.learning_rate, optimizer.weight_decay
        )

    worker.train_stage("plant", objective, [Phase(settings.epochs, groups, collate)], settings, objective.metric)
    if settings.prototypes:
        batches = worker.batches(worker.train, settings.tokens_per_micro_batch)
        with worker.progress.task("plant: classifier rows", total=len(batches), unit="batches") as task:
            for_device = (collate(batch).to(worker.strategy.device) for batch in batches)
            plant_classifier(classifier, for_device, worker.log_odds(), progress=task.advance)
    write_weights(worker.paths.planted, classifier.head.state_dict(), here=worker.is_first)


def finetune(worker: Worker) -> None:
    """Stage 2: classifier, attention and backbone, phase by phase."""
    settings, classifier = worker.config.finetune, worker.classifier
    if worker.config.plant.enabled:
        classifier.head.load_state_dict(read_weights(worker.paths.planted))
    worker.shard_labels()
    drift = _drift(worker)

    def evaluate() -> dict[str, float]:
        cached = settings.cache_hidden and not classifier.encoder_trainable
        worker.refresh_labels()
        metrics = _measure(worker, worker.dev, cached=cached, documents=settings.dev_documents)
        return metrics | ({"attention_drift": drift()} if drift else {})

    def phase(config: PhaseConfig) -> Phase:
        optimizer = settings.optimizer
        cached = settings.cache_hidden and config.encoder_layers == 0
        return Phase(
            config.epochs,
            lambda: with_row_optimizer(
                parameter_groups(
                    classifier.parameter_groups(), config, optimizer.learning_rate, optimizer.weight_decay
                ),
                classifier.head.label_tables(),
                settings.label_optimizer,
            ),
            worker.collator(worker.train, cached=cached),
        )

    objective = FinetuneObjective(classifier, settings, evaluate, worker.sharded, worker.texts)
    worker.train_stage("finetune", objective, [phase(p) for p in settings.phases], settings, settings.metric)


def evaluate(worker: Worker) -> None:
    """Score dev and test with the best weights, tune thresholds on dev, write metrics and the exported model."""
    trained = load_best(worker)
    worker.refresh_labels()
    if worker.config.model.lexical is not None:
        worker.classifier.lexical = Lexical.load(worker.paths.lexical)
    if worker.config.model.label_text or (worker.texts and may_name(worker.corpus.labels)):
        name_unseen_labels(worker.classifier, worker.corpus.labels, worker.embed)
        trained |= {f"head.{name}": table.detach() for name, table in label_tables(worker.classifier).items()}
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
            thresholds = _thresholds(worker, predictions, gold)
        evaluation = measure(
            predictions,
            gold,
            worker.corpus.labels,
            len(worker.train),
            config=worker.config.evaluate,
            thresholds=thresholds,
            doc_ids=split.doc_ids(),
            lengths=split.lengths,
            histogram=histogram,
        )
        note_uncalibrated(evaluation, predictions, gold, worker.classifier.calibration)
        evaluation.metrics.update(_shortlist_recall(worker, split))
        metrics[name] = _numbers(evaluation.metrics)
        if worker.is_first:
            folder = worker.paths.evaluation(name)
            write_evaluation(
                folder,
                evaluation,
                predictions=predictions,
                doc_ids=split.doc_ids(),
                labels=worker.corpus.labels.labels,
            )
    if worker.has_attention:
        write_overlap(worker)
    if worker.is_first:
        _export(worker, trained, thresholds, metrics)
    barrier()


def _drift(worker: Worker) -> AttentionDrift | None:
    """Watches how far stage 2 moves the attention, on 16 dev documents."""
    if not worker.has_attention:
        return None
    collate = worker.collator(worker.dev)
    rows = np.random.default_rng(worker.config.seed).permutation(len(worker.dev))[:16]
    batch = collate(MicroBatch(np.sort(rows), np.ones(len(rows), np.float32)))
    return AttentionDrift(worker.classifier, batch.to(worker.strategy.device), worker.sharded)


def _measure(worker: Worker, split: Split, *, cached: bool, documents: int | None) -> dict[str, float]:
    """Metrics of the classifier as it is, without intervals, on a sample of a split."""
    rows, predictions = score(worker, split, top_k=worker.config.evaluate.top_k, cached=cached, documents=documents)
    gold = split.label_matrix()[rows]
    evaluation = measure(
        predictions,
        gold,
        worker.corpus.labels,
        len(worker.train),
        config=replace(worker.config.evaluate, resamples=0),
        thresholds=_thresholds(worker, predictions, gold),
    )
    return _numbers(evaluation.metrics)


def score(
    worker: Worker,
    split: Split,
    *,
    top_k: int,
    cached: bool = False,
    documents: int | None = None,
    histogram: ScoreHistogram | None = None,
) -> tuple[NDArray[np.int64], SparsePredictions]:
    """Rows scored, ascending, and their predictions, on every rank; ranks share the work."""
    tokens = worker.config.finetune.tokens_per_micro_batch
    sharded = worker.sharded
    chosen = _shortlist(worker) if sharded is None else ShardedScores(worker.classifier, sharded, top_k)
    collate = worker.collator(split, cached=cached)
    batches = worker.batches(split, tokens, documents)
    parts = [batch.documents for batch in batches]
    with worker.progress.task(f"score {split.name}", total=sum(map(len, parts))) as task:
        ids_NK, scores_NK = score_split(
            worker.classifier,
            split,
            collate,
            len(worker.corpus.labels),
            Scoring(top_k, tokens, worker.config.data.task, worker.config.distributed.precision == "bf16"),
            batches=parts,
            progress=task.advance,
            on_logits=None if histogram is None else counter(histogram, batches, split.label_matrix()),
            shortlist=chosen,
        )
    if histogram is not None:
        histogram.sum_over_ranks()
    for other_ids, other_scores in all_gather_object((ids_NK, scores_NK)):
        found = other_ids[:, 0] >= 0
        ids_NK[found], scores_NK[found] = other_ids[found], other_scores[found]
    rows = np.flatnonzero(ids_NK[:, 0] >= 0)
    return rows, SparsePredictions(ids_NK[rows], scores_NK[rows])


def counter(
    histogram: ScoreHistogram, batches: Sequence[MicroBatch], gold: sparse.csr_array
) -> Callable[[NDArray[np.int64], Tensor], None]:
    """Counts the logits of this rank's documents; not those of fillers, which another rank counts."""
    own_N = np.zeros(shape_of(gold)[0], np.bool_)
    for batch in batches:
        own_N[batch.documents[batch.weights > 0]] = True

    def count(rows_B: NDArray[np.int64], logits_BL: Tensor) -> None:
        own_B = own_N[rows_B]
        histogram.update(logits_BL[torch.from_numpy(own_B).to(logits_BL.device)], gold[rows_B[own_B]])

    return count


def _calibrate(worker: Worker, predictions: SparsePredictions, gold: sparse.csr_array) -> None:
    """From now on the classifier's logits are calibrated, where the configuration wants it."""
    config = worker.config
    if config.evaluate.calibration and config.data.task == "multi_label":
        counts_L = worker.corpus.labels.train_counts
        worker.classifier.calibration = fit_calibration(predictions, gold, counts_L, config.evaluate.bins)


def _thresholds(worker: Worker, predictions: SparsePredictions, gold: sparse.csr_array) -> Thresholds | None:
    config = worker.config.evaluate
    if worker.config.data.task == "single_label":
        return None
    return tune_threshold(
        predictions, gold, per_label=config.per_label_thresholds, min_support=config.per_label_min_support
    )


def _histogram(worker: Worker) -> ScoreHistogram | None:
    """Counts of all scores for the areas under the curve, where all are computed and their tables stay small."""
    labels = len(worker.corpus.labels)
    if labels > MOST_LABELS_WITH_AUC or worker.config.evaluate.shortlist is not None:
        return None
    return ScoreHistogram(labels, device=worker.strategy.device)


def _shortlist(worker: Worker) -> Shortlist | None:
    """An index of the labels as they are now, where not all of them are to be scored."""
    size = worker.config.evaluate.shortlist
    return None if size is None else Shortlist(worker.classifier, size)


def _shortlist_recall(worker: Worker, split: Split) -> dict[str, float]:
    """What the shortlist keeps of the best five labels, on a sample of the split; empty where all labels are scored."""
    shortlist = _shortlist(worker)
    if shortlist is None:
        return {}
    collate, device = worker.collator(split), worker.strategy.device
    sample = worker.batches(split, RECALL_TOKENS, RECALL_DOCUMENTS)
    documents = sum(float(batch.weights.sum()) for batch in sample)
    worker.classifier.eval()
    recall = shortlist.recall((collate(batch).to(device) for batch in sample), 5)
    total, count = all_reduce_sum_floats([recall * documents, documents])
    return {"shortlist_recall@5": total / count}


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The plain metrics among those of `metrics.json`."""
    return {k: float(v) for k, v in metrics.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def load_best(worker: Worker) -> dict[str, Tensor]:
    """Put the weights of the best epoch into the classifier; returns them by the classifier's names."""
    prefix = "classifier."
    path = worker.paths.checkpoints_of("finetune") / "best.safetensors"
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
    export_model(
        worker.paths.model,
        worker.classifier,
        trained,
        info,
        labels=worker.corpus.labels,
        tokenizer=worker.tokenizer,
        threshold=thresholds.global_ if thresholds else 0.5,
        thresholds_L=thresholds.per_label if thresholds else None,
        metrics=metrics,
    )
