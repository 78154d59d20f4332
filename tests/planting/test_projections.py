"""Planting in closed form, on documents in which one token marks each label.

Suffixes: N documents, T tokens, D hidden width, L labels, V vocabulary.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.covariance import OAS
from sklearn.linear_model import Ridge
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from xmtc.data.collate import Batch
from xmtc.models.classifier import Classifier
from xmtc.models.heads.config import FlatConfig, HeadConfig, LabelAttentionConfig
from xmtc.planting.mig.ranking import TokenRanking
from xmtc.planting.projections import (
    PlantSums,
    plant_attention,
    plant_centre,
    plant_values,
)
from xmtc.planting.ridge_rows import RIDGE, plant_ridge_rows, ridge_rows
from xmtc.planting.rows import set_rows
from xmtc.planting.sums import VectorSums
from xmtc.planting.whitening import oas
from xmtc.training.label_shard import LabelShard
from xmtc.training.weights import BestWeights

N, T, D, L, V = 120, 10, 24, 6, 40
ATTENTION = LabelAttentionConfig(width=12, heads=2, dropout=0.0)


class NoEncoder(torch.nn.Module):
    """Batches bring their hidden states."""

    width = D

    def layers(self) -> list[torch.nn.Module]:
        return [torch.nn.Identity()]


def documents() -> list[Batch]:
    """Label l's documents contain token l + 1; the others are filler. A token's state is its vector and some noise."""
    generator = torch.Generator().manual_seed(0)
    ids_NT = torch.randint(L + 1, V, (N, T), generator=generator)
    gold_NL = (
        torch.rand(N, L - 1, generator=generator) < 0.3
    )  # the last label has no document
    for label in range(L - 1):
        ids_NT[gold_NL[:, label], label] = label + 1
    table_VD = (
        torch.randn(V, D, generator=generator) + 3
    )  # a large common part, as real encoders have
    hidden_NTD = table_VD[ids_NT] + 0.3 * torch.randn(N, T, D, generator=generator)
    mask_NT = torch.arange(T) < torch.randint(L, T + 1, (N, 1), generator=generator)
    found = []
    for rows in torch.arange(N).split(50):
        rows_P, labels_P = gold_NL[rows].nonzero(as_tuple=True)
        ids, mask = ids_NT[rows], mask_NT[rows]
        ones = torch.ones(len(rows))
        found.append(
            Batch(
                rows,
                ids,
                mask,
                ids,
                mask,
                None,
                rows_P,
                labels_P,
                ones,
                hidden_BTD=hidden_NTD[rows],
            )
        )
    return found


def build(
    settings: HeadConfig, width: int = D, labels: int = L
) -> tuple[Classifier, LabelShard]:
    torch.manual_seed(1)
    classifier = Classifier(NoEncoder(), settings.build(width, labels), labels)  # pyright: ignore[reportArgumentType]
    return classifier, LabelShard(classifier)


def sums_of(shard: LabelShard, batches: list[Batch]) -> PlantSums:
    sums = PlantSums(L, V, D, torch.device("cpu"))
    for batch in batches:
        assert batch.hidden_BTD is not None
        sums.add(batch.hidden_BTD, batch, shard)
    return sums


def ranking() -> TokenRanking:
    """Label l's best token is l + 1; the last label has none."""
    tokens_LK = np.full((L, 5), -1, np.int32)
    tokens_LK[:-1, 0] = np.arange(1, L)
    ones_LK = np.ones_like(tokens_LK)
    return TokenRanking(
        tokens_LK,
        ones_LK.astype(np.float32),
        ones_LK,
        np.ones(V, np.int32),
        np.ones(L, np.int32),
        N,
    )


def gold(batches: list[Batch]) -> Tensor:
    """Labels of all documents, (N, L)."""
    found_NL = torch.zeros(N, L)
    for batch in batches:
        found_NL[batch.documents_B[batch.rows_P], batch.labels_P] = 1
    return found_NL


