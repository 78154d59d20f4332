"""Does ZeRO-3 hold a backbone that one worker cannot? Peak memory of one process against that of each of two workers.

Writes a random LLaMA of about a billion float32 weights as safetensors, and puts LoRA adapters and a label-attention
head on it. One process, and then two gloo workers under ZeRO-3, build the model from the files, score a document, train
a step, score, leave training, and score once more. All values must agree. Prints JSON lines. Bar: a worker's peak
resident memory is at most 0.65 of the process's. (Where the process maps the file, the file's pages count: they are
its weights.)

    .venv/bin/python tools/bench/zero3.py build/zero3 [--layers 40]
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import LlamaConfig, LlamaModel

from bars import in_ranks, memory_bytes
from xmtc.data.collate import Batch
from xmtc.distributed.strategies.config import (
    DeepSpeedConfig,
    SingleConfig,
    StrategyConfig,
)
from xmtc.distributed.strategy import ParameterGroup
from xmtc.models.classifier import Classifier
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.backbone_config import HuggingFaceConfig, LoraConfig
from xmtc.models.heads.config import LabelAttentionConfig

VOCAB, LABELS, TOKENS, STEPS, BAR = 8000, 1000, 32, 1, 0.65
SHAPE = {
    "hidden_size": 1536,
    "intermediate_size": 4096,
    "num_attention_heads": 24,
    "num_key_value_heads": 6,
}
# DeepSpeed would keep a billion gathered weights: all of these. A worker here keeps one layer's.
ZERO = {
    "stage3_max_live_parameters": 30_000_000,
    "stage3_max_reuse_distance": 0,
    "stage3_prefetch_bucket_size": 1_000_000,
    "reduce_bucket_size": 10_000_000,
}


def memory_gib(field: str) -> float:
    return memory_bytes(field) / 2**30


def make(folder: Path, layers: int) -> None:
    torch.manual_seed(0)
    settings = LlamaConfig(
        vocab_size=VOCAB,
        num_hidden_layers=layers,
        max_position_embeddings=2048,
        **SHAPE,
    )
    model = LlamaModel(settings)
    model.save_pretrained(folder)
    print(json.dumps({"made": sum(p.numel() for p in model.parameters())}), flush=True)


def build(folder: Path) -> Classifier:
    torch.manual_seed(0)
    encoder = HuggingFaceConfig(
        name=str(folder), lora=LoraConfig(r=8, alpha=16, dropout=0.0), window=TOKENS
    )
    return ModelConfig(
        encoder=encoder, head=LabelAttentionConfig(width=64, heads=2), overlap=4
    ).build(VOCAB, LABELS)


def batch() -> Batch:
    ids_BT = torch.randint(
        1, VOCAB, (1, TOKENS), generator=torch.Generator().manual_seed(1)
    )
    mask_BT = torch.ones_like(ids_BT, dtype=torch.bool)
    return Batch(
        documents_B=torch.arange(1),
        token_ids_BT=ids_BT,
        mask_BT=mask_BT,
        input_ids_WU=ids_BT,
        attention_mask_WU=mask_BT,
        position_BT=None,
        rows_P=torch.tensor([0]),
        labels_P=torch.tensor([3]),
        weight_B=torch.ones(1),
        hidden_BTD=None,
    )


@torch.no_grad()
def score(model: Classifier) -> float:
    logits_BL: Tensor = model.eval()(batch())
    return float(logits_BL.square().mean())


def work(folder: Path, rank: int, workers: int) -> None:
    config: StrategyConfig = SingleConfig()
    if workers > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder / 'store'}",
            rank=rank,
            world_size=workers,
        )
        config = DeepSpeedConfig(stage=3, zero_optimization=ZERO)
    start = time.perf_counter()
    strategy = config.build("fp32", torch.device("cpu"))
    begun_gib = memory_gib("VmRSS")
    with config.loading("fp32"):
        model = build(folder)
    built_gib, values = memory_gib("VmHWM"), [score(model)]
    groups = [
        ParameterGroup(
            "all", [p for p in model.parameters() if p.requires_grad], 1e-3, 0.0
        )
    ]
    module = strategy.prepare(model, groups)
    for _ in range(STEPS):
        model.train()
        with strategy.micro_batch(last=True):
            loss = (
                module(batch()).square().mean() / workers
            )  # each worker has the same document
            strategy.backward(loss)
        values.append(strategy.step(1.0))
        with strategy.whole():
            values.append(score(model))
    strategy.close()
    values.append(score(model))
    figures = {
        "peak_gib": memory_gib("VmHWM"),
        "built_gib": built_gib,
        "begun_gib": begun_gib,
    }
    figures |= {"seconds": time.perf_counter() - start}
    rounded = {key: round(value, 3) for key, value in figures.items()}
    print(
        json.dumps(
            {
                "workers": workers,
                "rank": rank,
                **rounded,
                "values": [round(v, 7) for v in values],
            }
        ),
        flush=True,
    )
    if workers > 1:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--workers", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.rank is not None:
        work(args.folder, args.rank, args.workers)
        return
    if args.workers == -1:
        make(args.folder, args.layers)
        return
    if not (args.folder / "config.json").is_file():
        command = [
            sys.executable,
            __file__,
            str(args.folder),
            "--layers",
            str(args.layers),
            "--workers",
            "-1",
        ]
        subprocess.run(command, check=True)
    (one,), two = in_ranks(args.folder, 1), in_ranks(args.folder, 2)
    agree = all(
        torch.allclose(
            torch.tensor(r["values"]), torch.tensor(one["values"]), rtol=1e-4
        )
        for r in two
    )
    ratio = max(row["peak_gib"] for row in two) / one["peak_gib"]
    print(
        json.dumps(
            {
                "name": "zero3",
                "ratio": round(ratio, 3),
                "bar": BAR,
                "holds": ratio <= BAR and agree,
            }
        )
    )
    sys.exit(0 if ratio <= BAR and agree else 1)


if __name__ == "__main__":
    main()
