"""Measure this machine in a few seconds: real batches of the encoder, steps of the head, and a fixed piece of work.

On a CPU, the time of one thread is measured, because other programs hardly affect it, and extrapolated to the threads
of a run. On a GPU, it is the time by the clock. The figures therefore assume an idle machine.

Suffixes: B documents, T tokens, D width, S labels with logits.
"""

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

_ENCODE_TOKENS, _ENCODE_SECONDS = 4096, 1.5
_SCALING = 0.85  # exponent of the number of cores
_HEAD_SHAPE = {"cpu": (8, 96), "cuda": (16, 256)}  # documents, and tokens per document, for measuring a head


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


def core_seconds() -> float:
    """Measure a fixed piece of work on one core: matrix products and sorting, as much of each."""
    random = np.random.default_rng(0)
    matrix, values = random.random((1_200, 1_200), np.float32), random.random((40, 10_000), np.float32)
    with _one_thread():
        work = (lambda: matrix @ matrix), (lambda: np.argsort(values, axis=1))
        return sum(_best_of(3, part, torch.device("cpu")) for part in work)


def gain(threads: int | None) -> float:
    """Estimate the speed-up of matrix products on this many threads over one thread; at most that of all cores.

    Args:
        threads: number of threads; None: a thread for each core.
    """
    return min(threads or cpu_count(), cpu_count(), 32) ** _SCALING


def encoder_seconds(
    config: RunConfig, ids_N: Sequence[NDArray[np.int32]], lengths: Sequence[int], *, train: bool = False
) -> dict[int, float]:
    """Measure the encoder of a run, with its weights, on a GPU or on the run's threads.

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
    model, backbone = config.model, config.model.encoder.backbone
    tokenizer = load_pretrained(DEFAULT_BACKBONE if backbone is None else backbone.name)
    device, speed_up = _place(config)
    alone = replace(model, head=NoHeadConfig(), scorers=(LabelTextConfig(),), label_text=False)
    encoder = alone.build(len(tokenizer), 1).to(device).train(train)
    tokens = _ENCODE_TOKENS if device.type == "cpu" else config.finetune.tokens_per_micro_batch
    with _one_thread(), torch.autocast(device.type, torch.bfloat16, enabled=config.distributed.precision == "bf16"):
        return {n: _encoding(ids_N, encoder, model, tokenizer, n, tokens) / speed_up for n in lengths}


def head_seconds(config: RunConfig, width: int, labels: int, labels_per_document: float) -> HeadSpeed:
    """Measure the head of a run on random hidden states of a few tokens.

    Args:
        config: configuration of the run.
        width: D.
        labels: L.
        labels_per_document: mean number of labels of a document.
    """
    settings, finetune = config.model.head, config.finetune
    device, speed_up = _place(config)
    head = settings.build(width, labels).to(device)
    shape = (64, 1) if settings.reads_fixed else _HEAD_SHAPE[device.type]
    hidden_BTD, mask_BT = torch.randn(*shape, width, device=device), torch.ones(shape, dtype=torch.bool, device=device)
    count = min(labels, max(finetune.sampled_labels or labels, round(labels_per_document * finetune.batch_size)))
    shortlist_S = torch.randperm(labels, device=device)[:count].sort().values if count < labels else None
    optimizer = torch.optim.AdamW(head.parameters())

    def train() -> None:
        head.zero_grad()
        logits_BS = head(hidden_BTD.clone(), mask_BT, shortlist_S)
        torch.nn.functional.binary_cross_entropy_with_logits(logits_BS, torch.zeros_like(logits_BS)).backward()

    def score() -> None:
        with torch.inference_mode():
            head(hidden_BTD, mask_BT)

    share = 1 / shape[0] / shape[1] / speed_up
    with _one_thread(), torch.autocast(device.type, torch.bfloat16, enabled=config.distributed.precision == "bf16"):
        train_s, step_s = _best_of(1, train, device) * share, _best_of(1, optimizer.step, device) / speed_up
        head.eval()
        return HeadSpeed(train_s=train_s, step_s=step_s, score_s=_best_of(1, score, device) * share)


def _place(config: RunConfig) -> tuple[torch.device, float]:
    """Return the device that is measured, and how many times as fast a run is there."""
    gpu = config.distributed.on_gpu and torch.cuda.is_available()
    return torch.device("cuda" if gpu else "cpu"), 1.0 if gpu else gain(config.distributed.torch_threads())


def _now(device: torch.device) -> float:
    """Return the CPU time of this thread, or the time at which the GPU has done its work."""
    if device.type == "cpu":
        return time.thread_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def _best_of(times: int, work: Callable[[], object], device: torch.device) -> float:
    """Measure the seconds of the fastest run, after one warm-up run."""
    work()
    found = []
    for _ in range(times):
        begun = _now(device)
        work()
        found.append(_now(device) - begun)
    return max(min(found), 1e-6)


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
    """Measure seconds per document of a GPU or of one CPU thread, in batches as in a run, over all lengths.

    In training mode, with a backward pass.
    """
    documents = UnlabelledDocuments([ids[:max_length] for ids in ids_N if len(ids)])
    collate = Collator(documents, tokenizer, window=encoder.encoder.window, overlap=model.overlap)
    parts = evaluation_batches(documents.lengths, batch_tokens)
    device = next(encoder.parameters()).device
    begun, spent, tokens = time.perf_counter(), 0.0, 0

    def work() -> None:
        with torch.inference_mode(mode=not encoder.training):
            hidden_BTD = encoder.encode(batch)
        if encoder.training:
            hidden_BTD.float().square().mean().backward()

    for place in [len(parts) - 1, *np.random.default_rng(0).permutation(len(parts))]:
        batch = collate(MicroBatch(parts[place], np.ones(len(parts[place]), np.float32))).to(device)
        if tokens == 0 or device.type != "cpu":  # a GPU prepares kernels for each new shape
            work()
        start = _now(device)
        work()
        spent, tokens = spent + _now(device) - start, tokens + int(batch.mask_BT.sum())
        if spent > _ENCODE_SECONDS or time.perf_counter() - begun > 6 * _ENCODE_SECONDS:
            break
    return spent / tokens * float(documents.lengths.mean())
