"""Code that the stages of a training worker share, in this process and on Ray workers."""

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from xmtc.config.plain import config_hash, to_plain
from xmtc.data.collate import Collator
from xmtc.data.corpus import Corpus, Split
from xmtc.data.hidden_cache import HiddenCache
from xmtc.data.sampler import MicroBatch, Sampler, evaluation_batches
from xmtc.distributed.collectives import all_gather_object, is_leader
from xmtc.distributed.memory import keep_freed_memory
from xmtc.errors import ConfigError
from xmtc.files import file_sha256
from xmtc.models.classifier import Classifier
from xmtc.models.label_text import TextVectors, embed_texts, init_rows_from_names, label_texts, refresh
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths, Stage
from xmtc.scorers.occurrences import Occurrences
from xmtc.stages.initial_model import open_initial_model
from xmtc.track.progress import Progress
from xmtc.track.tracker import Tracker
from xmtc.training.callbacks.base import StageContext
from xmtc.training.config import FinetuneConfig, PlantConfig
from xmtc.training.hidden import Encoding, open_hidden
from xmtc.training.label_shard import LabelShard
from xmtc.training.loop import Loop, LoopServices
from xmtc.training.shard_init import build_shard
from xmtc.training.stage import Objective, Phase, StageSettings
from xmtc.training.weights import BestWeights

ENCODE_TOKENS = 8192  # tokens per batch when filling the cache of hidden states, which needs no memory for gradients


