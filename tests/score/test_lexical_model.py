"""A model with a lexical branch: scoring some labels gives them the scores that they have among all."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from test_batch import COLUMNS, read_output, score, write_rows
from test_predictor import LABELS, VOCAB, export

from xmtc.models.config import LexicalConfig
from xmtc.models.export import export_model, load_model
from xmtc.models.lexical import Lexical
from xmtc.score.job import Settings


def random_branch(labels: int = LABELS) -> Lexical:
    """Weights of a different number for each label, none for label 0."""
    random = torch.Generator().manual_seed(0)
    kept_LV = torch.rand(labels, VOCAB, generator=random) < torch.linspace(0, 0.6, labels)[:, None]
    rows = sparse.csr_array(torch.randn(labels, VOCAB, generator=random).where(kept_LV, 0).numpy())
    return Lexical(
        torch.rand(VOCAB, generator=random),
        torch.empty(0, dtype=torch.int64),
        torch.from_numpy(rows.indptr).int(),
        torch.from_numpy(rows.indices).int(),
        torch.from_numpy(rows.data),
        torch.randn(labels, generator=random),
        torch.tensor([1.5, -0.3]),
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    parts = load_model(export(tmp_path_factory.mktemp("plain") / "model"))
    parts.classifier.lexical, parts.classifier.lexical_share = random_branch(), 0.6
    info = replace(parts.info, model=replace(parts.info.model, lexical=LexicalConfig()))
    target = tmp_path_factory.mktemp("run") / "model"
    trained = dict(parts.classifier.named_parameters())
    return export_model(target, replace(parts, info=info, threshold=0.5, thresholds_L=None), trained)


def test_some_labels_keep_the_scores_that_they_have_among_all(directory, tmp_path):
    source = write_rows(tmp_path / "in.jsonl", 4)
    some = ("L17", "L00", "L03")
    for name, labels in (("all", None), ("some", some)):
        score(
            directory, source, tmp_path / name, Settings(top_k=LABELS, bfloat16=False, include=labels, columns=COLUMNS)
        )
    everything = read_output(tmp_path / "all").to_pylist()
    for row, whole in zip(read_output(tmp_path / "some").to_pylist(), everything, strict=True):
        wanted = {label: s for label, s in zip(whole["labels"], whole["scores"], strict=True) if label in some}
        assert row["labels"] == list(wanted)
        np.testing.assert_allclose(row["scores"], list(wanted.values()), atol=1e-6)


def test_some_labels_and_a_shortlist_of_these(directory, tmp_path):
    source = write_rows(tmp_path / "in.jsonl", 4)
    some = ("L03", "L17", "L21")
    settings = Settings(top_k=3, bfloat16=False, include=some, columns=COLUMNS)
    score(directory, source, tmp_path / "some", settings)
    score(directory, source, tmp_path / "two", replace(settings, shortlist=2))
    for row, whole in zip(
        read_output(tmp_path / "two").to_pylist(), read_output(tmp_path / "some").to_pylist(), strict=True
    ):
        scores = dict(zip(whole["labels"], whole["scores"], strict=True))
        assert len(row["labels"]) == 2
        np.testing.assert_allclose(row["scores"], [scores[label] for label in row["labels"]], atol=1e-6)


def test_rows_of_a_branch_cut_down_are_those_of_the_whole():
    whole, ids = random_branch(), torch.tensor([22, 0, 5])
    token_ids_BT, mask_BT = torch.arange(40).view(2, 20), torch.ones(2, 20, dtype=torch.bool)
    expected_BS = whole.logits(token_ids_BT, mask_BT)[:, ids]
    torch.testing.assert_close(whole.of(ids).logits(token_ids_BT, mask_BT), expected_BS)


@pytest.mark.parametrize("ids", [[4, 0, 21], [[4, 0, 21], [21, 9, -1]]])
def test_a_shortlist_gets_its_columns_and_no_others(ids, monkeypatch):
    whole, shortlist = random_branch(), torch.tensor(ids)
    token_ids_BT, mask_BT = torch.arange(40).view(2, 20), torch.ones(2, 20, dtype=torch.bool)
    expected_BS = whole.logits(token_ids_BT, mask_BT).gather(1, shortlist.expand(2, -1).clamp(min=0))
    margins = Lexical.margins
    monkeypatch.setattr(Lexical, "margins", lambda self, *x: margins(self, *x) if self.labels == 3 else 1 / 0)
    found_BS = whole.logits(token_ids_BT, mask_BT, shortlist)
    kept_BS = shortlist.expand(2, -1) >= 0
    torch.testing.assert_close(found_BS[kept_BS], expected_BS[kept_BS])