def best_tokens(classifier: Classifier, batches: list[Batch]) -> Tensor:
    """Share of documents in which a label's token gets its highest score, of those that have it, (L - 1,)."""
    right_L, total_L = torch.zeros(2, L - 1)
    for batch in batches:
        scores_BLT = classifier.head.attention_scores(
            batch.hidden_BTD, batch.mask_BT, torch.arange(L - 1)
        ).mean(2)
        best_BL = scores_BLT.masked_fill(~batch.mask_BT[:, None], -torch.inf).argmax(2)
        for row, label in zip(
            batch.rows_P.tolist(), batch.labels_P.tolist(), strict=True
        ):
            right_L[label] += batch.token_ids_BT[row, best_BL[row, label]] == label + 1
            total_L[label] += 1
    return right_L / total_L


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("keys", [True, False])
def test_planted_attention_finds_the_tokens_of_each_label(
    normalize: bool, keys: bool
) -> None:
    classifier, shard = build(
        LabelAttentionConfig(width=12, heads=2, dropout=0.0, normalize=normalize)
    )
    head, batches = classifier.head, documents()
    size, before = (
        head.key_projection.weight.norm().item(),
        best_tokens(classifier, batches),
    )
    start = head.key_projection.weight.detach().clone()
    plant_attention(head, sums_of(shard, batches), ranking(), shard, seed=3, keys=keys)
    found_L = best_tokens(classifier, batches)
    assert found_L.mean() > (0.95 if keys else 0.7) > 0.5 > before.mean()
    assert head.key_projection.weight.norm().item() == pytest.approx(size, rel=1e-5)
    assert torch.equal(start, head.key_projection.weight) != keys
    assert head.queries[-1].norm() > 0, (
        "a label without ranked tokens attends as labels do in general"
    )


def test_values_have_unit_variance_and_tell_labels_apart() -> None:
    classifier, shard = build(ATTENTION)
    batches = documents()
    sums = sums_of(shard, batches)
    plant_values(classifier.head, sums, shard, seed=3)
    values_dD = classifier.head.value_projection.weight.detach()
    assert sums.token_variance(values_dD.double()).item() == pytest.approx(1, rel=1e-5)

    means_ND = torch.cat(
        [build(FlatConfig(dropout=0.0))[0].read(batch)[0] for batch in batches]
    )
    gold_NL = gold(batches)

    random_dD = build(ATTENTION)[0].head.value_projection.weight.detach()
    planted, random = (
        explained(means_ND @ projection.T, gold_NL)
        for projection in (values_dD, random_dD)
    )
    assert planted > random + 0.05


def explained(vectors_Nd: Tensor, gold_NL: Tensor) -> float:
    """Share of the labels' variance that a linear map of the vectors explains."""
    x_Nd, y_NL = ((x - x.mean(0)).numpy() for x in (vectors_Nd, gold_NL))
    rest_NL = y_NL - x_Nd @ np.linalg.lstsq(x_Nd, y_NL, rcond=None)[0]
    return 1 - float(np.square(rest_NL).sum() / np.square(y_NL).sum())


def test_planting_does_not_depend_on_rounding() -> None:
    """More dimensions than labels leave directions undecided, which must not be decided by the order of sums."""
    heads = []
    for batches in documents(), documents()[::-1]:
        classifier, shard = build(ATTENTION)
        sums = sums_of(shard, batches)
        plant_values(classifier.head, sums, shard, seed=3)
        plant_attention(classifier.head, sums, ranking(), shard, seed=3, keys=True)
        heads.append(classifier.head.state_dict())
    for name, tensor in heads[0].items():
        torch.testing.assert_close(heads[1][name], tensor, rtol=1e-3, atol=1e-4)


def test_shrinkage_is_that_of_scikit_learn() -> None:
    x_ND = np.random.default_rng(0).normal(size=(30, 8)) * np.arange(1, 9)
    x_ND -= x_ND.mean(0)
    found = oas(torch.from_numpy(x_ND.T @ x_ND / len(x_ND)), len(x_ND))
    np.testing.assert_allclose(
        found.numpy(), OAS(assume_centered=True).fit(x_ND).covariance_, rtol=1e-6
    )


