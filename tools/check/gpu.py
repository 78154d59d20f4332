"""Run all checks that need a GPU: print one JSON line per finding, and exit with 1 if a bar is missed or a check fails.

No check needs what another needs: one whose modules are missing says so, and the others run. A table ends the output.

.venv/bin/python tools/check/gpu.py --list
.venv/bin/python tools/check/gpu.py --only kernels,bf16

On a GPU machine without network that has torch, transformers, peft, pyarrow, safetensors, pandas and scikit-learn, you
only need these wheels, which together are under 4 MiB (x86-64, in MiB):

    entmax 0.1, xxhash 0.5; if they are missing too: pydantic 0.5, pydantic-core 2.2, annotated-types 0.1,
    typing-inspection 0.1, rich 0.3; for `mining` faiss-cpu 18
    pip install --no-index --no-deps WHEELS && PYTHONPATH=. python tools/check/gpu.py

`zero` needs Ray and DeepSpeed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from xmtc.data.collate import Batch
    from xmtc.models.classifier import Classifier
    from xmtc.models.kernels.options import Implementation

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line.

    Attributes:
        name: what was measured.
        value, unit: the figure.
        bar: minimum (`at_least`) or maximum; None for plain figures.
        holds: whether the bar holds.
    """

    name: str
    value: float
    unit: str
    bar: float | None = None
    holds: bool | None = None


def kernels() -> Iterator[Finding]:
    """Triton's label attention: error against float64; speed and memory against PyTorch's at 50,000 labels."""
    for dtype, bar in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        tensors = _attention_tensors(2, 333, 777, 128, dtype)
        exact = [
            t.detach().double().requires_grad_() if t.is_floating_point() else t
            for t in tensors
        ]
        pairs = zip(
            _attention(exact, "sdpa", heads=4),
            _attention(tensors, "triton", heads=4),
            strict=True,
        )
        worst = max(
            float((a - b).abs().max() / a.abs().max().clamp(min=1e-9)) for a, b in pairs
        )
        yield Finding(
            name=f"kernels: relative error, {dtype}",
            value=worst,
            unit="",
            bar=bar,
            holds=worst <= bar,
        )
    documents, tokens, labels, width = 8, 2048, 50_000, 512
    large = _attention_tensors(documents, tokens, labels, width, torch.bfloat16)
    implementations: tuple[Implementation, ...] = ("sdpa", "triton")
    seconds = {
        name: _seconds(lambda name=name: _attention(large, name, heads=8))
        for name in implementations
    }
    seconds["sdpa of all labels at once"] = _seconds(lambda: _unchunked(large, heads=8))
    for name, value in seconds.items():
        yield Finding(
            name=f"kernels: {name}, forward and backward, B8 T2048 L50000 d512",
            value=value,
            unit="s",
        )
    ratio = seconds["sdpa"] / seconds["triton"]
    yield Finding(
        name="kernels: sdpa / triton",
        value=ratio,
        unit="x",
        bar=1.5,
        holds=ratio >= 1.5,
    )
    # two products forward, and the gradients of both factors backward; recomputation is not useful work
    rate = 6 * 2 * documents * tokens * labels * width / seconds["triton"]
    yield Finding(
        name="kernels: triton, share of matrix-product rate",
        value=rate / _matmul_rate(),
        unit="",
    )
    own = _extra_bytes(lambda: _attention(large, "triton", heads=8))
    whole = _extra_bytes(lambda: _unchunked(large, heads=8))
    yield Finding(name="kernels: triton, extra memory", value=own / 2**30, unit="GiB")
    share = own / whole
    yield Finding(
        name="kernels: of unchunked sdpa's",
        value=share,
        unit="",
        bar=0.05,
        holds=share <= 0.05,
    )


def bf16() -> Iterator[Finding]:
    """Measure the matrix-product rate of this card, which serves as its peak."""
    yield Finding(
        name="bf16: matrix products", value=_matmul_rate() / 1e12, unit="TFLOP/s"
    )


def zero() -> Iterator[Finding]:
    """One-rank ZeRO-2 on CUDA gives the losses of the plain loop."""
    import deepspeed  # noqa: F401
    import ray  # noqa: F401

    from same_runs import losses

    with tempfile.TemporaryDirectory() as folder:
        for name, strategy in (
            ("plain", "{kind: single}"),
            ("zero", "{kind: deepspeed, stage: 2}"),
        ):
            settings = [
                f"name={name}",
                f"track.directory={folder}",
                f"data.corpus={folder}/corpus",
                "distributed.workers=1",
                "distributed.gpus_per_worker=1",
                f"distributed.strategy={strategy}",
            ]
            command = [
                sys.executable,
                "launch/train.py",
                "configs/smoke_llama.yaml",
                *settings,
            ]
            subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
        plain, partitioned = (losses(Path(folder) / name) for name in ("plain", "zero"))
    worst = max(abs(plain[step] - partitioned[step]) for step in plain)
    yield Finding(
        name="zero: difference of the losses",
        value=worst,
        unit="nats",
        bar=1e-3,
        holds=worst <= 1e-3,
    )


