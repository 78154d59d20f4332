"""Plant the head of a worker: its documents for `Planter`, and where an interrupted pass continues."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from safetensors.torch import load_model

from xmtc.data.collate import Batch
from xmtc.distributed.collectives import (
    all_gather_object,
    all_reduce_sum_floats,
    broadcast_object,
)
from xmtc.distributed.state_files import save_tensors
from xmtc.distributed.strategy import ParameterGroup
from xmtc.errors import Interrupted
from xmtc.models.heads.base import AttendsByLabel, ReadsPooled
from xmtc.planting.mig.ranking import TokenRanking
from xmtc.planting.planter import PASSES, Passes, Planter
from xmtc.planting.ranking_objective import METRIC, PlantObjective
from xmtc.planting.sums import ReadFor, Sums
from xmtc.run.directory import Stage
from xmtc.run.state import check_unchanged
from xmtc.stages.head_scores import score
from xmtc.stages.measuring import quick_metrics
from xmtc.stages.train import train
from xmtc.stages.worker import Worker
from xmtc.training.checkpoint import CheckpointStore
from xmtc.training.config import PhaseConfig
from xmtc.training.interruption import STOP, stop_anywhere
from xmtc.training.objective import Phase
from xmtc.training.unfreeze import parameter_groups
from xmtc.training.weights import write_module

DEV_DOCUMENTS = 500  # on which a planted head is measured
_INIT_DOCUMENTS = 512  # enough for means and variances


def plant(worker: Worker) -> None:
    """Plant the parts of the head that the settings ask for; with an initial model, only for labels new to it."""
    start = worker.initial_model
    if start is None:
        init_from_documents(worker)
    passes = WorkerPasses(worker)
    if start is None or start.new_labels > 0:
        planter_of(worker).plant(passes)
    if start is not None:
        start.load_rows(worker.classifier.head, worker.shard.own)
    write_module(worker.paths.planted, worker.classifier.head, here=worker.is_first)
    passes.forget()


def planter_of(worker: Worker) -> Planter:
    """Make what plants the worker's head."""
    return Planter(
        plan=worker.planting,
        classifier=worker.classifier,
        shard=worker.shard,
        ranking=_ranking(worker) if worker.planting.ranks_tokens else None,
        prior_L=worker.log_odds(),
        vocab_size=len(worker.tokenizer),
        seed=worker.config.seed,
    )


def init_from_documents(worker: Worker) -> None:
    """Initialise a head that reads poolings from a sample of training documents, the same on every rank. Collective."""
    classifier = worker.classifier.eval()
    head = classifier.head
    if not isinstance(head, ReadsPooled):
        return
    tokens = worker.config.finetune.tokens_per_micro_batch
    cached = not worker.encoder_use.trains
    with torch.inference_mode():
        read = worker.batches.read(worker.train, tokens, _INIT_DOCUMENTS, cached=cached)
        fixed_BKD = [classifier.pool(batch).float().cpu() for _, batch in read]
    fixed_NKD = np.concatenate(all_gather_object(torch.cat(fixed_BKD).numpy()))
    head.init_from_documents(torch.from_numpy(fixed_NKD).to(worker.strategy.device))


def token_ndcg(worker: Worker) -> float:
    """Measure how well the attention ranks the tokens of some dev documents, nDCG@10. Collective."""
    return _stage_1(worker).evaluate()[METRIC]