def test_rows_of_a_flat_head_have_the_directions_of_a_ridge_regression() -> None:
    classifier, shard = build(FlatConfig(dropout=0.0))
    batches, prior_L = documents(), torch.linspace(-4, -1, L)
    plant_ridge_rows(classifier, lambda sums: batches, prior_L, shard)
    vectors_ND = torch.cat([classifier.read(batch)[0] for batch in batches]).numpy()
    gold_NL = gold(batches).numpy()
    ridge = Ridge(alpha=RIDGE * vectors_ND.var(0).mean() * N).fit(vectors_ND, gold_NL)
    rows_LD = classifier.head.weights.detach().numpy()
    assert not rows_LD[-1].any()  # no document
    rows_KD, expected_KD = (
        one[:-1] / np.linalg.norm(one[:-1], axis=1, keepdims=True)
        for one in (rows_LD, ridge.coef_)
    )
    np.testing.assert_allclose(rows_KD, expected_KD, atol=1e-3)
    logits_NL = vectors_ND @ rows_LD.T + classifier.head.bias.detach().numpy()
    negatives_L = (logits_NL * (1 - gold_NL)).sum(0) / (1 - gold_NL).sum(0)
    np.testing.assert_allclose(negatives_L, prior_L.numpy(), atol=1e-3)


def test_planted_rows_of_rare_and_common_labels_start_training_at_a_low_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    documents, width, labels = 4000, 256, 40
    chances_L = torch.logspace(-3, -0.5, labels)
    gold_NL = (torch.rand(documents, labels, generator=generator) < chances_L).float()
    states_ND = torch.cat(
        [gold_NL, torch.randn(documents, 24, generator=generator)], 1
    )  # fewer than the vectors' numbers
    x_NP = torch.relu(
        states_ND @ torch.randn(states_ND.shape[1], width, generator=generator)
    )
    sums = VectorSums(labels, width, torch.device("cpu"))
    sums.products_PP.copy_(x_NP.T.double() @ x_NP.double())
    sums.vector_P.copy_(x_NP.double().sum(0))
    sums.documents.fill_(documents)
    sums.by_label_LP.copy_(gold_NL.T @ x_NP)
    sums.counts_L.copy_(gold_NL.sum(0))
    prior_L = torch.logit(gold_NL.mean(0).clamp(min=1 / documents))

    def loss(seen_NP: Tensor, penalty: float) -> float:
        classifier, shard = build(FlatConfig(), width, labels)
        with torch.no_grad():
            responses = ridge_rows(sums, shard.sum_of_all, dropout=penalty)
            set_rows(classifier.head, responses, prior_L, shard, most=1.0)
            logits_NL = seen_NP @ classifier.head.weights.T + classifier.head.bias
        return float(binary_cross_entropy_with_logits(logits_NL, gold_NL))

    of_priors = float(
        binary_cross_entropy_with_logits(prior_L.expand_as(gold_NL), gold_NL)
    )
    dropped_NP = torch.nn.functional.dropout(x_NP, 0.5)
    assert loss(x_NP, 0.0) < of_priors
    assert loss(dropped_NP, 0.5) < of_priors
    assert loss(dropped_NP, 0.0) > of_priors


@pytest.mark.parametrize("normalize", [True, False])
def test_a_direction_that_all_states_share_changes_nothing(normalize: bool) -> None:
    settings = LabelAttentionConfig(width=12, heads=2, dropout=0.0, normalize=normalize)
    planted = []
    for shift in (0.0, 20.0):
        classifier, shard = build(settings)
        batches = [
            replace(batch, hidden_BTD=batch.hidden_BTD + shift) for batch in documents()
        ]
        sums = sums_of(shard, batches)
        plant_centre(classifier.head, sums)
        plant_values(classifier.head, sums, shard, seed=3)
        plant_attention(classifier.head, sums, ranking(), shard, seed=3, keys=True)
        planted.append(torch.cat([classifier(batch) for batch in batches]))
    torch.testing.assert_close(planted[0], planted[1], atol=2e-2, rtol=2e-2)  # rounding
    assert planted[0].std() > 0.1


def test_the_best_weights_keep_the_centre(tmp_path: Path) -> None:
    classifier, shard = build(ATTENTION)
    plant_centre(classifier.head, sums_of(shard, documents()))
    centre_D = classifier.head.key_projection.centre
    planted = centre_D.clone()
    best = BestWeights(
        tmp_path / "best.safetensors",
        classifier,
        [classifier.head.key_projection.weight],
    )
    strategy: Any = SimpleNamespace(rank=0, gather_trainable=dict)
    best.save(strategy)
    centre_D.zero_()
    best.restore()
    assert planted.norm() > 1
    torch.testing.assert_close(centre_D, planted)