class Worker:
    """Corpus, model and strategy of one rank.

    Args:
        config: the run's configuration.
        paths: the run's files.
        split: whether to hold only this rank's share of the label rows, for stages that train.

    Attributes:
        initial_model: the model that training continues from, or None.
        shard: this rank's label rows.
        found_vectors: number of tokens with a vector in `model.encoder.embedding.vectors`.
    """

    def __init__(self, config: RunConfig, paths: RunPaths, *, split: bool = True) -> None:
        self.config, self.paths = config, paths
        threads = config.distributed.torch_threads()
        if threads is not None:
            torch.set_num_threads(threads)
        self.strategy = config.distributed.build_strategy()
        self.is_first = self.strategy.rank == 0
        self.progress = Progress(enabled=self.is_first)
        self.corpus = Corpus.open(paths.corpus)
        self.tokenizer = self.corpus.tokenizer()
        self.train, self.dev = self.corpus.split("train"), self.corpus.split("dev")
        torch.manual_seed(config.seed)
        split = split and self._splits_labels()
        with config.distributed.chosen_strategy().loading(config.distributed.precision):
            self.classifier = self._build(split)
        self.found_vectors = self.classifier.encoder.load_vectors(self.tokenizer.get_vocab())
        self.initial_model = open_initial_model(config, paths, self.tokenizer, self.corpus.labels)
        if self.initial_model is not None:
            self.initial_model.load_shared(self.classifier)
        self.classifier.to(self.strategy.device)
        self.shard = LabelShard(self.classifier, split=split)
        if self.strategy.keeps_freed_memory:
            keep_freed_memory()
        if config.model.label_text:
            init_rows_from_names(
                self.classifier, self.corpus.labels, self.shard.own, self.embed, self.shard.mean_of_all
            )
        with torch.no_grad():
            self.classifier.head.bias.copy_(self.log_odds())
        if self.initial_model is not None:
            self.initial_model.load_rows(self.classifier.head, self.shard.own)
        self.texts = self._label_texts()

    def _label_texts(self) -> TextVectors | None:
        """Make the label texts for a head that computes rows from texts."""
        longest = self.config.model.head.label_tokens
        if longest is None:
            return None
        texts, overlap = label_texts(self.corpus.labels)[self.shard.own], self.config.model.overlap
        return TextVectors(self.classifier, self.tokenizer, texts, max_length=longest, overlap=overlap)

    def refresh_labels(self) -> None:
        """Update the rows of a head that reads label texts to the current weights."""
        if self.texts is not None:
            refresh(self.classifier.head, self.texts)

    def _build(self, split: bool) -> Classifier:
        model, sizes = self.config.model, (len(self.tokenizer), len(self.corpus.labels))
        if not split:
            return model.build(*sizes)
        ranks = self.strategy.rank, self.strategy.world_size
        return build_shard(model, *sizes, self.config.seed, ranks)

    def _splits_labels(self) -> bool:
        """Whether ranks share the labels: unless the loss needs them all, or there are fewer than ranks."""
        refused = self.config.finetune.loss.refuses_label_shards is not None and self.strategy.world_size > 1
        return self.config.model.head.scores and not refused and len(self.corpus.labels) >= self.strategy.world_size

    @cached_property
    def occurrences(self) -> Occurrences:
        """Training documents of labels and of pairs of labels."""
        return Occurrences.of(self.train.label_matrix())

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Embed texts with the current encoder, see `embed_texts`; the result is the same on every rank."""
        longest, overlap = self.config.data.max_length, self.config.model.overlap
        return embed_texts(self.classifier, self.tokenizer, texts, max_length=longest, overlap=overlap)

    def log_odds(self) -> Tensor:
        """Compute ln(p/(1−p)) (R,) of this rank's labels in train, smoothed by half a document, for initial biases."""
        counts_R = torch.from_numpy(np.asarray(self.corpus.labels.train_counts)[self.shard.own]).float()
        odds_R = (counts_R + 0.5) / (len(self.train) - counts_R + 0.5)
        return odds_R.log().to(self.strategy.device)

    def collator(self, split: Split, *, cached: bool = False) -> Collator:
        """Make the collator of a split; with `cached`, batches contain cached outputs of the untrained encoder."""
        window, overlap = self.classifier.encoder.window, self.config.model.overlap
        collator = partial(Collator, split, self.tokenizer, window=window, overlap=overlap)
        if not cached:
            return collator()
        if sum(all_gather_object(is_leader(self.corpus.path))) > 1:
            raise ConfigError(
                "plant.cache_hidden, finetune.cache_hidden: workers on several nodes write hidden states together, but "
                f"every node has its own copy of the corpus, {self.corpus.path}; set both to false, or storage.cache "
                "to a folder that all nodes share"
            )
        precision = self.config.distributed.precision
        encoder = to_plain(self.config.model.encoder)
        key = config_hash(self.corpus.fingerprint, encoder, overlap, precision, *self._initial_weights())
        tokens = self.config.reads_tokens
        dtype = "bfloat16" if precision == "bf16" and tokens else "float32"  # poolings are small, and standardised
        encoding = Encoding(self.classifier, self.strategy, dtype, self.progress, tokens)
        of_tokens = self.corpus.path / "hidden" / key / split.name
        batches = self.batches(split, ENCODE_TOKENS)
        if tokens:
            return collator(hidden=open_hidden(of_tokens, key, split, collator(), batches, encoding))
        source = collator(hidden=HiddenCache.open(of_tokens, key))  # another run may have encoded the corpus
        of_documents = self.corpus.path / "pooled" / key / split.name
        return collator(fixed=open_hidden(of_documents, key, split, source, batches, encoding))

    def _initial_weights(self) -> list[int | str]:
        """Return inputs of the encoder's initial weights other than its settings; empty for pretrained weights."""
        encoder = self.config.model.encoder
        if self.initial_model is not None:
            return [self.initial_model.digest]
        if encoder.backbone is not None and encoder.backbone.from_config is None:
            return []
        vectors = [] if encoder.vector_file is None else [file_sha256(Path(encoder.vector_file))]
        return [self.config.seed, *vectors]

    def batches(
        self, split: Split, tokens: int, documents: int | None = None, most: int | None = None
    ) -> Sequence[MicroBatch]:
        """Return this rank's share of a pass over a split, equally many on every rank.

        If they do not divide evenly, some ranks get a batch again with weight 0.

        Args:
            split: the split.
            tokens: maximum number of padded tokens per batch.
            documents: number of documents in the pass, chosen by the seed. Default: all.
            most: maximum number of documents per batch. Default: any number.
        """
        lengths_N = split.lengths
        chosen = np.arange(len(lengths_N))
        if documents is not None and documents < len(chosen):
            chosen = np.sort(np.random.default_rng(self.config.seed).permutation(len(chosen))[:documents])
        whole = [chosen[part] for part in evaluation_batches(lengths_N[chosen], tokens)]
        most = most or len(chosen)
        parts = [part[start : start + most] for part in whole for start in range(0, len(part), most)]
        rank, world = self.strategy.rank, self.strategy.world_size
        batches = [MicroBatch(part, np.ones(len(part), np.float32)) for part in parts[rank::world]]
        if len(batches) < -(-len(parts) // world):
            batches.append(MicroBatch(parts[0], np.zeros(len(parts[0]), np.float32)))
        return batches

    def train_stage(
        self,
        stage: Stage,
        objective: Objective,
        phases: Sequence[Phase],
        settings: PlantConfig | FinetuneConfig,
        metric: str,
    ) -> None:
        """Run the loop over `phases`, starting from the newest checkpoint if there is one."""
        sampler = Sampler(
            self.train.lengths,
            batch_size=settings.batch_size,
            tokens_per_micro_batch=settings.tokens_per_micro_batch,
            seed=self.config.seed,
            rank=self.strategy.rank,
            world_size=self.strategy.world_size,
        )
        track = self.config.track
        context = StageContext(stage.value, self.paths.root, self.strategy.rank, self.strategy.device)
        trained = [p for phase in phases for group in phase.groups() for p in group.parameters]
        with Tracker(self.paths.root, track, self.strategy.rank, settings=to_plain(self.config)) as tracker:
            Loop(
                objective,
                sampler,
                phases,
                StageSettings(
                    stage.value,
                    settings.optimizer,
                    metric,
                    settings.patience,
                    self.config.seed,
                    self.corpus.fingerprint,
                    track,
                ),
                LoopServices(
                    self.strategy,
                    self.paths.checkpoint_store(stage, track.keep_last),
                    tracker,
                    BestWeights(self.paths.checkpoints_of(stage) / "best.safetensors", objective, trained),
                    [callback.build(context) for callback in settings.callbacks],
                ),
            ).run()