@dataclass(frozen=True)
class WorkerPasses(Passes):
    """The documents of a worker, and its measurements on dev.

    A pass over all of train saves its sums in the run directory now and then, so that an interrupted run continues it.
    """

    worker: Worker

    def over_train(self, name: str, title: str) -> ReadFor:
        """Read this rank's share, without the batches in saved sums, and save the sums again as time passes."""
        worker = self.worker
        minutes = worker.config.track.checkpoint_every_minutes
        file_name = f"{worker.strategy.rank}.safetensors"
        state = {"inputs": worker.inputs(Stage.PLANT)}

        def read(sums: Sums) -> Iterator[Batch]:
            store = self._saved_sums(name)
            batches_read = 0
            saved = store.latest()
            if (
                saved is not None
                and saved.state == state
                and saved.world_size == worker.strategy.world_size
            ):
                load_model(sums, saved.path / file_name)
                batches_read = saved.step
            saved_at = time.monotonic()
            for batch in self._batches(title, skip=batches_read):
                yield batch
                batches_read += 1
                due = broadcast_object((time.monotonic() - saved_at) / 60 >= minutes)
                stopping = stop_anywhere()
                if due or stopping:
                    store.save(
                        batches_read,
                        state,
                        lambda folder: save_tensors(
                            sums.state_dict(), folder / file_name
                        ),
                    )
                    saved_at = time.monotonic()
                if stopping:
                    raise Interrupted(
                        f"{title} stopped after {batches_read} batches, which are saved",
                        STOP.number,
                    )

        return read

    def over_sample(self, documents: int, title: str) -> ReadFor:
        """Read this rank's share of a sample; nothing is saved."""
        return lambda _: self._batches(title, documents=documents)

    def rank_tokens(self) -> None:
        """Run stage 1: train the attention to rank tokens."""
        worker = self.worker
        settings = worker.config.plant
        epochs = worker.planting.ranking_epochs
        head = worker.classifier.head
        assert isinstance(head, AttendsByLabel)  # checked before the run
        attention = list(head.attention_parameters())
        tables = {id(table) for table in head.label_tables().values()}
        queries = [parameter for parameter in attention if id(parameter) in tables]
        if worker.planting.keeps_shared:
            attention = queries  # tensors that all labels share keep the values learnt for known labels

        def groups() -> list[ParameterGroup]:
            return parameter_groups(
                {"head.attention": attention},
                PhaseConfig(epochs=epochs),
                settings,
                queries,
            )

        collate = worker.batches.collator(worker.train, cached=settings.cache_hidden)
        phase = Phase(epochs, groups, collate, encodes=not settings.cache_hidden)
        train(worker, Stage.PLANT, _stage_1(worker), [phase], settings, METRIC)

    def dev_macro_f1(self) -> float:
        """Measure the head as it is on some dev documents."""
        worker = self.worker
        worker.refresh_labels()
        cached = worker.config.plant.cache_hidden
        rows, predictions = score(
            worker, worker.dev, cached=cached, documents=DEV_DOCUMENTS
        )
        labels_NL = worker.dev.label_matrix()[rows]
        return float(quick_metrics(worker, predictions, labels_NL)["macro_f1"])

    def token_ndcg(self) -> float:
        """See `token_ndcg`."""
        return token_ndcg(self.worker)

    def forget(self) -> None:
        """Remove the saved sums of every pass. Collective."""
        for name in PASSES:
            self._saved_sums(name).clear()

    def _batches(
        self, title: str, *, documents: int | None = None, skip: int = 0
    ) -> Iterator[Batch]:
        settings = self.worker.config.plant
        read = self.worker.batches.read(
            self.worker.train,
            settings.tokens_per_micro_batch,
            documents,
            cached=settings.cache_hidden,
            title=title,
            skip=skip,
        )
        return (batch for _, batch in read)

    def _saved_sums(self, name: str) -> CheckpointStore:
        paths = self.worker.paths
        return CheckpointStore(paths.root / "plant" / name, 1, paths.mirror)


def _stage_1(worker: Worker) -> PlantObjective:
    """Make what stage 1 trains; its dev metric is the nDCG of the attention's ranking."""
    settings = worker.config.plant

    def evaluate() -> dict[str, float]:
        total = 0.0
        pairs = 0.0
        read = worker.batches.read(
            worker.dev,
            settings.tokens_per_micro_batch,
            DEV_DOCUMENTS,
            cached=settings.cache_hidden,
        )
        for _, batch in read:
            ndcg, counted = objective.ndcg(batch)
            total += ndcg
            pairs += counted
        total, pairs = all_reduce_sum_floats([total, pairs])
        return {METRIC: total / max(pairs, 1.0)}

    vocab_size = len(worker.tokenizer)
    objective = PlantObjective(
        worker.classifier,
        _ranking(worker),
        settings,
        vocab_size,
        evaluate,
        worker.shard,
    )
    return objective


def _ranking(worker: Worker) -> TokenRanking:
    """Load the ranking of the tokens of this rank's labels.

    Raises:
        DataError: `xmtc mig` has replaced it by one of other settings.
    """
    ranking = TokenRanking.load(worker.paths.ranking, worker.shard.own)
    check_unchanged(
        worker.paths.root, "token ranking", worker.paths.ranking, ranking.fingerprint
    )
    return ranking
