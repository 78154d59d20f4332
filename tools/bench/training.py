"""Padding and training throughput on EURLEX57K, compared with Hugging Face's `Trainer` on the same model and documents.

    .venv/bin/python tools/bench/training.py [--data DIR]

Three loops train the same classifier (MiniLM and label attention, everything trainable, all labels) on the same
documents in turn, for several rounds, each in a separate process: xmtc's loop with the settings of its workers (bf16,
length bucketing, token budget, freed memory kept), `Trainer` with its defaults (fp32, padding to the maximum length),
and `Trainer` with bf16 and length grouping. A ratio compares loops of one round; the median over rounds counts. Prints
JSON lines; the last line and the exit status say whether all bars hold. On a shared machine, `--clock cpu` compares
processor seconds of the loop's process.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import (
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_pt_utils import get_length_grouped_indices

from xmtc.config.load import load_config
from xmtc.data.collate import Batch, Collator
from xmtc.data.corpus import Corpus, Split
from xmtc.data.sampler import MicroBatch, Sampler
from xmtc.data.tokenizer import special_tokens
from xmtc.distributed.memory import keep_freed_memory
from xmtc.distributed.strategies.replicated import SingleStrategy
from xmtc.distributed.strategy import ParameterGroup
from xmtc.losses.base import Targets
from xmtc.models.classifier import Classifier
from xmtc.pipeline import prepare_stage
from xmtc.run.config import RunConfig
from xmtc.track.tracker import Tracker
from xmtc.training.checkpoint import CheckpointStore
from xmtc.training.config import PhaseConfig
from xmtc.training.fine_tuning import FinetuneObjective
from xmtc.training.label_shard import LabelShard
from xmtc.training.loop import Loop, LoopServices
from xmtc.training.objective import Phase, StageSettings
from xmtc.training.unfreeze import parameter_groups
from xmtc.training.weights import BestWeights

PADDING, DEFAULTS, GROUPED = 0.10, 1.5, 1.0
MEGA_BATCH = 50  # number of batches that Trainer's length grouping sorts together; the sampler's chunks are as long
XMTC, TRAINER, TRAINER_GROUPED = (
    "xmtc",
    "Trainer, defaults",
    "Trainer, bf16 and length grouping",
)


@dataclass(frozen=True)
class Reading:
    """Seconds of wall time, and of processor time of all threads of this process."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Reading":
        """Read both clocks."""
        return cls(time.perf_counter(), time.process_time())


class Watch:
    """Times one training and counts the tokens that went through the encoder."""

    def __init__(self, encoder: nn.Module) -> None:
        self.start = self.end = Reading.now()
        self.real = self.computed = 0
        self._hook = encoder.register_forward_pre_hook(self._count)

    def _count(self, _module: nn.Module, inputs: tuple[Tensor, Tensor]) -> None:
        self.real += int(inputs[1].sum())
        self.computed += inputs[1].numel()

    def result(self, documents: int) -> "Result":
        """The measurements between start and end."""
        self._hook.remove()
        wall, cpu = self.end.wall - self.start.wall, self.end.cpu - self.start.cpu
        return Result(
            documents, self.real, round(1 - self.real / self.computed, 4), wall, cpu
        )


@dataclass(frozen=True)
class Result:
    """The cost of one loop for the documents of a round."""

    documents: int
    tokens: int
    padding_share: float
    seconds: float
    cpu_seconds: float

    def rate(self, clock: str) -> float:
        """Documents per second."""
        return self.documents / (self.seconds if clock == "wall" else self.cpu_seconds)


class WatchedStrategy(SingleStrategy):
    """Starts the clock when the optimizer is ready, and stops it after the last step."""

    def __init__(self, watch: Watch) -> None:
        super().__init__("bf16", torch.device("cpu"))
        self.watch = watch

    def prepare(self, model: nn.Module, groups: Sequence[ParameterGroup]) -> nn.Module:
        """As in the base class."""
        prepared = super().prepare(model, groups)
        self.watch.start = Reading.now()
        return prepared

    def step(self, max_grad_norm: float) -> float:
        """As in the base class."""
        norm = super().step(max_grad_norm)
        self.watch.end = Reading.now()
        return norm


