"""Measure this machine's speed at the steps of a run, in a few seconds, on the user's documents.

The CPU time of one thread is measured, because other programs hardly affect it, and extrapolated to the threads of a
run. The figures therefore assume an idle machine.

Suffixes: B documents, T tokens, D width, S labels with logits, L labels.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from joblib import cpu_count
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from transformers import PreTrainedTokenizerFast

from xmtc.data.collate import Batch, Collator
from xmtc.data.documents import UnlabelledDocuments
from xmtc.data.pretrained import DEFAULT_BACKBONE
from xmtc.data.sampler import MicroBatch, evaluation_batches
from xmtc.data.tokenizer import load_pretrained
from xmtc.data.words import count_words
from xmtc.distributed.strategies.settings import Precision
from xmtc.models.classifier import Classifier
from xmtc.models.config import ModelConfig
from xmtc.models.heads.config import HeadSettings, NoHeadConfig
from xmtc.scorers.config import LabelTextConfig

_ENCODE_TOKENS = 4096
_MATRIX, _ITEMS = 1_200, 400_000
_SCALING = 0.85  # exponent of the number of cores
_HEAD_SHAPE = 8, 96  # documents, and tokens per document, for measuring a head
_POOLED_SHAPE = 64, 1  # the same for a head that reads only poolings


@dataclass(frozen=True, kw_only=True)
class HeadSpeed:
    """Times of a head.

    Attributes:
        train_s: seconds to read a document's states, and for its forward and backward pass.
        step_s: seconds of an optimizer step over all label rows.
        score_s: seconds to score a document against all labels.
    """

    train_s: float
    step_s: float
    score_s: float


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """Measured speeds.

    Attributes:
        prepare_s: seconds of one core to read, tokenise and count a document.
        products: floating-point operations per second of matrix products.
        items: elements sorted per second.
        encode_s: by max_length, seconds to encode a document truncated to that length.
        cores: number of cores that preparation uses.
    """

    prepare_s: float
    products: float
    items: float
    encode_s: Mapping[int, float] = field(default_factory=dict)
    cores: int


def probe(
    texts: Sequence[str],
    model: ModelConfig | None,
    lengths: Sequence[int],
    precision: Precision = "fp32",
    seconds: float = 1.5,
    threads: int | None = None,
) -> Speeds:
    """Measure this machine.

    Args:
        texts: a sample of the documents.
        model: model whose encoder to measure, with packaged or downloaded weights; None if the run encodes nothing.
        lengths: values of `max_length` at which to measure the encoder.
        precision: precision in which the encoder computes.
        seconds: time to spend on the encoder at each length.
        threads: threads of the run; None: a thread for each core.

    Raises:
        ConfigError: the encoder cannot be loaded.
    """
    name = None if model is None or model.encoder.backbone is None else model.encoder.backbone.name
    tokenizer = load_pretrained(name or DEFAULT_BACKBONE)
    with _one_thread():
        found = Speeds(
            prepare_s=_preparing(texts, tokenizer),
            products=2 * _MATRIX**3 / _best_of(3, _product()) * gain(None),  # of NumPy, whose threads no setting limits
            items=_ITEMS / _best_of(3, _sort()),
            cores=cpu_count(),
        )
        if model is None or not lengths:
            return found
        encoder = _encoder(model, len(tokenizer))
        device = next(encoder.parameters()).device
        with _autocast(precision, device):
            one_s = {n: _encoding(texts, encoder, model, tokenizer, n, seconds) for n in lengths}
    speed_up = gain(threads) if device.type == "cpu" else 1.0
    return replace(found, encode_s={n: one / speed_up for n, one in one_s.items()})


def probe_head(
    settings: HeadSettings,
    width: int,
    labels: int,
    tokens: float,
    sampled: int | None,
    kept: int,
    precision: Precision = "fp32",
    threads: int | None = None,
) -> HeadSpeed:
    """Measure a head on random hidden states of a few tokens. Its time is proportional to tokens, or to documents.

    Args:
        settings: settings of the head.
        width: D.
        labels: L.
        tokens: mean T of the documents; 1 for a head that reads only poolings, whose time does not depend on T.
        sampled: number of labels with logits in a training batch; None: all.
        kept: number of labels that a document has.
        precision: precision in which the head computes.
        threads: as for `probe`.
    """
    here: Precision = "fp32" if torch.cuda.is_available() else precision  # bf16 of a GPU may be emulated on its CPU
    with _one_thread(), _autocast(here, torch.device("cpu")):
        return _probe_head(settings, width, labels, tokens, sampled, kept, gain(threads))


def gain(threads: int | None) -> float:
    """Estimate the speed-up of matrix products on this many threads over one thread; at most that of all cores.

    Args:
        threads: number of threads; None: a thread for each core.
    """
    return min(threads or cpu_count(), cpu_count(), 32) ** _SCALING


def _probe_head(
    settings: HeadSettings, width: int, labels: int, tokens: float, sampled: int | None, kept: int, speed_up: float
) -> HeadSpeed:
    head = settings.build(width, labels)
    shape = _POOLED_SHAPE if settings.reads_fixed else _HEAD_SHAPE
    hidden_BTD, mask_BT = torch.randn(*shape, width), torch.ones(shape, dtype=torch.bool)
    count = min(labels, max(sampled or labels, kept))
    shortlist_S = torch.randperm(labels)[:count].sort().values if count < labels else None
    optimizer = torch.optim.AdamW(head.parameters())

    def train() -> None:
        head.zero_grad()
        logits_BS = head(hidden_BTD.clone(), mask_BT, shortlist_S)
        torch.nn.functional.binary_cross_entropy_with_logits(logits_BS, torch.zeros_like(logits_BS)).backward()

    def score() -> None:
        with torch.inference_mode():
            head(hidden_BTD, mask_BT)

    share = tokens / shape[1] / shape[0] / speed_up
    train_s, step_s = _best_of(1, train) * share, _best_of(1, optimizer.step) / speed_up
    head.eval()
    return HeadSpeed(train_s=train_s, step_s=step_s, score_s=_best_of(1, score) * share)


def _best_of(times: int, work: Callable[[], object]) -> float:
    """Measure the CPU seconds of the fastest run, after one warm-up run."""
    work()
    found = []
    for _ in range(times):
        begun = time.thread_time()
        work()
        found.append(time.thread_time() - begun)
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


def _autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def _product() -> Callable[[], object]:
    matrix = np.random.default_rng(0).random((_MATRIX, _MATRIX), dtype=np.float32)
    return lambda: matrix @ matrix


def _sort() -> Callable[[], object]:
    values = np.random.default_rng(0).random((40, _ITEMS // 40), dtype=np.float32)
    return lambda: np.argsort(values, axis=1)


def _preparing(texts: Sequence[str], tokenizer: PreTrainedTokenizerFast) -> float:
    """Measure one core's seconds per document: tokenise it, and find its words twice, for vocabulary and counts."""
    chosen, backend = list(texts[:200]), tokenizer.backend_tokenizer
    begun = time.thread_time()
    for text in chosen:
        backend.encode(text, add_special_tokens=False)
    count_words(chosen)
    count_words(chosen)
    return (time.thread_time() - begun) / len(chosen)


