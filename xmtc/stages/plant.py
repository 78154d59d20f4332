"""Plant the head: in closed form from one or two passes through train, or by the epochs of stage 1."""

import time
from collections.abc import Iterator, Set
from itertools import chain, combinations

import numpy as np
import torch
from safetensors.torch import load_model

from xmtc.data.collate import Batch
from xmtc.distributed.collectives import all_gather_object, all_reduce_sum_floats, broadcast_object
from xmtc.distributed.state_files import save_tensors
from xmtc.distributed.strategy import ParameterGroup
from xmtc.models.heads.base import AttendsByLabel, PlantsProjections, ReadsPooled
from xmtc.models.heads.config import PlantedPart
from xmtc.planting.mig.ranking import TokenRanking
from xmtc.planting.projections import PlantSums, plant_attention, plant_centre, plant_values
from xmtc.planting.prototypes import plant_prototypes
from xmtc.planting.ranking_objective import METRIC, PlantObjective
from xmtc.planting.ridge_rows import plant_ridge_rows
from xmtc.planting.sums import ReadFor, Sums
from xmtc.run.directory import Stage
from xmtc.run.state import check_unchanged
from xmtc.stages.head_scores import score
from xmtc.stages.measuring import quick_metrics
from xmtc.stages.train import train
from xmtc.stages.worker import Worker
from xmtc.track.console import print_line
from xmtc.training.checkpoint import CheckpointStore
from xmtc.training.config import PhaseConfig
from xmtc.training.objective import Phase
from xmtc.training.unfreeze import parameter_groups
from xmtc.training.weights import write_module

DEV_DOCUMENTS = 500  # on which a planted head is measured
_INIT_DOCUMENTS = 512  # enough for means and variances
_PASSES = ("projections", "rows")  # folders of their sums


def plant(worker: Worker) -> None:
    """Plant the parts of the head that the settings ask for; with an initial model, only for labels new to it."""
    config, start = worker.config, worker.initial_model
    if start is None:
        init_from_documents(worker)
    if start is None or start.new_labels > 0:
        projections = config.planted_projections - (set() if start is None else {"values"})
        if projections:
            sums = _sum_projections(worker)
            if start is None and config.chooses_projections:
                projections = _best_projections(worker, sums, projections)
            _plant_projections(worker, sums, projections)
        if "attention" in projections:
            ndcg = token_ndcg(worker)
            if worker.is_first:
                print_line(f"plant: the attention ranks the tokens of dev with {METRIC} {ndcg:.3f}")
        if config.plant.trained_epochs:
            _rank_tokens(worker)
        if "rows" in config.planted:
            _plant_rows(worker, _read(worker, _PASSES[1], "plant: classifier rows"))
    if start is not None:
        start.load_rows(worker.classifier.head, worker.shard.own)
    write_module(worker.paths.planted, worker.classifier.head, here=worker.is_first)
    for name in _PASSES:
        _saved_sums(worker, name).clear()


def init_from_documents(worker: Worker) -> None:
    """Initialise a head that reads poolings from a sample of training documents, the same on every rank. Collective."""
    classifier, head = worker.classifier.eval(), worker.classifier.head
    if not isinstance(head, ReadsPooled):
        return
    tokens, cached = worker.config.finetune.tokens_per_micro_batch, not worker.config.trains_encoder
    with torch.inference_mode():
        read = worker.batches.read(worker.train, tokens, _INIT_DOCUMENTS, cached=cached)
        fixed = [classifier.pool(batch).float().cpu() for _, batch in read]
    fixed_NKD = np.concatenate(all_gather_object(torch.cat(fixed).numpy()))
    head.init_from_documents(torch.from_numpy(fixed_NKD).to(worker.strategy.device))


def _sum_projections(worker: Worker) -> PlantSums:
    """Collect what attention and values are planted from, in one pass over the training documents. Collective."""
    classifier, shard = worker.classifier.eval(), worker.shard
    sums = PlantSums(shard.rows, len(worker.tokenizer), classifier.encoder.width, worker.strategy.device)
    with torch.no_grad():
        for batch in _read(worker, _PASSES[0], "plant: attention and values")(sums):
            sums.add(classifier.encode(batch), batch, shard)
    sums.all_reduce(labels=shard.world == 1)
    return sums


def _plant_projections(worker: Worker, sums: PlantSums, projections: Set[PlantedPart]) -> None:
    """Plant attention and values in closed form. Collective."""
    head, shard, seed, new = worker.classifier.head, worker.shard, worker.config.seed, worker.initial_model is None
    assert isinstance(head, PlantsProjections)  # its settings say so
    if new and projections:
        plant_centre(head, sums)
    if "values" in projections:
        plant_values(head, sums, shard, seed)
    if "attention" in projections:
        plant_attention(head, sums, _ranking(worker), shard, seed, keys=new)


