from dataclasses import replace

import numpy as np
import torch

from xmtc.data.collate import Batch
from xmtc.models.classifier import Classifier
from xmtc.models.heads.config import LabelAttentionConfig
from xmtc.planting.prototypes import SHRINKAGE, PrototypeSums, plant_prototypes
from xmtc.planting.rows import GAP, RIDGE
from xmtc.training.label_shard import LabelShard

LABELS, WIDTH, TOKENS = 5, 8, 6


class NoEncoder(torch.nn.Module):
    """Batches bring their hidden states."""

    width = WIDTH

    def layers(self) -> list[torch.nn.Module]:
        return [torch.nn.Identity()]


def classifier() -> Classifier:
    torch.manual_seed(0)
    head = LabelAttentionConfig(width=WIDTH, heads=2, dropout=0.0).build(WIDTH, LABELS)
    return Classifier(NoEncoder(), head, LABELS)  # pyright: ignore[reportArgumentType]


def batch(labels: list[list[int]], seed: int) -> Batch:
    rows = torch.tensor([row for row, own in enumerate(labels) for _ in own])
    ids = torch.zeros(len(labels), TOKENS, dtype=torch.long)
    mask = torch.ones(len(labels), TOKENS, dtype=torch.bool)
    mask[0, 4:] = False
    return Batch(
        documents_B=torch.arange(len(labels)),
        token_ids_BT=ids,
        mask_BT=mask,
        input_ids_WU=ids,
        attention_mask_WU=mask,
        position_BT=None,
        rows_P=rows,
        labels_P=torch.tensor([label for own in labels for label in own]),
        weight_B=torch.ones(len(labels)),
        hidden_BTD=torch.randn(
            len(labels), TOKENS, WIDTH, generator=torch.Generator().manual_seed(seed)
        ),
    )


BATCHES = [batch([[0, 1], [1], [2]], 1), batch([[0], [3, 1]], 2)]


def test_rows_are_shrunk_differences_of_mean_contexts() -> None:
    model, sums = classifier(), PrototypeSums(LABELS, WIDTH, torch.device("cpu"))
    shard = LabelShard(model)
    positive: dict[int, list[np.ndarray]] = {label: [] for label in range(LABELS)}
    negative: dict[int, list[np.ndarray]] = {label: [] for label in range(LABELS)}
    with torch.no_grad():
        for one in BATCHES:
            sums.add(model.head, shard.gather_tokens(model.encode(one), one))
            here = one.labels_P.unique()
            contexts = model.head.contexts(model.encode(one), one.mask_BT, here).numpy()
            gold = set(zip(one.rows_P.tolist(), one.labels_P.tolist(), strict=True))
            for column, label in enumerate(here.tolist()):
                for row in range(len(one.mask_BT)):
                    (positive if (row, label) in gold else negative)[label].append(
                        contexts[row, column]
                    )
    contexts = np.stack(
        [c for found in (*positive.values(), *negative.values()) for c in found]
    )
    covariance = np.cov(contexts.T, bias=True)
    covariance += RIDGE * covariance.diagonal().mean() * np.eye(WIDTH)
    responses = sums.rows(lambda value: value)
    rows, response = responses.rows_LP, responses.negative_L
    for label in range(4):
        count = len(positive[label])
        gap = np.mean(positive[label], 0) - np.mean(negative[label], 0)
        np.testing.assert_allclose(
            rows[label].numpy(),
            count / (count + SHRINKAGE) * np.linalg.solve(covariance, gap),
            rtol=1e-3,
            atol=1e-4,
        )
        np.testing.assert_allclose(
            response[label].item(),
            rows[label].numpy() @ np.mean(negative[label], 0),
            rtol=1e-3,
        )
    assert rows[4].abs().sum() == 0  # no training document: nothing is invented


def test_planted_rows_separate_their_documents_and_start_negatives_at_the_prior() -> (
    None
):
    model, prior = classifier(), torch.full((LABELS,), -3.0)
    plant_prototypes(model, lambda sums: BATCHES, prior, LabelShard(model))
    gaps = []
    for label in range(4):
        scores = {True: [], False: []}
        for one in BATCHES:
            if label not in one.labels_P.tolist():
                continue
            logits = model(one)
            gold = set(one.rows_P[one.labels_P == label].tolist())
            for row in range(len(one.mask_BT)):
                scores[row in gold].append(logits[row, label].item())
        np.testing.assert_allclose(np.mean(scores[False]), -3.0, atol=1e-3)
        gaps.append(np.mean(scores[True]) - np.mean(scores[False]))
    assert min(gaps) > 0
    # the lower of the two middle values is the median of an even number in torch
    np.testing.assert_allclose(sorted(gaps)[1], GAP, rtol=1e-3)
    assert model.head.bias[4].item() == -3.0


def test_rows_tell_labels_apart_beside_a_long_direction_that_all_contexts_share() -> (
    None
):
    """States of some encoders vary most in a direction that says nothing, of which every dimension has a part."""

    class ReadsTheMean:
        def contexts(self, hidden_BTD, mask_BT, label_ids_S):
            return hidden_BTD.mean(1, keepdim=True).expand(-1, len(label_ids_S), -1)

    def documents(seed: int) -> Batch:
        labels = [[number % 4] for number in range(200)]
        generator = torch.Generator().manual_seed(seed)
        means = 2 * torch.eye(WIDTH)[:4][torch.tensor(labels).flatten()]
        noise = torch.randn(len(labels), WIDTH, generator=generator)
        length = torch.randn(len(labels), 1, generator=generator)
        states = means + noise + 15 * length.expand(-1, WIDTH) / WIDTH**0.5
        one = batch(labels, seed)
        return replace(one, hidden_BTD=states.unsqueeze(1).expand(-1, TOKENS, -1))

    shard, sums = (
        LabelShard(classifier()),
        PrototypeSums(LABELS, WIDTH, torch.device("cpu")),
    )
    seen, unseen = documents(1), documents(2)
    sums.add(ReadsTheMean(), shard.gather_tokens(seen.hidden_BTD, seen))  # pyright: ignore[reportArgumentType]
    rows_LP = sums.rows(lambda value: value).rows_LP
    best = (unseen.hidden_BTD.mean(1) @ rows_LP[:4].T).argmax(1)  # pyright: ignore[reportOptionalMemberAccess]
    assert (
        best == unseen.labels_P
    ).float().mean() > 0.6  # a variance for each dimension: 0.29


def test_documents_with_equal_states_plant_finite_rows() -> None:
    model, prior = classifier(), torch.full((LABELS,), -3.0)
    for value in (0.0, 3.7, 1e4):
        equal = [
            replace(
                one, hidden_BTD=torch.full((len(one.mask_BT), TOKENS, WIDTH), value)
            )
            for one in BATCHES
        ]
        plant_prototypes(
            model, lambda sums, equal=equal: equal, prior, LabelShard(model)
        )
        assert model.head.weights.isfinite().all()
