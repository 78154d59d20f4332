"""Plant the head: with epochs, its attention learns to rank tokens; with prototypes, its rows are initialised."""

from collections.abc import Callable

import numpy as np

from xmtc.data.collate import Batch
from xmtc.data.sampler import MicroBatch
from xmtc.distributed.collectives import all_reduce_sum_floats
from xmtc.distributed.strategy import ParameterGroup
from xmtc.mig.ranking import TokenRanking
from xmtc.models.heads.base import AttendsByLabel
from xmtc.run.directory import Stage
from xmtc.stages.worker import Worker
from xmtc.training.config import PhaseConfig
from xmtc.training.plant import METRIC, PlantObjective
from xmtc.training.prototypes import plant_classifier
from xmtc.training.stage import Phase
from xmtc.training.unfreeze import parameter_groups, with_row_optimizer
from xmtc.training.weights import write_module

DEV_DOCUMENTS = 500  # on which nDCG is measured after each epoch


def plant(worker: Worker) -> None:
    """Train the label attention to rank tokens, and initialise the classifier rows, each if the settings ask for it."""
    settings, classifier = worker.config.plant, worker.classifier
    collate = worker.collator(worker.train, cached=settings.cache_hidden)
    wanted = worker.initial_model is None or worker.initial_model.new_labels > 0
    if settings.epochs and wanted:
        _rank(worker, collate)
    if settings.prototypes and wanted:
        batches = worker.batches(worker.train, settings.tokens_per_micro_batch)
        with worker.progress.task("plant: classifier rows", total=len(batches), unit="batches") as task:
            for_device = (collate(batch).to(worker.strategy.device) for batch in batches)
            plant_classifier(classifier, for_device, worker.log_odds(), worker.shard, progress=task.advance)
    if worker.initial_model is not None:  # planting is for labels that the initial model does not know
        worker.initial_model.load_rows(classifier.head, worker.shard.own)
    write_module(worker.paths.planted, classifier.head, here=worker.is_first)


def _rank(worker: Worker, collate: Callable[[MicroBatch], Batch]) -> None:
    """Run stage 1: train the attention to rank tokens."""
    settings, classifier = worker.config.plant, worker.classifier
    collate_dev = worker.collator(worker.dev, cached=settings.cache_hidden)
    dev = worker.batches(worker.dev, settings.tokens_per_micro_batch, DEV_DOCUMENTS)
    ranking = TokenRanking.load(worker.paths.ranking, worker.shard.own)

    def evaluate() -> dict[str, float]:
        sums = [objective.ndcg(collate_dev(batch).to(worker.strategy.device)) for batch in dev]
        total, count = all_reduce_sum_floats(np.sum(sums, axis=0).tolist())
        return {METRIC: total / max(count, 1.0)}

    objective = PlantObjective(classifier, ranking, settings, len(worker.tokenizer), evaluate, worker.shard)
    head = classifier.head
    assert isinstance(head, AttendsByLabel)  # checked before the run
    attention = list(head.attention_parameters())
    tables = {id(table) for table in head.label_tables().values()}
    queries = [parameter for parameter in attention if id(parameter) in tables]
    if worker.initial_model is not None:
        attention = queries  # tensors that all labels share keep the values learnt for known labels
    optimizer = settings.optimizer

    def groups() -> list[ParameterGroup]:
        trained = {"head.attention": attention}
        phase = PhaseConfig(epochs=settings.epochs)
        found = parameter_groups(trained, phase, optimizer.learning_rate, optimizer.weight_decay)
        return with_row_optimizer(found, queries, settings.label_optimizer)

    worker.train_stage(Stage.PLANT, objective, [Phase(settings.epochs, groups, collate)], settings, METRIC)
