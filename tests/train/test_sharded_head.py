"""Label rows split over two ranks give the losses, gradients, best labels and tables of whole ones."""

from pathlib import Path

import pytest
import torch

from gloo import run_gloo
from xmtc.distributed.collectives import all_reduce_sum, rank_and_world_size
from xmtc.losses.base import Targets
from xmtc.losses.binary_cross_entropy import BinaryCrossEntropyConfig
from xmtc.models.heads import FlatConfig, LabelAttentionConfig
from xmtc.train.sharded_head import ShardedHead, sum_gradients

LABELS, WIDTH, K, STEPS = 23, 12, 7, 4  # an odd number: the ranks' shares differ
HEADS = {
    "label_attention": LabelAttentionConfig(width=8, heads=2, dropout=0.0),
    "flat": FlatConfig(dropout=0.0),
}
# Of each rank: token counts of its documents, more of them on rank 1.
LENGTHS = ([5, 3], [7, 2, 4])
POSITIVES = ([(0, 1), (0, 20), (1, 11)], [(0, 12), (1, 0), (2, 22), (2, 3)])


def documents(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor, Targets]:
    """A batch of this rank."""
    lengths = LENGTHS[rank]
    generator = torch.Generator().manual_seed(10 * step + rank)
    mask_BT = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    x_BTD = torch.randn(*mask_BT.shape, WIDTH, generator=generator) * mask_BT[..., None]
    rows_P, columns_P = torch.tensor(POSITIVES[rank]).T
    return x_BTD, mask_BT, Targets(rows_P, columns_P, torch.ones(len(lengths)))


def parts(kind: str):
    """Encoder stand-in, head and loss, the same in every process."""
    torch.manual_seed(3)
    return torch.nn.Linear(WIDTH, WIDTH), HEADS[kind].build(WIDTH, LABELS), BinaryCrossEntropyConfig().build()


def whole(kind: str) -> dict:
    """Training in one process, the two ranks' documents one after the other."""
    encoder, head, loss = parts(kind)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.05)
    losses = []
    for step in range(STEPS):
        outputs = []
        for rank in range(2):
            x_BTD, mask_BT, targets = documents(rank, step)
            outputs.append(loss(head(encoder(x_BTD), mask_BT), targets))
        total, count = sum(o.sum for o in outputs), sum(o.count for o in outputs)
        optimizer.zero_grad()
        (total / count).backward()
        optimizer.step()
        losses.append(float(total.detach() / count))
    best = []
    for rank in range(2):
        x_BTD, mask_BT, _ = documents(rank, STEPS)
        values, ids = head(encoder(x_BTD), mask_BT).topk(K)
        best.append((ids, values.detach()))
    return {"losses": losses, "best": best, "tables": dict(head.named_parameters()), "encoder": encoder.weight}


def sharded(kind: str) -> dict:
    """The same on this rank of two."""
    encoder, head, loss = parts(kind)
    rank, _ = rank_and_world_size()
    model = ShardedHead(head)
    optimizer = torch.optim.Adam([*encoder.parameters(), *model.parameters()], lr=0.05)
    losses = []
    for step in range(STEPS):
        x_BTD, mask_BT, targets = documents(rank, step)
        output = model.loss(loss, encoder(x_BTD), mask_BT, targets)
        optimizer.zero_grad()
        (output.sum / output.count).backward()
        sum_gradients([*encoder.parameters(), *model.replicated()])
        optimizer.step()
        losses.append(float(all_reduce_sum(output.sum) / output.count))
    x_BTD, mask_BT, _ = documents(rank, STEPS)
    return {
        "losses": losses,
        "best": model.top_k(encoder(x_BTD), mask_BT, K),
        "rows": len(model.head.bias),
        "tables": model.whole_tables(),
        "replicated": {n: p.detach() for n, p in head.named_parameters() if any(p is q for q in model.replicated())},
        "encoder": encoder.weight.detach(),
    }


@pytest.mark.parametrize("kind", HEADS)
def test_two_ranks_train_score_and_export_as_one(kind: str, tmp_path: Path) -> None:
    expected = whole(kind)
    ranks = run_gloo(sharded, 2, tmp_path / kind, kind)
    assert [rank["rows"] for rank in ranks] == [11, 12]
    for rank, found in enumerate(ranks):
        assert found["losses"] == pytest.approx(expected["losses"], rel=1e-5)
        ids_BK, values_BK = expected["best"][rank]
        assert torch.equal(found["best"][0], ids_BK)
        torch.testing.assert_close(found["best"][1], values_BK, rtol=1e-4, atol=1e-5)
        for name, table in (found["tables"] | found["replicated"]).items():
            torch.testing.assert_close(table, expected["tables"][name].detach(), rtol=1e-4, atol=1e-5)
        assert found["tables"].keys() | found["replicated"].keys() == expected["tables"].keys()
        torch.testing.assert_close(found["encoder"], expected["encoder"].detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", HEADS)
def test_one_process_has_all_rows(kind: str) -> None:
    found, expected = sharded_alone(kind), whole_of_rank_0(kind)
    torch.testing.assert_close(found, expected)


def sharded_alone(kind: str) -> torch.Tensor:
    encoder, head, _ = parts(kind)
    x_BTD, mask_BT, targets = documents(0, 0)
    return ShardedHead(head)(encoder(x_BTD), mask_BT, targets)[0]


def whole_of_rank_0(kind: str) -> torch.Tensor:
    encoder, head, _ = parts(kind)
    x_BTD, mask_BT, _ = documents(0, 0)
    return head(encoder(x_BTD), mask_BT)
