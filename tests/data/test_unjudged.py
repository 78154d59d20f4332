"""Labels that nobody judged are left out of the loss and of the metrics."""

import json

import numpy as np
import torch
from scipy import sparse

from corpora import data_config, serial
from xmtc.data.prepare import prepare
from xmtc.evaluate.histogram import ScoreHistogram
from xmtc.fusion.pairs import Pairs
from xmtc.losses.base import Targets, without_unjudged
from xmtc.losses.binary_cross_entropy import BinaryCrossEntropy
from xmtc.scorers.config import LinearConfig, WordNeighboursConfig
from xmtc.scorers.predictions import SparsePredictions
from xmtc.stages.scorers import warn_of_unjudged


def test_a_corpus_keeps_which_labels_nobody_judged(tmp_path, caplog):
    rows = [{"text": f"text {i}", "labels": ["x"], "rejected": None} for i in range(20)]
    rows += [
        {"text": f"part {i}", "labels": ["y"], "rejected": ["z"]} for i in range(20)
    ]
    rows += [
        {"text": f"other {i}", "labels": ["z"], "rejected": None} for i in range(20)
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {
        "kind": "jsonl",
        "files": {"train": str(path)},
        "columns": {"rejected": "rejected"},
    }
    corpus = prepare(
        data_config(tmp_path / "corpus", source), None, map_unordered=serial
    )
    split = corpus.split("train")
    matrix = split.unjudged_matrix()
    assert matrix is not None
    x, y, z = (corpus.labels.labels.index(label) for label in "xyz")
    gold = split.label_matrix().toarray()
    unjudged = matrix.toarray()
    assert (unjudged[:, x] == gold[:, y]).all()
    assert not unjudged[:, [y, z]].any()
    partial = int(np.flatnonzero(gold[:, y])[0])
    assert split.unjudged_ids(partial).tolist() == [x]
    warn_of_unjudged(7, [LinearConfig()])
    assert "nobody" not in caplog.text
    warn_of_unjudged(7, [LinearConfig(), WordNeighboursConfig()])
    assert "word_neighbours are fitted as if 7 labels that nobody" in caplog.text


def test_labels_that_nobody_judged_have_neither_loss_nor_gradient():
    logits_BC = torch.randn(3, 4, requires_grad=True)
    rows_P, columns_P = torch.tensor([0, 2]), torch.tensor([1, 3])
    targets = Targets(
        rows_P,
        columns_P,
        torch.ones(3),
        unjudged_rows_J=torch.tensor([0, 1]),
        unjudged_columns_J=torch.tensor([2, 0]),
    )
    total = BinaryCrossEntropy()(without_unjudged(logits_BC, targets), targets).sum
    total.backward()
    gold_BC = torch.zeros(3, 4)
    gold_BC[rows_P, columns_P] = 1
    judged_BC = torch.ones(3, 4)
    judged_BC[0, 2] = judged_BC[1, 0] = 0
    losses_BC = torch.nn.functional.binary_cross_entropy_with_logits(
        logits_BC, gold_BC, reduction="none"
    )
    torch.testing.assert_close(total, (losses_BC * judged_BC).sum())
    assert logits_BC.grad is not None
    assert logits_BC.grad[0, 2] == logits_BC.grad[1, 0] == 0


def test_where_half_of_the_judgements_are_hidden_leaving_them_out_finds_more_labels():
    """Each label is told by a word of its own; hidden labels that count as absent pull probabilities below one half."""
    draw = torch.Generator().manual_seed(0)
    gold_NL = (torch.rand(600, 12, generator=draw) < 0.25).float()
    words_NV = gold_NL + 0.3 * torch.randn(600, 12, generator=draw)
    judged_NL = torch.rand(600, 12, generator=draw) < 0.5
    train, test = slice(0, 400), slice(400, 600)
    seen_NL = gold_NL[train] * judged_NL[train]
    rows_P, columns_P = seen_NL.nonzero(as_tuple=True)
    rows_J, columns_J = (~judged_NL[train]).nonzero(as_tuple=True)

    def f1(masked: bool) -> float:
        torch.manual_seed(0)
        layer = torch.nn.Linear(12, 12)
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
        targets = Targets(rows_P, columns_P, torch.ones(400))
        if masked:
            targets = Targets(
                rows_P,
                columns_P,
                torch.ones(400),
                unjudged_rows_J=rows_J,
                unjudged_columns_J=columns_J,
            )
        for _ in range(150):
            optimizer.zero_grad()
            (
                BinaryCrossEntropy()(
                    without_unjudged(layer(words_NV[train]), targets), targets
                ).sum
                / 400
            ).backward()
            optimizer.step()
        predicted_NL = layer(words_NV[test]) > 0
        right = (predicted_NL & (gold_NL[test] > 0)).sum()
        return float(2 * right / (predicted_NL.sum() + gold_NL[test].sum()))

    assert f1(masked=True) > f1(masked=False) + 0.03


def test_predictions_that_nobody_judged_count_neither_as_right_nor_as_wrong():
    predictions = SparsePredictions(
        np.array([[2, 0, 1], [1, 2, -1]], np.int32),
        np.array([[0.9, 0.5, 0.1]] * 2, np.float32),
    )
    unjudged = sparse.csr_array(np.array([[False, False, True], [False, False, False]]))
    assert predictions.without(unjudged).label_ids_NK.tolist() == [
        [0, 1, -1],
        [1, 2, -1],
    ]
    assert predictions.without(None) is predictions
    histogram = ScoreHistogram(3)
    gold = sparse.csr_array(np.array([[True, False, False], [False, True, False]]))
    histogram.update(
        torch.tensor([[3.0, -3.0, 5.0], [-3.0, 3.0, -3.0]]), gold, unjudged
    )
    assert histogram.all_LH.sum() == 5
    assert histogram.auc().micro == 1.0


def test_pairs_that_nobody_judged_are_no_candidates():
    pairs = Pairs(
        np.array([[0, 1, 2], [1, 2, -1]], np.int32),
        np.array([[[0.9, 0.5, 0.1], [0.4, 0.2, 0]]], np.float32),
    )
    unjudged = sparse.csr_array(np.array([[False, False, True], [True, True, False]]))
    judged = pairs.without(unjudged)
    assert judged.label_ids_NK.tolist() == [[0, 1, -1], [-1, 2, -1]]
    np.testing.assert_allclose(judged.scores_SNK, [[[0.9, 0.5, 0], [0, 0.2, 0]]])
    assert pairs.without(None) is pairs
