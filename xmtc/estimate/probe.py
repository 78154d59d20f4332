"""Measure this machine in a few seconds: real batches of the encoder, steps of the head, and a fixed piece of work.

On a CPU, the time of one thread is measured, because other programs hardly affect it, and extrapolated to the threads
of a run. On a GPU, it is the time by the clock. The figures therefore assume an idle machine.

Suffixes: B documents, T tokens, D width, S labels with logits.
"""

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from joblib import cpu_count
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from transformers import PreTrainedTokenizerFast

from xmtc.data.collate import Collator
from xmtc.data.documents import UnlabelledDocuments
from xmtc.data.pretrained import DEFAULT_BACKBONE
from xmtc.data.sampler import MicroBatch, evaluation_batches
from xmtc.data.tokenizer import load_pretrained
from xmtc.models.classifier import Classifier
from xmtc.models.config import ModelConfig
from xmtc.models.heads.config import NoHeadConfig
from xmtc.run.config import RunConfig
from xmtc.scorers.config import LabelTextConfig

_ENCODE_TOKENS = 4096
"""Tokens of a batch of the encoder on a CPU."""
_ENCODE_SECONDS = 1.5
"""Time after which no more batches of the encoder are measured."""
_SCALING = 0.85
"""Exponent of the number of cores in the speed-up."""
_HEAD_SHAPE = {"cpu": (8, 96), "cuda": (16, 256)}
"""Documents, and tokens per document, for measuring a head."""
_LENGTH_CLASSES = 4
"""Classes of mean lengths of documents in an octave, within which a token takes the same time."""


@dataclass(frozen=True, kw_only=True)
class _Encoding:
    """What the time of a token depends on.

    Attributes:
        encoder: settings of the encoder and of its windows.
        precision: `distributed.precision`.
        device: a CPU or a GPU.
        train: whether there is a backward pass.
        batch_tokens: tokens of a batch.
        max_length: `data.max_length`.
        length_class: class of the mean length of the documents.
    """

    encoder: str
    precision: str
    device: str
    train: bool
    batch_tokens: int
    max_length: int
    length_class: int


_token_seconds: dict[_Encoding, float] = {}
"""Seconds of a token, measured in this process."""


@dataclass(frozen=True, kw_only=True)
class HeadSpeed:
    """Seconds of a head for a token, or for a document if it reads only poolings.

    Attributes:
        train_s: forward and backward pass.
        step_s: an optimizer step over all label rows; whatever the number of documents.
        score_s: scores of all labels.
    """

    train_s: float
    step_s: float
    score_s: float


@functools.cache
def core_seconds() -> float:
    """Measure a fixed piece of work on one core: matrix products and sorting, as much of each; once in a process."""
    random = np.random.default_rng(0)
    matrix = random.random((1_200, 1_200), np.float32)
    values = random.random((40, 10_000), np.float32)
    cpu = torch.device("cpu")
    with _one_thread():
        product_s = _best_of(3, lambda: matrix @ matrix, cpu)
        sorting_s = _best_of(3, lambda: np.argsort(values, axis=1), cpu)
    return product_s + sorting_s


def gain(threads: int | None) -> float:
    """Estimate the speed-up of matrix products on this many threads over one thread; at most that of all cores.

    Args:
        threads: number of threads; None: a thread for each core.
    """
    return min(threads or cpu_count(), cpu_count(), 32) ** _SCALING


def encoder_seconds(
    config: RunConfig,
    ids_N: Sequence[NDArray[np.int32]],
    lengths: Sequence[int],
    *,
    train: bool = False,
) -> dict[int, float]:
    """Measure the encoder of a run, with its weights, on a GPU or on the run's threads.

    What was measured before in this process, with documents of about the same length, is not measured again: a search
    asks for the same in each of its fits.

    Args:
        config: configuration of the run.
        ids_N: token ids of some documents.
        lengths: values of `data.max_length` to measure.
        train: whether to measure a forward and a backward pass.

    Returns:
        Seconds for the mean document, by length.

    Raises:
        ConfigError: the encoder cannot be loaded.
    """
    device, speed_up = _place(config)
    on_cpu = device.type == "cpu"
    tokens = _ENCODE_TOKENS if on_cpu else config.finetune.tokens_per_micro_batch
    lengths_N = np.array([len(ids) for ids in ids_N if len(ids)])
    mean_tokens = {
        length: float(np.minimum(lengths_N, length).mean()) for length in lengths
    }
    kinds = {
        length: _Encoding(
            encoder=repr((config.model.encoder, config.model.overlap)),
            precision=config.distributed.precision,
            device=str(device),
            train=train,
            batch_tokens=tokens,
            max_length=length,
            length_class=round(_LENGTH_CLASSES * math.log2(mean_tokens[length])),
        )
        for length in lengths
    }
    missing = [length for length in lengths if kinds[length] not in _token_seconds]
    if missing:
        encoder, tokenizer = _encoder_of(config.model)
        encoder.to(device).train(train)
        with _one_thread(), _autocast(config, device):
            for length in missing:
                _token_seconds[kinds[length]] = _encoding(
                    ids_N, encoder, config.model, tokenizer, length, tokens
                )
    return {
        length: _token_seconds[kinds[length]] * mean_tokens[length] / speed_up
        for length in lengths
    }


