"""What a training worker has in every stage, in this process and on Ray workers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from xmtc.data.corpus import Corpus, Split
from xmtc.distributed.memory import keep_freed_memory
from xmtc.distributed.strategy import Strategy
from xmtc.models.classifier import Classifier
from xmtc.models.label_rows import (
    TextVectors,
    embed_texts,
    init_rows_from_names,
    label_texts,
    refresh,
)
from xmtc.planting.plan import PlantingPlan, planting_plan
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths, Stage
from xmtc.run.encoder_use import EncoderUse, encoder_use
from xmtc.run.fingerprints import Fingerprints
from xmtc.run.label_rows import shares_rows
from xmtc.run.state import check_unchanged
from xmtc.stages.batches import CorpusBatches
from xmtc.stages.hidden_states import HiddenStates, cache_key, stored_dtype
from xmtc.stages.initial_model import InitialModel, open_initial_model
from xmtc.stages.table import entry_of
from xmtc.track.progress import Progress
from xmtc.training.label_shard import LabelShard, build_shard


@dataclass(frozen=True, eq=False)
class Worker:
    """Corpus, model and strategy of one rank.

    Attributes:
        config: the run's configuration.
        planting: what is planted.
        encoder_use: how the run uses its encoder.
        paths: the run's files.
        strategy: distributes the work among ranks.
        corpus: the corpus, with its `tokenizer` and its splits `train` and `dev`.
        batches: the corpus as this rank reads it.
        classifier: encoder and head.
        shard: this rank's label rows.
        texts: texts of this rank's labels, for a head that computes rows from texts.
        initial_model: the model that training continues from, or None.
        progress: progress bars; only the first rank shows them.
    """

    config: RunConfig
    planting: PlantingPlan
    encoder_use: EncoderUse
    paths: RunPaths
    strategy: Strategy
    corpus: Corpus
    tokenizer: PreTrainedTokenizerFast
    train: Split
    dev: Split
    batches: CorpusBatches
    classifier: Classifier
    shard: LabelShard
    texts: TextVectors | None
    initial_model: InitialModel | None
    progress: Progress

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes and prints."""
        return self.strategy.rank == 0

    def refresh_labels(self) -> None:
        """Update the rows of a head that reads label texts to the current weights."""
        if self.texts is not None:
            refresh(self.classifier.head, self.texts)

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Embed texts with the current encoder, see `embed_texts`. Every rank computes all of them, in equal steps."""
        lengths = {
            "max_length": self.config.data.max_length,
            "overlap": self.config.model.overlap,
        }
        with (
            self.progress.task("encode names", total=len(texts), unit="names") as task,
            self.strategy.autocast(),
        ):
            return embed_texts(
                self.classifier, self.tokenizer, texts, advance=task.advance, **lengths
            )

    def inputs(self, stage: Stage) -> str:
        """Return the fingerprint of everything that the result of a stage depends on."""
        initial_model = "" if self.initial_model is None else self.initial_model.digest
        fingerprints = Fingerprints(self.config, self.corpus.fingerprint, initial_model)
        return entry_of(stage).fingerprint(fingerprints)

    def log_odds(self) -> Tensor:
        """Compute ln(p/(1−p)) (R,) of this rank's labels in train, smoothed by half a document, for initial biases."""
        counts_R = torch.from_numpy(
            np.asarray(self.corpus.labels.train_counts)[self.shard.own]
        ).float()
        odds_R = (counts_R + 0.5) / (len(self.train) - counts_R + 0.5)
        return odds_R.log().to(self.strategy.device)


def build_worker(config: RunConfig, paths: RunPaths, *, split: bool = True) -> Worker:
    """Open the corpus, build the model and initialise its label rows.

    Args:
        config: the run's configuration.
        paths: the run's files.
        split: whether to hold only this rank's share of the label rows, for stages that train.
    """
    strategy = _build_strategy(config)
    corpus = Corpus.open(paths.corpus)
    check_unchanged(paths.root, "corpus", corpus.path, corpus.fingerprint)
    tokenizer = corpus.tokenizer()
    progress = Progress(enabled=strategy.rank == 0)

    torch.manual_seed(config.seed)
    split = split and shares_rows(config, len(corpus.labels), strategy.world_size)
    classifier = _build_classifier(
        config, strategy, (len(tokenizer), len(corpus.labels)), split=split
    )
    initial_model = open_initial_model(config, paths, tokenizer, corpus.labels)
    if initial_model is not None:
        check_unchanged(
            paths.root, "initial model", initial_model.folder, initial_model.digest
        )
        initial_model.load_shared(classifier)
    classifier.to(strategy.device)
    shard = LabelShard(classifier, split=split)
    if strategy.keeps_freed_memory:
        keep_freed_memory()

    use = encoder_use(config)
    key = cache_key(
        config,
        corpus.fingerprint,
        initial_model.digest if initial_model is not None else None,
    )
    hidden = HiddenStates(
        corpus.path,
        key,
        classifier,
        strategy,
        progress,
        tokens=use.reads_tokens,
        dtype=stored_dtype(config),
    )
    worker = Worker(
        config=config,
        planting=planting_plan(config.model, config.plant),
        encoder_use=use,
        paths=paths,
        strategy=strategy,
        corpus=corpus,
        tokenizer=tokenizer,
        train=corpus.split("train"),
        dev=corpus.split("dev"),
        batches=CorpusBatches(tokenizer, config.model.overlap, config.seed, hidden),
        classifier=classifier,
        shard=shard,
        texts=_label_texts(config, corpus, tokenizer, classifier, shard),
        initial_model=initial_model,
        progress=progress,
    )
    _initialise_rows(worker)
    return worker


def _build_strategy(config: RunConfig) -> Strategy:
    """Set the number of threads of this process, and build the strategy."""
    threads = config.distributed.torch_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    return config.distributed.build_strategy()


def _build_classifier(
    config: RunConfig, strategy: Strategy, sizes: tuple[int, int], *, split: bool
) -> Classifier:
    """Build the model for this many token ids and labels; if `split`, with this rank's label rows."""
    with config.distributed.chosen_strategy().loading(config.distributed.precision):
        if not split:
            return config.model.build(*sizes)
        return build_shard(
            config.model, *sizes, config.seed, (strategy.rank, strategy.world_size)
        )


def _label_texts(
    config: RunConfig,
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerFast,
    classifier: Classifier,
    shard: LabelShard,
) -> TextVectors | None:
    """Make the label texts for a head that computes rows from texts."""
    longest = config.model.head.label_tokens
    if longest is None:
        return None
    texts = label_texts(corpus.labels)[shard.own]
    return TextVectors(
        classifier, tokenizer, texts, max_length=longest, overlap=config.model.overlap
    )


def _initialise_rows(worker: Worker) -> None:
    """Start label rows at their names or at random, biases at log-odds, and known labels as the initial model has them.

    Collective.
    """
    classifier, shard = worker.classifier, worker.shard
    if worker.config.model.label_text:
        init_rows_from_names(
            classifier, worker.corpus.labels, shard.own, worker.embed, shard.mean_of_all
        )
    with torch.no_grad():
        classifier.head.bias.copy_(worker.log_odds())
    if worker.initial_model is not None:
        worker.initial_model.load_rows(classifier.head, shard.own)