def _encoder(model: ModelConfig, vocab_size: int) -> Classifier:
    """Build the encoder without a trained head."""
    alone = replace(model, head=NoHeadConfig(), scorers=(LabelTextConfig(),), label_text=False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return alone.build(vocab_size, 1).to(device).eval()


def _encoding(
    texts: Sequence[str],
    encoder: Classifier,
    model: ModelConfig,
    tokenizer: PreTrainedTokenizerFast,
    max_length: int,
    seconds: float,
) -> float:
    """Measure the seconds per document of a GPU or of one CPU thread, in batches as in a run, over all lengths."""
    encoded = tokenizer.backend_tokenizer.encode_batch(list(texts), add_special_tokens=False)
    documents = UnlabelledDocuments([np.array(one.ids[:max_length], np.int32) for one in encoded if one.ids])
    collate = Collator(documents, tokenizer, window=encoder.encoder.window, overlap=model.overlap)
    parts = evaluation_batches(documents.lengths, _ENCODE_TOKENS)
    device = next(encoder.parameters()).device
    _encode(encoder, collate(_batch(parts[-1])).to(device))  # warms up
    clock = time.perf_counter if device.type == "cuda" else time.thread_time
    begun, tokens = clock(), 0
    for place in np.random.default_rng(0).permutation(len(parts)):
        tokens += _encode(encoder, collate(_batch(parts[place])).to(device))
        if clock() - begun > seconds:
            break
    return (clock() - begun) / tokens * float(documents.lengths.mean())


def _batch(part: NDArray[np.int64]) -> MicroBatch:
    return MicroBatch(part, np.ones(len(part), np.float32))


def _encode(encoder: Classifier, batch: Batch) -> int:
    """Encode a batch, and return the number of tokens without padding."""
    with torch.inference_mode():
        encoder.encode(batch)
        if batch.mask_BT.is_cuda:
            torch.cuda.synchronize()
    return int(batch.mask_BT.sum())
