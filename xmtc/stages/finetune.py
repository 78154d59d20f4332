"""Stage 2: classifier, attention and backbone, phase by phase."""

import numpy as np
import torch

from xmtc.data.corpus import Split
from xmtc.data.sampler import MicroBatch
from xmtc.distributed.collectives import all_gather_object
from xmtc.distributed.memory import freed_memory_returned
from xmtc.models.heads.base import ReadsPooled
from xmtc.run.directory import Stage
from xmtc.stages.scoring import numeric_metrics, quick_metrics, score
from xmtc.stages.worker import Worker
from xmtc.training.config import PhaseConfig
from xmtc.training.finetune import AttentionDrift, FinetuneObjective
from xmtc.training.stage import Phase
from xmtc.training.unfreeze import parameter_groups, with_row_optimizer
from xmtc.training.weights import load_into

_INIT_DOCUMENTS = 512  # enough for means and variances


def finetune(worker: Worker) -> None:
    """Run stage 2: train classifier, attention and backbone, phase by phase."""
    settings, classifier = worker.config.finetune, worker.classifier
    if worker.config.plants:
        load_into(classifier.head, worker.paths.planted)
    if worker.initial_model is None and worker.config.model.head.reads_fixed:
        _init_from_documents(worker)
    drift = _attention_drift(worker)

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
                list(classifier.head.label_tables().values()),
                settings.label_optimizer,
            ),
            worker.collator(worker.train, cached=cached),
        )

    objective = FinetuneObjective(classifier, settings, evaluate, worker.shard, worker.texts)
    worker.train_stage(Stage.FINETUNE, objective, [phase(p) for p in settings.phases], settings, settings.metric)


def _init_from_documents(worker: Worker) -> None:
    """Initialise the head from a sample of training documents, the same on every rank. Collective."""
    classifier, settings = worker.classifier, worker.config.finetune
    head = classifier.head
    assert isinstance(head, ReadsPooled)
    collate = worker.collator(worker.train, cached=settings.cache_hidden and not worker.config.trains_encoder)
    batches = worker.batches(worker.train, settings.tokens_per_micro_batch, _INIT_DOCUMENTS)
    classifier.eval()
    with torch.inference_mode():
        fixed = [classifier.pool(collate(batch).to(worker.strategy.device)).float().cpu() for batch in batches]
    fixed_NKD = np.concatenate(all_gather_object(torch.cat(fixed).numpy()))
    head.init_from_documents(torch.from_numpy(fixed_NKD).to(worker.strategy.device))


def _attention_drift(worker: Worker) -> AttentionDrift | None:
    """Make the measure of how far stage 2 moves the attention, on 16 dev documents."""
    if not worker.config.model.head.attends_by_label:
        return None
    cached = worker.config.finetune.cache_hidden and not worker.config.trains_encoder
    collate = worker.collator(worker.dev, cached=cached)
    rows = np.random.default_rng(worker.config.seed).permutation(len(worker.dev))[:16]
    batch = collate(MicroBatch(np.sort(rows), np.ones(len(rows), np.float32)))
    return AttentionDrift(worker.classifier, batch.to(worker.strategy.device), worker.shard)


def _measure(worker: Worker, split: Split, *, cached: bool, documents: int | None) -> dict[str, float]:
    """Compute metrics of the current classifier, without intervals, on a sample of a split."""
    rows, predictions = score(worker, split, top_k=worker.config.evaluate.top_k, cached=cached, documents=documents)
    with freed_memory_returned(kept_again=worker.strategy.keeps_freed_memory):
        return numeric_metrics(quick_metrics(worker, predictions, split.label_matrix()[rows]))