def throughput() -> Iterator[Finding]:
    """LoRA steps of a random LLaMA-3-8B with 4,096 tokens per document: rate, share, memory, and Trainer's."""
    from xmtc.config.load import load_config
    from xmtc.estimate.memory import backbone_shape
    from xmtc.run.config import RunConfig

    shape = backbone_shape(load_config(RunConfig, ROOT / "configs/mimic4_llama3.yaml"))
    assert shape is not None
    documents, tokens, labels = 2, 4096, 8000
    peak, device = _matmul_rate(), torch.device("cuda")
    seconds = {}
    for every in (1, 4, 0):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        seconds[every], weights = classifier_step(
            shape, documents, tokens, labels, device, recomputed=every
        )
        name = f"throughput: 8B LoRA, 2 × 4,096 tokens, gradient_checkpointing {every}"
        useful = (
            4 * weights * documents * tokens / seconds[every]
        )  # forward, and gradients of activations
        bar = {"bar": 0.45, "holds": useful >= 0.45 * peak} if every == 0 else {}
        yield Finding(
            name=name, value=documents * tokens / seconds[every], unit="tokens/s"
        )
        yield Finding(
            name=f"{name}: useful share of {peak / 1e12:.0f} TFLOP/s",
            value=useful / peak,
            unit="",
            **bar,
        )
        used, expected = (
            torch.cuda.max_memory_allocated(),
            estimated_bytes(documents, tokens, labels, recomputed=every),
        )
        yield Finding(name=f"{name}: memory", value=used / 2**30, unit="GiB")
        holds = abs(expected / used - 1) <= 0.25
        yield Finding(
            name=f"{name}: estimate / memory",
            value=expected / used,
            unit="x",
            bar=0.25,
            holds=holds,
        )
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    ratio = trainer_step(shape, documents, tokens, labels, device) / seconds[1]
    yield Finding(
        name="throughput: Trainer + PEFT, memory",
        value=torch.cuda.max_memory_allocated() / 2**30,
        unit="GiB",
    )
    yield Finding(
        name="throughput: against Trainer + PEFT",
        value=ratio,
        unit="x",
        bar=1.0,
        holds=ratio >= 1,
    )


