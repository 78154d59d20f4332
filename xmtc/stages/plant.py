"""Plant the head: with epochs, its attention learns to rank tokens; with prototypes, its rows are initialised."""

import numpy as np

from xmtc.distributed.collectives import all_reduce_sum_floats
from xmtc.distributed.strategy import ParameterGroup
from xmtc.mig.ranking import TokenRanking
from xmtc.models.heads.base import AttendsByLabel
from xmtc.run.directory import Stage
from xmtc.stages.train import train
from xmtc.stages.worker import Worker
from xmtc.training.config import PhaseConfig
from xmtc.training.objective import Phase
from xmtc.training.planting import METRIC, PlantObjective
from xmtc.training.prototypes import plant_classifier
from xmtc.training.unfreeze import parameter_groups
from xmtc.training.weights import write_module

DEV_DOCUMENTS = 500  # on which nDCG is measured after each epoch


def plant(worker: Worker) -> None:
    """Train the label attention to rank tokens, and initialise the classifier rows, each if the settings ask for it."""
    settings, start = worker.config.plant, worker.initial_model
    wanted = start is None or start.new_labels > 0
    if settings.epochs and wanted:
        _rank_tokens(worker)
    if settings.prototypes and wanted:
        _plant_rows(worker)
    if start is not None:  # planting is for labels that the initial model does not know
        start.load_rows(worker.classifier.head, worker.shard.own)
    write_module(worker.paths.planted, worker.classifier.head, here=worker.is_first)


def _rank_tokens(worker: Worker) -> None:
    """Run stage 1: train the attention to rank tokens."""
    settings, head, device = worker.config.plant, worker.classifier.head, worker.strategy.device
    assert isinstance(head, AttendsByLabel)  # checked before the run
    collate_dev = worker.batches.collator(worker.dev, cached=settings.cache_hidden)
    dev = worker.batches.share(worker.dev, settings.tokens_per_micro_batch, DEV_DOCUMENTS)
    ranking = TokenRanking.load(worker.paths.ranking, worker.shard.own)

    def evaluate() -> dict[str, float]:
        sums = [objective.ndcg(collate_dev(batch).to(device)) for batch in dev]
        total, count = all_reduce_sum_floats(np.sum(sums, axis=0).tolist())
        return {METRIC: total / max(count, 1.0)}

    objective = PlantObjective(worker.classifier, ranking, settings, len(worker.tokenizer), evaluate, worker.shard)
    attention = list(head.attention_parameters())
    tables = {id(table) for table in head.label_tables().values()}
    queries = [parameter for parameter in attention if id(parameter) in tables]
    if worker.initial_model is not None:
        attention = queries  # tensors that all labels share keep the values learnt for known labels

    def groups() -> list[ParameterGroup]:
        return parameter_groups({"head.attention": attention}, PhaseConfig(epochs=settings.epochs), settings, queries)

    collate = worker.batches.collator(worker.train, cached=settings.cache_hidden)
    train(worker, Stage.PLANT, objective, [Phase(settings.epochs, groups, collate)], settings, METRIC)


def _plant_rows(worker: Worker) -> None:
    """Initialise the classifier rows in one pass over the training documents."""
    settings = worker.config.plant
    tokens, cached = settings.tokens_per_micro_batch, settings.cache_hidden
    read = worker.batches.read(worker.train, tokens, cached=cached, title="plant: classifier rows")
    plant_classifier(worker.classifier, (batch for _, batch in read), worker.log_odds(), worker.shard)
