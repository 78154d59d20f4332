import math

import pytest
import torch
from torch.nn import functional as F

from xmtc.losses.base import Targets
from xmtc.losses.config import SupervisedContrastiveConfig


def targets_of(label_sets, weight=None):
    pairs = [(row, label) for row, labels in enumerate(label_sets) for label in labels]
    rows, labels = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    return Targets(rows, labels, torch.ones(len(label_sets)) if weight is None else weight)


def brute_force(features, label_sets, anchors, temperature):
    """Sum over the first `anchors` documents; all others are only compared with."""
    z = F.normalize(features, dim=1)
    total = features.new_zeros(())
    for i in range(anchors):
        others = [a for a in range(len(z)) if a != i]
        overlap = {a: len(label_sets[i] & label_sets[a]) / max(1, len(label_sets[i] | label_sets[a])) for a in others}
        denominator = torch.logsumexp(torch.stack([z[i] @ z[a] / temperature for a in others]), 0)
        for a in others:
            if overlap[a]:
                total = total - overlap[a] / sum(overlap.values()) * (z[i] @ z[a] / temperature - denominator)
    return total


SETS = [{1, 900_000}, {1}, {2, 3}, {3, 2}, set(), {1, 2, 3}]


def features(documents, seed=0):
    return torch.randn(documents, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_overlap_weighted_loss_and_gradient_equal_brute_force():
    x = features(6).requires_grad_()
    loss = SupervisedContrastiveConfig(weight=0.5, temperature=0.3, queue_size=0).build()
    output = loss(x, targets_of(SETS))
    expected = 0.5 * brute_force(x, SETS, 6, 0.3)
    torch.testing.assert_close(output.sum, expected)
    torch.testing.assert_close(torch.autograd.grad(output.sum, x), torch.autograd.grad(expected, x))
    assert output.count == 6


def test_single_label_is_the_loss_of_khosla():
    x, labels = features(8), torch.tensor([0, 1, 0, 2, 1, 0, 3, 2])
    loss = SupervisedContrastiveConfig(weight=1.0, temperature=0.1, queue_size=0).build()
    z = F.normalize(x, dim=1) @ F.normalize(x, dim=1).T / 0.1
    z = z.masked_fill(torch.eye(8, dtype=torch.bool), -math.inf)
    same = (labels[:, None] == labels) & ~torch.eye(8, dtype=torch.bool)
    per_pair = z.log_softmax(1).masked_fill(~same, 0)
    expected = -(per_pair.sum(1) / same.sum(1).clamp(min=1)).sum()
    torch.testing.assert_close(loss(x, targets_of([{int(y)} for y in labels])).sum, expected)


def test_mixed_precision_multiplies_in_fp32():
    x = features(6).float()
    exact, mixed = (SupervisedContrastiveConfig(temperature=0.05).build() for _ in range(2))
    for _ in range(2):  # the second time with a queue
        expected = exact(x, targets_of(SETS)).sum
        with torch.autocast("cpu", torch.bfloat16):
            found = mixed(x, targets_of(SETS)).sum
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def test_no_gradient_reaches_the_queue():
    loss = SupervisedContrastiveConfig(queue_size=8).build()
    old, new = (features(6, seed).requires_grad_() for seed in (0, 1))
    loss(old, targets_of(SETS))
    loss(new, targets_of(SETS)).sum.backward()
    assert old.grad is None
    assert new.grad is not None
    assert new.grad.abs().sum() > 0


@pytest.mark.parametrize("size", [4, 10])
def test_queue_holds_the_newest_documents(size):
    loss = SupervisedContrastiveConfig(weight=1.0, temperature=0.2, queue_size=size).build()
    batches = [(features(6, seed), SETS[seed:] + SETS[:seed]) for seed in range(4)]
    for x, label_sets in batches[:3]:
        loss(x, targets_of(label_sets))
    x, label_sets = batches[3]
    past = [(batches[b][0][i], batches[b][1][i]) for b in (2, 1, 0) for i in range(6)][:size]
    everything = torch.cat([x, torch.stack([f for f, _ in past])])
    expected = brute_force(everything, label_sets + [s for _, s in past], 6, 0.2)
    torch.testing.assert_close(loss(x, targets_of(label_sets)).sum, expected)


def test_queue_stands_still_outside_of_training():
    loss = SupervisedContrastiveConfig(queue_size=8).build().eval()
    loss(features(6), targets_of(SETS))
    assert loss.queue is None
    assert loss.state_dict() == {}


def test_fillers_take_no_part():
    weight = torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    real = [0, 2, 3, 4]
    loss = SupervisedContrastiveConfig(weight=1.0, queue_size=8).build()
    alone = SupervisedContrastiveConfig(weight=1.0, queue_size=8).build()
    for seed in (0, 1):  # the second batch meets the queue
        x = features(6, seed)
        output = loss(x, targets_of(SETS, weight))
        torch.testing.assert_close(output.sum, alone(x[real], targets_of([SETS[i] for i in real])).sum)
        assert output.count == 4


@pytest.mark.parametrize("label_sets", [[{1}], [set(), set()], [{1}, {2}]])
def test_documents_without_positives_count_nothing(label_sets):
    x = features(len(label_sets)).requires_grad_()
    output = SupervisedContrastiveConfig(queue_size=0).build()(x, targets_of(label_sets))
    output.sum.backward()
    assert output.sum == 0
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_training_on_it_brings_same_labels_together():
    torch.manual_seed(0)
    x = torch.randn(12, 4, requires_grad=True)
    sets = [{i % 3} for i in range(12)]
    loss = SupervisedContrastiveConfig(weight=1.0, queue_size=0).build()
    optimizer = torch.optim.Adam([x], lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        loss(x, targets_of(sets)).sum.backward()
        optimizer.step()
    similarity = F.normalize(x.detach(), dim=1) @ F.normalize(x.detach(), dim=1).T
    same = torch.tensor([[a == b for b in sets] for a in sets])
    assert similarity[same].min() > similarity[~same].max()
