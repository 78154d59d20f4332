"""Stage 1: the head learns where to look, and its classifier rows start from what it sees."""

import numpy as np

from xmtc.distributed.collectives import all_reduce_sum_floats
from xmtc.distributed.strategy import ParameterGroup
from xmtc.mig.ranking import TokenRanking
from xmtc.run.stage import Stage
from xmtc.stages.worker import Worker
from xmtc.train.config import PhaseConfig
from xmtc.train.plant import PlantObjective
from xmtc.train.prototypes import plant_classifier
from xmtc.train.stage import Phase
from xmtc.train.unfreeze import parameter_groups
from xmtc.train.weights import write_weights


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
    attention = list(classifier.head.attention_parameters())
    optimizer = settings.optimizer

    def groups() -> list[ParameterGroup]:
        trained = {"head.attention": attention}
        return parameter_groups(
            trained, PhaseConfig(epochs=settings.epochs), optimizer.learning_rate, optimizer.weight_decay
        )

    worker.train_stage(Stage.PLANT, objective, [Phase(settings.epochs, groups, collate)], settings, objective.metric)
    if settings.prototypes:
        batches = worker.batches(worker.train, settings.tokens_per_micro_batch)
        with worker.progress.task("plant: classifier rows", total=len(batches), unit="batches") as task:
            for_device = (collate(batch).to(worker.strategy.device) for batch in batches)
            plant_classifier(classifier, for_device, worker.log_odds(), progress=task.advance)
    write_weights(worker.paths.planted, classifier.head.state_dict(), here=worker.is_first)
