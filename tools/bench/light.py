"""The lightweight track's bars: what local attention costs, how fast the small encoders train.

    python tools/bench/light.py              # all
    python tools/bench/light.py --only local
    python tools/bench/light.py --threads 1 --clock cpu     # on a machine that others use too

Prints JSON lines; those with "bar" are the bars, and the exit status is 1 when one of them is not held.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from xmtc.distributed.memory import keep_freed_memory
from xmtc.models.encoders.embedding import LightEncoder
from xmtc.models.encoders.light_config import BiGRUConfig, SelfAttentionConfig
from xmtc.models.encoders.self_attention import (
    global_attention,
    local_attention,
    split_projection,
)
from xmtc.models.poolings.config import AttentionPoolingConfig

LENGTHS = (512, 1024, 2048, 4096, 8192)
WIDTH, HEADS, RADIUS = 128, 4, 16
DOCUMENTS, TOKENS, VOCAB, LAYERS, INNER = 32, 256, 30_000, 2, 512


def say(**row: object) -> None:
    print(json.dumps(row), flush=True)


class Clock:
    """Wall time, or the process's own CPU time, which other work on the machine hardly disturbs."""

    now: Callable[[], float] = time.perf_counter


def seconds(run: Callable[[], object], repeats: int) -> float:
    """Median of `repeats`, after one that does not count."""
    run()
    taken = []
    for _ in range(repeats):
        start = Clock.now()
        run()
        taken.append(Clock.now() - start)
    return statistics.median(taken)