def _encoder_of(model: ModelConfig) -> tuple[Classifier, PreTrainedTokenizerFast]:
    """Build the encoder of a model, without its head, and load its tokenizer.

    Raises:
        ConfigError: the encoder cannot be loaded.
    """
    backbone = model.encoder.backbone
    tokenizer = load_pretrained(DEFAULT_BACKBONE if backbone is None else backbone.name)
    alone = replace(
        model, head=NoHeadConfig(), scorers=(LabelTextConfig(),), label_text=False
    )
    return alone.build(len(tokenizer), 1), tokenizer


def head_seconds(
    config: RunConfig, width: int, labels: int, labels_per_document: float
) -> HeadSpeed:
    """Measure the head of a run on random hidden states of a few tokens.

    Args:
        config: configuration of the run.
        width: D.
        labels: L.
        labels_per_document: mean number of labels of a document.
    """
    settings = config.model.head
    finetune = config.finetune
    device, speed_up = _place(config)
    head = settings.build(width, labels).to(device)
    shape = (64, 1) if settings.reads_fixed else _HEAD_SHAPE[device.type]
    hidden_BTD = torch.randn(*shape, width, device=device)
    mask_BT = torch.ones(shape, dtype=torch.bool, device=device)
    positives = round(labels_per_document * finetune.batch_size)
    scored = min(labels, max(finetune.sampled_labels or labels, positives))
    shortlist_S = None
    if scored < labels:
        shortlist_S = torch.randperm(labels, device=device)[:scored].sort().values
    optimizer = torch.optim.AdamW(head.parameters())

    def train() -> None:
        head.zero_grad()
        logits_BS = head(hidden_BTD.clone(), mask_BT, shortlist_S)
        torch.nn.functional.binary_cross_entropy_with_logits(
            logits_BS, torch.zeros_like(logits_BS)
        ).backward()

    def score() -> None:
        with torch.inference_mode():
            head(hidden_BTD, mask_BT)

    documents, tokens = shape
    with _one_thread(), _autocast(config, device):
        train_s = _best_of(1, train, device)
        step_s = _best_of(1, optimizer.step, device)
        head.eval()
        score_s = _best_of(1, score, device)
    return HeadSpeed(
        train_s=train_s / documents / tokens / speed_up,
        step_s=step_s / speed_up,
        score_s=score_s / documents / tokens / speed_up,
    )


def _autocast(config: RunConfig, device: torch.device) -> torch.autocast:
    """Return the context in which a run computes with its precision."""
    return torch.autocast(
        device.type, torch.bfloat16, enabled=config.distributed.precision == "bf16"
    )


def _place(config: RunConfig) -> tuple[torch.device, float]:
    """Return the device that is measured, and how many times as fast a run is there."""
    if config.distributed.on_gpu and torch.cuda.is_available():
        return torch.device("cuda"), 1.0
    return torch.device("cpu"), gain(config.distributed.torch_threads())


def _now(device: torch.device) -> float:
    """Return the CPU time of this thread, or the time at which the GPU has done its work."""
    if device.type == "cpu":
        return time.thread_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def _best_of(times: int, work: Callable[[], object], device: torch.device) -> float:
    """Measure the seconds of the fastest run, after one warm-up run."""
    work()
    seconds = []
    for _ in range(times):
        start = _now(device)
        work()
        seconds.append(_now(device) - start)
    return max(min(seconds), 1e-6)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


def _encoding(
    ids_N: Sequence[NDArray[np.int32]],
    encoder: Classifier,
    model: ModelConfig,
    tokenizer: PreTrainedTokenizerFast,
    max_length: int,
    batch_tokens: int,
) -> float:
    """Measure seconds per token of a GPU or of one CPU thread, in batches as in a run, over all lengths.

    In training mode, with a backward pass.
    """
    documents = UnlabelledDocuments([ids[:max_length] for ids in ids_N if len(ids)])
    collate = Collator(
        documents, tokenizer, window=encoder.encoder.window, overlap=model.overlap
    )
    parts = evaluation_batches(documents.lengths, batch_tokens)
    device = next(encoder.parameters()).device
    begun = time.perf_counter()
    spent_s = 0.0
    tokens = 0

    def work() -> None:
        with torch.inference_mode(mode=not encoder.training):
            hidden_BTD = encoder.encode(batch)
        if encoder.training:
            hidden_BTD.float().square().mean().backward()

    longest = len(parts) - 1
    for place in [longest, *np.random.default_rng(0).permutation(len(parts))]:
        rows = parts[place]
        batch = collate(MicroBatch(rows, np.ones(len(rows), np.float32))).to(device)
        if (
            tokens == 0 or device.type != "cpu"
        ):  # a GPU prepares kernels for each new shape
            work()
        start = _now(device)
        work()
        spent_s += _now(device) - start
        tokens += int(batch.mask_BT.sum())
        if (
            spent_s > _ENCODE_SECONDS
            or time.perf_counter() - begun > 6 * _ENCODE_SECONDS
        ):
            break
    return spent_s / tokens