def _best_projections(worker: Worker, sums: PlantSums, projections: Set[PlantedPart]) -> Set[PlantedPart]:
    """Choose the projections with which the planted head, before it trains, has the best macro-F1 on dev. Collective.

    The head is planted with each subset and its rows, and left as it was (docs/benchmarks/planting.md).
    """
    head, settings, found = worker.classifier.head, worker.config.plant, dict[str, float]()
    tokens, documents, cached = settings.tokens_per_micro_batch, settings.choose_documents, settings.cache_hidden
    untrained = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    subsets = chain.from_iterable(combinations(sorted(projections), n) for n in range(len(projections), -1, -1))
    named = {" and ".join(subset) or "neither": frozenset(subset) for subset in subsets}
    for name, subset in named.items():
        _plant_projections(worker, sums, subset)
        read = worker.batches.read(worker.train, tokens, documents, cached=cached, title=f"plant: try {name}")
        _plant_rows(worker, lambda _, read=read: (batch for _, batch in read))
        found[name] = _dev_macro_f1(worker)
        head.load_state_dict(untrained)
    best = max(found, key=lambda name: found[name])
    if worker.is_first:
        figures = ", ".join(f"{name} {100 * macro_f1:.1f}" for name, macro_f1 in found.items())
        print_line(f"plant: {best}, by macro-F1 of dev before training: {figures}")
    return named[best]


def _dev_macro_f1(worker: Worker) -> float:
    """Measure the head as it is on some dev documents. Collective."""
    worker.refresh_labels()
    rows, predictions = score(worker, worker.dev, cached=worker.config.plant.cache_hidden, documents=DEV_DOCUMENTS)
    return float(quick_metrics(worker, predictions, worker.dev.label_matrix()[rows])["macro_f1"])


def token_ndcg(worker: Worker) -> float:
    """Measure how well the attention ranks the tokens of some dev documents, nDCG@10. Collective."""
    return _stage_1(worker).evaluate()[METRIC]


def _stage_1(worker: Worker) -> PlantObjective:
    """Make what stage 1 trains; its dev metric is the nDCG of the attention's ranking."""
    settings, ranking = worker.config.plant, _ranking(worker)
    tokens, cached = settings.tokens_per_micro_batch, settings.cache_hidden

    def evaluate() -> dict[str, float]:
        read = worker.batches.read(worker.dev, tokens, DEV_DOCUMENTS, cached=cached)
        total, count = all_reduce_sum_floats(np.sum([objective.ndcg(batch) for _, batch in read], axis=0).tolist())
        return {METRIC: total / max(count, 1.0)}

    objective = PlantObjective(worker.classifier, ranking, settings, len(worker.tokenizer), evaluate, worker.shard)
    return objective


def _ranking(worker: Worker) -> TokenRanking:
    """Load the ranking of the tokens of this rank's labels.

    Raises:
        DataError: `xmtc mig` has replaced it by one of other settings.
    """
    found = TokenRanking.load(worker.paths.ranking, worker.shard.own)
    check_unchanged(worker.paths.root, "token ranking", worker.paths.ranking, found.fingerprint)
    return found


def _rank_tokens(worker: Worker) -> None:
    """Run stage 1: train the attention to rank tokens."""
    settings, head = worker.config.plant, worker.classifier.head
    assert isinstance(head, AttendsByLabel)  # checked before the run
    objective = _stage_1(worker)
    attention = list(head.attention_parameters())
    tables = {id(table) for table in head.label_tables().values()}
    queries = [parameter for parameter in attention if id(parameter) in tables]
    if worker.initial_model is not None:
        attention = queries  # tensors that all labels share keep the values learnt for known labels

    def groups() -> list[ParameterGroup]:
        epochs = PhaseConfig(epochs=settings.trained_epochs)
        return parameter_groups({"head.attention": attention}, epochs, settings, queries)

    collate = worker.batches.collator(worker.train, cached=settings.cache_hidden)
    train(worker, Stage.PLANT, objective, [Phase(settings.trained_epochs, groups, collate)], settings, METRIC)


def _plant_rows(worker: Worker, read: ReadFor) -> None:
    """Plant the classifier rows in one pass over the training documents. Collective."""
    classifier = worker.classifier
    by_label = isinstance(classifier.head, AttendsByLabel)
    plant_rows = plant_prototypes if by_label else plant_ridge_rows
    plant_rows(classifier, read, worker.log_odds(), worker.shard)


def _saved_sums(worker: Worker, name: str) -> CheckpointStore:
    return CheckpointStore(worker.paths.root / "plant" / name, 1, worker.paths.mirror)


def _read(worker: Worker, name: str, title: str) -> ReadFor:
    """Read this rank's share of a pass over the training documents, from where an interrupted run saved the sums."""
    settings, minutes = worker.config.plant, worker.config.track.checkpoint_every_minutes
    own = f"{worker.strategy.rank}.safetensors"
    state = {"inputs": worker.inputs(Stage.PLANT)}

    def read(sums: Sums) -> Iterator[Batch]:
        store, done = _saved_sums(worker, name), 0
        found = store.latest()
        if found is not None and (found.state, found.world_size) == (state, worker.strategy.world_size):
            load_model(sums, found.path / own)
            done = found.step
        saved = time.monotonic()
        tokens, cached = settings.tokens_per_micro_batch, settings.cache_hidden
        batches = worker.batches.read(worker.train, tokens, cached=cached, title=title, skip=done)
        for number, (_, batch) in enumerate(batches, done + 1):
            yield batch
            if broadcast_object((time.monotonic() - saved) / 60 >= minutes):
                store.save(number, state, lambda folder: save_tensors(sums.state_dict(), folder / own))
                saved = time.monotonic()

    return read