def lengths() -> Iterator[Finding]:
    """A small encoder trains on documents of many lengths about as fast, by token, as on documents of one length."""
    shape = {
        "model_type": "bert",
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
        "vocab_size": 30522,
        "max_position_embeddings": 512,
    }
    documents, many = 16, range(128, 512, 4)
    with torch.device("cuda"):
        classifier = lora_classifier(shape, 512, 1000, recomputed=0)
    seconds = {}
    for name, tokens in (
        ("one length", [sum(many) // len(many)] * len(many)),
        ("96 lengths", list(many)),
    ):
        with torch.device("cuda"):
            batches = [
                random_documents(documents, length, shape["vocab_size"], padding=3)
                for length in tokens
            ]
        lora_step(classifier, *batches[:2])()
        steps = lora_step(classifier, *batches[2:])
        _wait()
        start = time.perf_counter()
        steps()  # once: a second time, every length would be known
        _wait()
        seconds[name] = (time.perf_counter() - start) / sum(
            documents * length for length in tokens[2:]
        )
        yield Finding(name=f"lengths: {name}", value=1 / seconds[name], unit="tokens/s")
    ratio = seconds["96 lengths"] / seconds["one length"]
    yield Finding(
        name="lengths: 96 lengths, by token",
        value=ratio,
        unit="x",
        bar=1.5,
        holds=ratio <= 1.5,
    )


def estimated_bytes(
    documents: int, tokens: int, labels: int, *, recomputed: int
) -> float:
    """Peak memory of such a step as `xmtc train --dry-run` estimates it."""
    from xmtc.config.load import load_config
    from xmtc.estimate.estimate import estimate
    from xmtc.estimate.size import Size
    from xmtc.run.config import RunConfig

    settings = [
        f"finetune.tokens_per_micro_batch={documents * tokens}",
        f"data.max_length={tokens}",
        f"model.encoder.window={tokens + 2}",
        f"model.encoder.gradient_checkpointing={recomputed}",
        "model.encoder.lora={dropout: 0.0, target_modules: all_linear}",
        "model.head.width=512",
        "distributed.workers=1",
        "distributed.gpus_per_worker=1",
    ]
    config = load_config(RunConfig, ROOT / "configs/mimic4_llama3.yaml", settings)
    return estimate(config, Size(longest=tokens, labels=labels, vocab_size=128256)).peak


def classifier_step(
    shape: dict[str, Any],
    documents: int,
    tokens: int,
    labels: int,
    device: torch.device,
    *,
    recomputed: int,
) -> tuple[float, int]:
    """Seconds of a LoRA step of our classifier, and the weights of the backbone that multiply every token."""
    with device:
        classifier, batch = (
            lora_classifier(shape, tokens, labels, recomputed=recomputed),
            random_documents(documents, tokens, shape["vocab_size"]),
        )
    return _seconds(lora_step(classifier, batch), repeats=5), multiplied_weights(
        classifier
    )


def multiplied_weights(classifier: "Classifier") -> int:
    """Weights of the backbone that multiply every token."""
    named = classifier.encoder.named_parameters()
    return sum(p.numel() for name, p in named if p.ndim == 2 and "embed" not in name)


def lora_classifier(
    shape: dict[str, Any], tokens: int, labels: int, *, recomputed: int = 1
) -> "Classifier":
    """A random backbone in bf16 with adapters on all linear layers, and label attention, on torch's current device.

    Every `recomputed`-th layer is recomputed in the backward pass; 0: none.
    """
    from xmtc.models.classifier import Classifier
    from xmtc.models.encoders.backbone_config import HuggingFaceConfig, LoraConfig
    from xmtc.models.heads.config import LabelAttentionConfig

    encoder = HuggingFaceConfig(
        from_config=shape,
        dtype="bfloat16",
        lora=LoraConfig(dropout=0.0, target_modules="all_linear"),
        gradient_checkpointing=recomputed,
        window=tokens,
    )
    backbone = encoder.build(shape["vocab_size"])
    head = LabelAttentionConfig(width=512, heads=8).build(backbone.width, labels)
    return Classifier(backbone, head, labels)


def lora_step(classifier: "Classifier", *batches: "Batch") -> Callable[[], None]:
    """An optimizer step of what trains, for each batch."""
    classifier.train()
    optimizer = torch.optim.AdamW(
        [p for p in classifier.parameters() if p.requires_grad], lr=1e-4
    )

    def step() -> None:
        for batch in batches:
            with torch.autocast(batch.mask_BT.device.type, torch.bfloat16):
                loss = torch.nn.functional.softplus(classifier(batch)).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


def trainer_step(
    shape: dict[str, Any],
    documents: int,
    tokens: int,
    labels: int,
    device: torch.device,
) -> float:
    """Seconds of a step of Hugging Face's Trainer with PEFT: the same backbone, adapters and batch, a linear head."""
    from peft import LoraConfig, TaskType, get_peft_model
    from transformers import (
        AutoConfig,
        AutoModelForSequenceClassification,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    ends: list[float] = []

    class StepEnds(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            _wait()
            ends.append(time.perf_counter())

    config = AutoConfig.for_model(
        **shape,
        num_labels=labels,
        problem_type="multi_label_classification",
        pad_token_id=0,
    )
    with device:
        model = AutoModelForSequenceClassification.from_config(
            config, dtype=torch.bfloat16
        )
    linear = LoraConfig(
        TaskType.SEQ_CLS, r=16, lora_alpha=32, target_modules="all-linear"
    )
    dataset = [{"input_ids": [1] * tokens, "labels": [0.0] * labels}] * (8 * documents)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=documents,
            max_steps=7,
            bf16=True,
            use_cpu=device.type == "cpu",
            gradient_checkpointing=True,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        Trainer(
            get_peft_model(model, linear),
            settings,
            train_dataset=dataset,
            callbacks=[StepEnds()],
        ).train()
    return (ends[-1] - ends[1]) / (len(ends) - 2)


def mining() -> Iterator[Finding]:
    """All products on the GPU find the labels that FAISS finds on the CPU."""
    from xmtc.mining.config import IndexConfig
    from xmtc.mining.index import ExactSearch, LabelIndex

    vectors = torch.randn(
        100_000, 256, generator=torch.Generator().manual_seed(0)
    ).numpy()
    expected = LabelIndex(vectors, IndexConfig(kind="flat")).search(vectors[:100], 10)
    on_gpu = ExactSearch(vectors, torch.device("cuda"))
    agreement = float((expected == on_gpu.search(vectors[:100], 10)).mean())
    yield Finding(
        name="mining: agreement with FAISS",
        value=agreement,
        unit="",
        bar=0.99,
        holds=agreement >= 0.99,
    )
    seconds = _seconds(lambda: on_gpu.search(vectors[:1024], 100))
    yield Finding(
        name="mining: 1,024 queries of 100,000 × 256", value=seconds, unit="s"
    )


CHECKS: dict[str, Callable[[], Iterator[Finding]]] = {
    "kernels": kernels,
    "bf16": bf16,
    "zero": zero,
    "throughput": throughput,
    "lengths": lengths,
    "mining": mining,
}


def _attention_tensors(
    documents: int, tokens: int, labels: int, width: int, dtype: torch.dtype
) -> list[Tensor]:
    """Keys, values, mask, queries, weights, bias."""
    generator = torch.Generator("cuda").manual_seed(0)

    def draw(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.randn(
            *shape, generator=generator, device="cuda", dtype=dtype
        ).requires_grad_()

    mask = (
        torch.arange(tokens, device="cuda")
        < torch.tensor([[tokens]] + [[tokens - 7]] * (documents - 1)).cuda()
    )
    tables = [draw(labels, width, dtype=torch.float32) for _ in range(2)]
    return [
        draw(documents, tokens, width),
        draw(documents, tokens, width),
        mask,
        *tables,
        torch.zeros(labels).cuda(),
    ]


def _unchunked(tensors: list[Tensor], heads: int) -> list[Tensor]:
    """What `_attention` returns, by PyTorch's attention over all labels at once."""
    from xmtc.models.kernels.sdpa import attend

    keys, values, mask, queries, weights, _ = tensors
    logits = attend(
        keys, values, mask, queries.to(keys.dtype), weights.to(keys.dtype), heads=heads
    )
    return [
        logits,
        *torch.autograd.grad(logits.square().mean(), [keys, values, queries, weights]),
    ]


def _attention(
    tensors: list[Tensor], implementation: "Implementation", heads: int
) -> list[Tensor]:
    """Logits and the gradients of keys, values, queries, weights."""
    from xmtc.models.kernels.dispatch import label_attention, triton_problem
    from xmtc.models.kernels.options import Options

    keys, values, mask, queries, weights, bias = tensors
    options = Options(heads=heads, implementation=implementation)
    if implementation == "triton" and (problem := triton_problem(keys, options)):
        raise RuntimeError(problem)
    logits = label_attention(keys, values, mask, queries, weights, bias, options)
    return [
        logits,
        *torch.autograd.grad(logits.square().mean(), [keys, values, queries, weights]),
    ]


def _extra_bytes(run: Callable[[], list[Tensor]]) -> int:
    """Peak memory of a call, in addition to its arguments and results."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    returned = sum(t.numel() * t.element_size() for t in run())
    return max(torch.cuda.max_memory_allocated() - before - returned, 1)


def random_documents(
    documents: int, tokens: int, vocab_size: int, *, padding: int = 0
) -> "Batch":
    """Windows of random tokens, full but for `padding` in the first one, on torch's current device."""
    from xmtc.data.collate import Batch

    ids = torch.randint(vocab_size, (documents, tokens))
    mask, pairs = torch.ones_like(ids, dtype=torch.bool), torch.arange(documents)
    mask[0, tokens - padding :] = False
    return Batch(pairs, ids, mask, ids, mask, None, pairs, pairs, torch.ones(documents))


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _matmul_rate() -> float:
    left, right = (
        torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2)
    )
    return 2 * 8192**3 / _seconds(lambda: left @ right, repeats=20)


def _seconds(run: Callable[[], Any], repeats: int = 10) -> float:
    """Mean time of a call, after two warm-up calls."""
    for _ in range(2):
        run()
    _wait()
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    _wait()
    return (time.perf_counter() - start) / repeats


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", help=f"checks to run, separated by commas, of {', '.join(CHECKS)}"
    )
    parser.add_argument("--list", action="store_true", help="list the checks and exit")
    given = parser.parse_args(arguments)
    chosen = given.only.split(",") if given.only else list(CHECKS)
    if unknown := [name for name in chosen if name not in CHECKS]:
        parser.error(f"no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
    if given.list:
        for name in CHECKS:
            print(f"{name}: {(CHECKS[name].__doc__ or '').splitlines()[0]}")
        return 0
    if not torch.cuda.is_available():
        print("no CUDA device here; --list says what would be checked", file=sys.stderr)
        return 1
    outcomes = {name: _run(name) for name in chosen}  # all run, whatever the results
    print(*(f"{name:12}{outcome}" for name, outcome in outcomes.items()), sep="\n")
    return (
        1 if any(outcome.startswith("failed") for outcome in outcomes.values()) else 0
    )


def _run(name: str) -> str:
    """Run one check. Return `ok`, `failed: why` or `not possible: why`."""
    missed = []
    try:
        for finding in CHECKS[name]():
            print(json.dumps(asdict(finding)), flush=True)
            missed += [finding.name] * (finding.holds is False)
    except ImportError as error:
        return f"not possible: {error}"
    except Exception as error:  # whatever one check does, the others run
        traceback.print_exc()
        return f"failed: {(str(error) or repr(error)).splitlines()[0]}"
    return f"failed: {'; '.join(missed)}" if missed else "ok"


if __name__ == "__main__":
    sys.exit(main())