class WatchedTrainer(TrainerCallback):
    """The same for Trainer: from the first access to the data to the last step."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def on_epoch_begin(self, *_args: Any, **_kwargs: Any) -> None:
        """Trainer calls this before it asks for the first batch."""
        self.watch.start = Reading.now()

    def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
        """Trainer calls this after each optimizer step."""
        self.watch.end = Reading.now()


class PlainModel(nn.Module):
    """The classifier in the form that Trainer accepts: padded tokens and multi-hot labels in, mean loss out."""

    def __init__(self, classifier: Classifier, loss: nn.Module) -> None:
        super().__init__()
        self.classifier, self.loss = classifier, loss

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor
    ) -> dict[str, Tensor]:
        """Mean loss of B documents: tokens and mask (B, T), multi-hot labels (B, L)."""
        rows_P, labels_P = labels.nonzero(as_tuple=True)
        weight_B, mask_BT = torch.ones(len(input_ids)), attention_mask.bool()
        batch = Batch(
            torch.arange(len(input_ids)),
            input_ids,
            mask_BT,
            input_ids,
            mask_BT,
            None,
            rows_P,
            labels_P,
            weight_B,
        )
        output = self.loss(self.classifier(batch), Targets(rows_P, labels_P, weight_B))
        return {"loss": output.sum / output.count}


class TokenisedDocuments(Dataset[dict[str, Any]]):
    """Documents that were tokenised beforehand, as usual for Trainer."""

    def __init__(
        self,
        split: Split,
        rows: NDArray[np.int64],
        tokenizer: PreTrainedTokenizerBase,
        labels: int,
    ) -> None:
        prefix, suffix = special_tokens(tokenizer)
        self.input_ids = [
            [*prefix, *split.tokens(int(row)).tolist(), *suffix] for row in rows
        ]
        self.labels = [torch.zeros(labels) for _ in rows]
        for hot_L, row in zip(self.labels, rows, strict=True):
            hot_L[
                torch.from_numpy(np.array(split.label_ids(int(row)), dtype=np.int64))
            ] = 1

    def __len__(self) -> int:
        return len(self.input_ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.input_ids[index], "labels": self.labels[index]}


class Bench:
    """The classifier, its documents, and the three loops.

    Attributes:
        loops: loops by name; each trains on rows of the split and returns its cost.
    """

    def __init__(
        self, config: RunConfig, corpus: Corpus, work: Path, batch_size: int, width: int
    ) -> None:
        self.config, self.work, self.batch_size, self.width = (
            config,
            work,
            batch_size,
            width,
        )
        self.split, self.tokenizer, self.labels = (
            corpus.split("train"),
            corpus.tokenizer(),
            len(corpus.labels),
        )
        self.loops: dict[str, Callable[[NDArray[np.int64]], Result]] = {
            XMTC: self.xmtc,
            TRAINER: lambda rows: self.trainer(
                rows, padding="max_length", bf16=False, sampling="random"
            ),
            # the rows of a round come grouped by length already, see `grouped_rows`
            TRAINER_GROUPED: lambda rows: self.trainer(
                rows, padding="longest", bf16=True, sampling="sequential"
            ),
        }

    @cached_property
    def classifier(self) -> Classifier:
        """Build the model that a loop trains, in the loop's process."""
        torch.manual_seed(self.config.seed)
        classifier = self.config.model.build(len(self.tokenizer), self.labels)
        return classifier.train()

    def xmtc(self, rows: NDArray[np.int64]) -> Result:
        """Stage 2's loop over `rows`, once."""
        settings, watch = (
            self.config.finetune,
            Watch(self.classifier.get_submodule("encoder")),
        )
        objective = FinetuneObjective(
            self.classifier,
            settings,
            lambda: {settings.metric: 0.0},
            LabelShard(self.classifier),
        )
        strategy = WatchedStrategy(watch)
        collator = Collator(
            self.split, self.tokenizer, window=self.classifier.encoder.window, overlap=0
        )
        sampler = Sampler(
            self.split.lengths[rows],
            batch_size=self.batch_size,
            tokens_per_micro_batch=settings.tokens_per_micro_batch,
            seed=self.config.seed,
        )

        def collate(batch: MicroBatch, seed: int) -> Batch:
            return collator(replace(batch, documents=rows[batch.documents]), seed)

        phase = Phase(1, self._groups, collate)
        track, optimizer = self.config.track, settings.optimizer
        with (
            tempfile.TemporaryDirectory(dir=self.work) as folder,
            Tracker(Path(folder), track, 0) as tracker,
        ):
            Loop(
                objective,
                sampler,
                [phase],
                StageSettings(
                    "finetune",
                    optimizer,
                    settings.metric,
                    0,
                    self.config.seed,
                    "",
                    track,
                ),
                LoopServices(
                    strategy,
                    CheckpointStore(Path(folder) / "checkpoints"),
                    tracker,
                    BestWeights(
                        Path(folder) / "best.safetensors",
                        objective,
                        self.classifier.parameters(),
                    ),
                ),
            ).run()
        return watch.result(len(rows))

    def _groups(self) -> list[ParameterGroup]:
        named = self.classifier.parameter_groups()
        whole = PhaseConfig(epochs=1, encoder_layers=-1)
        return parameter_groups(named, whole, self.config.finetune)

    def trainer(
        self, rows: NDArray[np.int64], *, padding: str, bf16: bool, sampling: str
    ) -> Result:
        """`Trainer` over `rows`, once."""
        watch = Watch(self.classifier.get_submodule("encoder"))
        settings = TrainingArguments(
            output_dir=str(self.work / "trainer"),
            per_device_train_batch_size=self.batch_size,
            num_train_epochs=1,
            bf16=bf16,
            use_cpu=True,
            train_sampling_strategy=sampling,
            remove_unused_columns=False,
            save_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        trainer = Trainer(
            model=PlainModel(self.classifier, self.config.finetune.loss.build()),
            args=settings,
            data_collator=lambda documents: self._padded(documents, padding),
            train_dataset=TokenisedDocuments(
                self.split, rows, self.tokenizer, self.labels
            ),
            callbacks=[WatchedTrainer(watch)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return watch.result(len(rows))

    def _padded(
        self, documents: list[dict[str, Any]], padding: str
    ) -> dict[str, Tensor]:
        ids = {"input_ids": [document["input_ids"] for document in documents]}
        padded = self.tokenizer.pad(
            ids, padding=padding, max_length=self.width, return_tensors="pt"
        )
        return {
            **padded,
            "labels": torch.stack([document["labels"] for document in documents]),
        }


def open_bench(args: argparse.Namespace) -> Bench:
    """The documents and the loops."""
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    with redirect_stdout(sys.stderr):
        config = load_config(RunConfig, args.config, overrides(args))
        return Bench(
            config, prepare_stage(config), args.work, args.batch_size, args.max_length
        )


class LoopProcess:
    """A process that runs one of the loops, so that its memory settings do not affect the others."""

    bench: Bench  # of the process

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        self.name = name
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(
            1, mp_context=spawn, initializer=self._open, initargs=(args, name == XMTC)
        )

    @classmethod
    def _open(cls, args: argparse.Namespace, keep_memory: bool) -> None:
        if keep_memory:
            keep_freed_memory()
        cls.bench = open_bench(args)

    @classmethod
    def _train(cls, name: str, rows: NDArray[np.int64]) -> Result:
        with redirect_stdout(sys.stderr):
            return cls.bench.loops[name](rows)

    def __call__(self, rows: NDArray[np.int64]) -> Result:
        """Train on these rows."""
        return self._pool.submit(self._train, self.name, rows).result()


def main() -> int:
    args = arguments()
    bench = open_bench(args)
    config = bench.config
    say(
        {
            "documents": len(bench.split),
            "labels": bench.labels,
            "batch_size": args.batch_size,
        },
        "setting",
    )
    say(
        {
            "threads": torch.get_num_threads(),
            "clock": args.clock,
            "load": os.getloadavg()[0],
        },
        "setting",
    )
    share = padding_share(bench, config.finetune.batch_size)
    loops = [LoopProcess(name, args) for name in bench.loops]
    rounds = [
        run_round(bench, loops, number, args) for number in range(args.rounds + 1)
    ][1:]  # the first one warms up
    for name in bench.loops:
        say({"loop": name, **summary([found[name] for found in rounds])}, "loop")
    ratios = {
        name: ratio(rounds, name, args.clock) for name in (TRAINER, TRAINER_GROUPED)
    }
    bars = [
        bar("training/padding_share", share, PADDING, share < PADDING),
        bar(
            "training/against_defaults",
            ratios[TRAINER],
            DEFAULTS,
            ratios[TRAINER] >= DEFAULTS,
        ),
        bar(
            "training/against_bf16_grouped",
            ratios[TRAINER_GROUPED],
            GROUPED,
            ratios[TRAINER_GROUPED] >= GROUPED,
        ),
    ]
    held = all(bars)
    bar("bench_training", ratios[TRAINER], DEFAULTS, held)
    return 0 if held else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    root = Path(os.environ.get("XMTC_DATA", "data"))
    parser.add_argument(
        "--config", type=Path, default=Path("configs/eurlex57k_attention.yaml")
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=root / "eurlex57k",
        help="folder with train, dev, labels.parquet",
    )
    parser.add_argument(
        "--train-docs",
        type=int,
        default=5000,
        help="documents whose padding is measured",
    )
    parser.add_argument(
        "--max-length",
        type=int,
        default=512,
        help="tokens per document, including special tokens",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=8,
        help="of all three loops; 8 is Trainer's default",
    )
    parser.add_argument("--documents", type=int, default=48, help="of a round")
    parser.add_argument(
        "--rounds", type=int, default=3, help="in addition to a short warm-up round"
    )
    parser.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="clock that the bars use",
    )
    parser.add_argument(
        "--threads", type=int, help="threads of torch; default: torch's choice"
    )
    parser.add_argument("--work", type=Path, default=Path("build/bench_training"))
    args = parser.parse_args()
    if not (args.data / "train.parquet").exists():
        sys.exit(f"{args.data}: no train.parquet there; give --data, or set XMTC_DATA")
    return args


def overrides(args: argparse.Namespace) -> list[str]:
    """Configure EURLEX57K with this length and all labels in the loss; 2 tokens per document are special tokens."""
    return [
        f"data.source.files={{train: {args.data}/train.parquet, dev: {args.data}/dev.parquet}}",
        f"data.source.labels.path={args.data}/labels.parquet",
        f"data.limit={{train: {args.train_docs}, dev: 100}}",
        f"data.max_length={args.max_length - 2}",
        f"data.corpus={args.work}/corpus-{args.train_docs}-{args.max_length}",
        "finetune.sampled_labels=null",
    ]


def padding_share(bench: Bench, batch_size: int) -> float:
    """Measure the padding of an epoch with the configuration's batch and token budget, and of alternatives."""
    lengths = bench.split.lengths + len(
        [token for part in special_tokens(bench.tokenizer) for token in part]
    )

    def share(size: int) -> float:
        budget = bench.config.finetune.tokens_per_micro_batch
        sampler = Sampler(
            lengths, batch_size=size, tokens_per_micro_batch=budget, seed=13
        )
        parts = [
            lengths[batch.documents]
            for step in sampler.epoch(0)
            for batch in step.micro_batches
        ]
        return 1 - float(lengths.sum()) / sum(
            int(part.max()) * len(part) for part in parts
        )

    figures = {
        f"xmtc, batch {size}": share(size)
        for size in sorted({batch_size, bench.batch_size})
    }
    order = np.random.default_rng(0).permutation(lengths)
    parts = [
        order[i : i + bench.batch_size] for i in range(0, len(order), bench.batch_size)
    ]
    computed = sum(int(part.max()) * len(part) for part in parts)
    figures[f"to the longest of a random batch of {bench.batch_size}"] = (
        1 - float(lengths.sum()) / computed
    )
    figures["to the maximum"] = 1 - float(lengths.mean()) / bench.width
    say({name: round(value, 4) for name, value in figures.items()}, "padding_share")
    return max(
        figures[f"xmtc, batch {size}"] for size in {batch_size, bench.batch_size}
    )


def run_round(
    bench: Bench, loops: Sequence[LoopProcess], number: int, args: argparse.Namespace
) -> dict[str, Result]:
    """Run every loop on the same documents, in an order that rotates between rounds; round 0 has one batch."""
    rows = grouped_rows(bench, args.documents if number else args.batch_size, number)
    first = number % len(loops)
    found = {}
    for loop in [*loops[first:], *loops[:first]]:
        found[loop.name] = loop(rows)
        say({"round": number, "loop": loop.name, **asdict(found[loop.name])}, "round")
    if len({result.tokens for result in found.values()}) > 1:
        raise RuntimeError("the loops did not read the same tokens")
    return found


def grouped_rows(bench: Bench, documents: int, seed: int) -> NDArray[np.int64]:
    """Choose the rows of a round: batches from Trainer's length grouping of the whole split, from short to long.

    Grouping only a round's few documents would have no effect, because Trainer sorts within 50 batches, or within a
    quarter of all batches if there are few. Therefore its function groups the split, and every n-th batch is used.
    """
    generator = torch.Generator().manual_seed(seed)
    size = bench.batch_size
    order = get_length_grouped_indices(
        bench.split.lengths.tolist(), size, generator=generator
    )
    batches = [order[i : i + size] for i in range(0, len(order) - size + 1, size)][
        :MEGA_BATCH
    ]
    places = (
        (np.arange(-(-documents // size)) + 0.5) * len(batches) / -(-documents // size)
    )
    return np.array(
        [row for place in places for row in batches[int(place)]], dtype=np.int64
    )


def ratio(rounds: Sequence[dict[str, Result]], name: str, clock: str) -> float:
    """Median over rounds of xmtc's documents per second, as a multiple of the other loop's in the same round."""
    return statistics.median(
        found[XMTC].rate(clock) / found[name].rate(clock) for found in rounds
    )


def summary(results: Sequence[Result]) -> dict[str, float]:
    figures = {
        "documents_per_s": statistics.median(result.rate("wall") for result in results),
        "cpu_s_per_document": statistics.median(
            1 / result.rate("cpu") for result in results
        ),
        "padding_share": statistics.mean(result.padding_share for result in results),
    }
    return {name: round(value, 4) for name, value in figures.items()}


def bar(name: str, value: float, limit: float, holds: bool) -> bool:
    print(
        json.dumps(
            {"name": name, "ratio": round(value, 4), "bar": limit, "holds": bool(holds)}
        ),
        flush=True,
    )
    return holds


def say(record: dict[str, Any], kind: str) -> None:
    rounded = {
        key: round(value, 4) if isinstance(value, float) else value
        for key, value in record.items()
    }
    print(json.dumps({"record": kind, **rounded}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
