"""Stage 2: classifier, attention and backbone, phase by phase."""

from torch import Tensor, nn

from xmtc.distributed.memory import freed_memory_returned
from xmtc.distributed.strategy import ParameterGroup
from xmtc.run.directory import Stage
from xmtc.stages.head_scores import score
from xmtc.stages.measuring import numeric_metrics, quick_metrics
from xmtc.stages.plant import init_from_documents
from xmtc.stages.train import train
from xmtc.stages.worker import Worker
from xmtc.training.config import PhaseConfig
from xmtc.training.fine_tuning import FinetuneObjective
from xmtc.training.objective import Phase
from xmtc.training.unfreeze import parameter_groups
from xmtc.training.weights import load_into


def finetune(worker: Worker) -> None:
    """Run stage 2: train classifier, attention and backbone, phase by phase."""
    settings = worker.config.finetune
    classifier = worker.classifier
    if worker.planting.parts:
        load_into(classifier.head, worker.paths.planted)
    elif worker.initial_model is None:
        init_from_documents(worker)

    def evaluate() -> dict[str, float]:
        return _measure(
            worker, cached=settings.cache_hidden and not classifier.encoder_trainable
        )

    phases = [_phase(worker, phase) for phase in settings.phases]
    objective = FinetuneObjective(
        classifier, settings, evaluate, worker.shard, worker.texts
    )
    train(worker, Stage.FINETUNE, objective, phases, settings, settings.metric)


def load_best(worker: Worker) -> dict[str, Tensor]:
    """Load the weights of the best epoch into the classifier. Return what was trained, by the classifier's names."""
    objective = nn.ModuleDict(
        {"classifier": worker.classifier}
    )  # which the file's names begin with
    trained = load_into(objective, worker.paths.best_of(Stage.FINETUNE))
    return {
        name.removeprefix("classifier."): tensor for name, tensor in trained.items()
    }


def _phase(worker: Worker, phase: PhaseConfig) -> Phase:
    settings = worker.config.finetune
    classifier = worker.classifier

    def groups() -> list[ParameterGroup]:
        tables = list(classifier.head.label_tables().values())
        return parameter_groups(classifier.parameter_groups(), phase, settings, tables)

    cached = settings.cache_hidden and phase.encoder_layers == 0
    collate = worker.batches.collator(worker.train, cached=cached, crop=settings.crop)
    return Phase(phase.epochs, groups, collate, encodes=not cached)


def _measure(worker: Worker, *, cached: bool) -> dict[str, float]:
    """Compute metrics of the current classifier, without intervals, on a sample of dev."""
    worker.refresh_labels()
    documents = worker.config.finetune.dev_documents
    rows, predictions = score(worker, worker.dev, cached=cached, documents=documents)
    gold = worker.dev.label_matrix()[rows]
    with freed_memory_returned(kept_again=worker.strategy.keeps_freed_memory):
        return numeric_metrics(quick_metrics(worker, predictions, gold))