def bench_local(repeats: int) -> bool:
    """Time of forward and backward by length: 16 times the tokens may cost at most 16 · 1.5 times as much."""
    taken: dict[int, float] = {}
    for length in LENGTHS:
        joint_WUX = torch.randn(1, length, 3 * WIDTH, requires_grad=True)
        mask_WU = torch.ones(1, length, dtype=torch.bool)

        def run(
            attend: Callable[..., Tensor],
            joint_WUX: Tensor = joint_WUX,
            mask_WU: Tensor = mask_WU,
        ) -> None:
            joint_WUX.grad = None
            attend(*split_projection(joint_WUX, HEADS), mask_WU).sum().backward()

        taken[length] = seconds(
            lambda run=run: run(lambda *x: local_attention(*x, radius=RADIUS)), repeats
        )
        whole = seconds(lambda run=run: run(global_attention), max(3, repeats // 3))
        say(
            name="local_attention",
            tokens=length,
            local_ms=taken[length] * 1e3,
            global_ms=whole * 1e3,
        )
    growth = taken[LENGTHS[-1]] / taken[LENGTHS[0]]
    bar = 1.5 * LENGTHS[-1] / LENGTHS[0]
    say(
        name="local_attention_growth_512_to_8192",
        ratio=round(growth, 2),
        bar=bar,
        holds=growth <= bar,
    )
    return growth <= bar


class Ours(nn.Module):
    """An encoder of the track, learned-query pooling and a linear classifier."""

    def __init__(self, encoder: LightEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = AttentionPoolingConfig().build(encoder.width)
        self.classifier = nn.Linear(encoder.width, 2)

    def forward(self, ids_WU: Tensor, mask_WU: Tensor) -> Tensor:
        """Logits (W, 2)."""
        return self.classifier(self.pooling(self.encoder(ids_WU, mask_WU), mask_WU))


class Plain(nn.Module):
    """What one would write with torch.nn.TransformerEncoder: the same sizes, dropout and mean pooling.

    Args:
        attention_dropout: as torch has it; without, it has the fused kernel at its disposal, as ours has.
    """

    def __init__(self, *, attention_dropout: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.positions = nn.Parameter(torch.randn(TOKENS, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, INNER, 0.1, "gelu", batch_first=True, norm_first=True
        )
        layer.self_attn.dropout = 0.1 if attention_dropout else 0.0
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.classifier = nn.Linear(WIDTH, 2)

    def forward(self, ids_WU: Tensor, mask_WU: Tensor) -> Tensor:
        """Logits (W, 2)."""
        embedded_WUD = F.dropout(
            self.tokens(ids_WU) + self.positions, 0.1, self.training
        )
        hidden_WUD = self.encoder(embedded_WUD, src_key_padding_mask=~mask_WU)
        pooled_WD = (hidden_WUD * mask_WU.unsqueeze(2)).sum(1) / mask_WU.sum(
            1, keepdim=True
        )
        return self.classifier(pooled_WD)


class Packed(nn.Module):
    """What one would write with PyTorch's recurrent layers: packed sequences and mean pooling."""

    def __init__(self, layer: nn.GRU) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.layer = layer
        self.classifier = nn.LazyLinear(2)

    def forward(self, ids_WU: Tensor, mask_WU: Tensor) -> Tensor:
        """Logits (W, 2)."""
        embedded_WUD, lengths_W = (
            F.dropout(self.tokens(ids_WU), 0.1, self.training),
            mask_WU.sum(1),
        )
        packed = pack_padded_sequence(
            embedded_WUD, lengths_W, batch_first=True, enforce_sorted=False
        )
        hidden_WUD, _ = pad_packed_sequence(
            self.layer(packed)[0], batch_first=True, total_length=TOKENS
        )
        return self.classifier(
            F.dropout(hidden_WUD, 0.1, self.training).sum(1) / lengths_W.unsqueeze(1)
        )


def trainer(model: nn.Module, shortest: int = TOKENS) -> Callable[[], None]:
    """One optimizer step of AdamW on a fixed batch, of full length or of lengths from `shortest` on."""
    model.train()
    generator = torch.Generator().manual_seed(0)
    ids_WU = torch.randint(VOCAB, (DOCUMENTS, TOKENS), generator=generator)
    lengths_W = torch.linspace(shortest, TOKENS, DOCUMENTS).long()
    mask_WU, labels_W = (
        torch.arange(TOKENS) < lengths_W.unsqueeze(1),
        torch.arange(DOCUMENTS) % 2,
    )
    model(ids_WU, mask_WU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(ids_WU, mask_WU), labels_W).backward()
        optimizer.step()

    return step


def matmul_rate() -> float:
    """Floating-point operations per second of the layer's own kind of product: many rows, narrow."""
    rows = torch.randn(DOCUMENTS * TOKENS, WIDTH)
    weight = torch.randn(WIDTH, INNER)
    return 2 * rows.numel() * INNER / seconds(lambda: rows @ weight, 15)


def operations_per_document() -> float:
    """Products of forward and backward (three times the forward): projections, feed-forward, attention."""
    layer = 2 * TOKENS * (4 * WIDTH**2 + 2 * WIDTH * INNER) + 4 * TOKENS**2 * WIDTH
    return 3 * LAYERS * layer


def bench_recurrent(repeats: int) -> bool:
    """Documents per second of a training step of recurrent encoders, against PyTorch's layers on packed sequences."""
    torch.manual_seed(0)
    pairs = {
        "bigru": (
            BiGRUConfig().build(VOCAB),
            nn.GRU(WIDTH, WIDTH, batch_first=True, bidirectional=True),
        ),
    }
    held = []
    for name, (encoder, layer) in pairs.items():
        ours, packed = (
            trainer(Ours(encoder), shortest=TOKENS // 4),
            trainer(Packed(layer), shortest=TOKENS // 4),
        )
        turns = [(seconds(ours, repeats), seconds(packed, repeats)) for _ in range(3)]
        speed, other = (
            DOCUMENTS / statistics.median(taken) for taken in zip(*turns, strict=True)
        )
        say(
            name=f"{name}_training_speed",
            documents_per_s={name: round(speed, 1), "packed": round(other, 1)},
        )
        held.append(speed > other)
        say(
            name=f"{name}_against_packed_sequences",
            ratio=round(speed / other, 2),
            bar=1.0,
            holds=held[-1],
        )
    return all(held)


def bench_training(repeats: int) -> bool:
    """Documents per second of a training step, in turns so that all see the same machine."""
    torch.manual_seed(0)
    ours = SelfAttentionConfig(
        layers=LAYERS, width=WIDTH, heads=HEADS, feed_forward=INNER
    ).build(VOCAB)
    steps = {
        "self_attention": trainer(Ours(ours)),
        "torch.nn.TransformerEncoder": trainer(Plain(attention_dropout=True)),
        "torch.nn.TransformerEncoder without attention dropout": trainer(
            Plain(attention_dropout=False)
        ),
    }
    rates: dict[str, list[float]] = {name: [] for name in steps}
    matmul = []
    for _ in range(3):
        matmul.append(matmul_rate())
        for name, step in steps.items():
            rates[name].append(DOCUMENTS / seconds(step, repeats))
    speed = {name: statistics.median(values) for name, values in rates.items()}
    share = (
        speed["self_attention"] * operations_per_document() / statistics.median(matmul)
    )
    say(
        name="training_speed",
        documents_per_s={name: round(value, 1) for name, value in speed.items()},
        matmul_gflop_per_s=round(statistics.median(matmul) / 1e9, 1),
        gflop_per_document=round(operations_per_document() / 1e9, 3),
        threads=torch.get_num_threads(),
    )
    ahead = speed["self_attention"] / speed["torch.nn.TransformerEncoder"]
    say(
        name="training_against_torch_transformer_encoder",
        ratio=round(ahead, 3),
        bar=1.0,
        holds=ahead > 1.0,
    )
    say(
        name="training_share_of_matmul_rate",
        ratio=round(share, 3),
        bar=0.5,
        holds=share >= 0.5,
    )
    return ahead > 1.0 and share >= 0.5


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("local", "recurrent", "training"))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.clock == "cpu":
        if arguments.threads > 1:
            parser.error(
                "--clock cpu counts the waiting of threads for each other: give --threads 1"
            )
        Clock.now = time.process_time
    keep_freed_memory()  # as the training loop does, here for all that is compared
    torch.set_flush_denormal(True)
    benches = {
        "local": bench_local,
        "recurrent": bench_recurrent,
        "training": bench_training,
    }
    chosen = [arguments.only] if arguments.only else list(benches)
    held = [benches[name](arguments.repeats) for name in chosen]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
