"""The lexical branch: features as scikit-learn's, weights as its SVM's, logits that sum up, a file that comes back."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.svm import LinearSVC

import tiny_runs
from xmtc.data.corpus import Corpus
from xmtc.errors import CheckpointError, DataError
from xmtc.models.lexical import Lexical, LexicalConfig, counts
from xmtc.orchestrate.pipeline import prepare_stage
from xmtc.train.lexical import _learned_from, fit_lexical


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return prepare_stage(tiny_runs.load(tiny_runs.write_config(tmp_path_factory.mktemp("lexical"))))


def fit(corpus: Corpus, **settings: object) -> Lexical:
    tokenizer = corpus.tokenizer()
    return fit_lexical(
        corpus.split("train"),
        corpus.split("dev"),
        LexicalConfig(**settings),
        vocabulary=len(tokenizer),
        special_token_ids=tokenizer.all_special_ids,
        seed=13,
    )


def padded(corpus: Corpus, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask of a whole split, each text between special tokens."""
    tokenizer, part = corpus.tokenizer(), corpus.split(split)
    special = tokenizer.all_special_ids[0]
    wrapped = [torch.tensor([special, *part.tokens(row), special]) for row in range(len(part))]
    ids_BT = torch.nn.utils.rnn.pad_sequence(wrapped, batch_first=True)
    return ids_BT, torch.arange(ids_BT.shape[1])[None] < torch.tensor([len(one) for one in wrapped])[:, None]


def test_features_and_margins_are_scikit_learns(corpus):
    lexical = fit(corpus, c=2.0, prune=0.0)
    ids_BT, mask_BT = padded(corpus, "train")
    special = corpus.tokenizer().all_special_ids
    counts_BV = counts(ids_BT, mask_BT, len(lexical.idf_V)).numpy()
    counts_BV[:, special] = 0
    expected_BV = TfidfTransformer(sublinear_tf=True).fit_transform(counts_BV)
    features_BV = lexical.features(ids_BT, mask_BT)
    np.testing.assert_allclose(features_BV.numpy(), expected_BV.toarray(), atol=1e-6)
    gold = corpus.split("train").label_matrix().toarray()
    for label in range(lexical.labels):
        machine = LinearSVC(C=2.0, tol=1e-2, random_state=13).fit(expected_BV, gold[:, label])
        np.testing.assert_allclose(
            lexical.margins(features_BV)[:, label].numpy(), machine.decision_function(expected_BV), atol=1e-3
        )


def test_contributions_sum_to_the_logits(corpus):
    lexical = fit(corpus)
    ids_BT, mask_BT = padded(corpus, "dev")
    labels_S = torch.tensor([4, 0, 2])
    shares_BST, constant_S = lexical.contributions(ids_BT, mask_BT, labels_S)
    logits_BL = lexical.logits(ids_BT, mask_BT)
    torch.testing.assert_close(shares_BST.sum(2) + constant_S, logits_BL[:, labels_S], atol=1e-4, rtol=1e-4)
    assert not shares_BST[:, :, 0].any(), "a special token counts"
    assert not shares_BST.transpose(1, 2)[~mask_BT].any(), "padding counts"


def test_calibrated_logits_are_log_odds_on_dev(corpus):
    lexical = fit(corpus)
    probabilities_BL = lexical.logits(*padded(corpus, "dev")).sigmoid()
    gold = corpus.split("dev").label_matrix().toarray()
    assert float(probabilities_BL.mean()) == pytest.approx(gold.mean(), abs=0.01)
    assert probabilities_BL[gold].mean() > 0.6 > 0.3 > probabilities_BL[~gold].mean()


def test_saved_and_loaded(corpus, tmp_path: Path):
    lexical = fit(corpus)
    lexical.save(tmp_path / "lexical.safetensors")
    loaded = Lexical.load(tmp_path / "lexical.safetensors")
    for field in dataclasses.fields(lexical):
        assert torch.equal(getattr(lexical, field.name), getattr(loaded, field.name)), field.name
    (tmp_path / "lexical.safetensors").write_bytes(b"short")
    with pytest.raises(CheckpointError, match=r"lexical\.safetensors: not a lexical branch"):
        Lexical.load(tmp_path / "lexical.safetensors")


def test_pruning_drops_small_weights_only(corpus):
    whole, pruned = fit(corpus, prune=0.0), fit(corpus, prune=0.1)
    assert torch.equal(pruned.values, whole.values[whole.values.abs() >= 0.1])
    assert 0 < len(pruned.values) < len(whole.values)


def test_a_label_learns_from_its_documents_and_those_most_like_them(corpus):
    features = sparse.csr_array(np.array([[1, 0, 0], [0.9, 0.1, 0], [0, 1, 0], [0.5, 0.5, 0], [0, 0, 1]], np.float32))
    positives = np.array([0], np.int32)
    assert _learned_from(features, positives, 2).tolist() == [0, 1, 3]
    assert _learned_from(features, positives, 4).tolist() == [0, 1, 2, 3, 4]


def test_a_dev_split_without_the_labels_is_refused(corpus):
    train = corpus.split("train")

    class Unlabelled:
        name, lengths = "dev", train.lengths

        def __len__(self) -> int:
            return len(train)

        def tokens(self, row: int):
            return train.tokens(row)

        def label_matrix(self):
            return train.label_matrix() * False

    tokenizer = corpus.tokenizer()
    with pytest.raises(DataError, match=r"cannot be calibrated: give a dev split that shares labels with train"):
        fit_lexical(
            train,
            Unlabelled(),
            LexicalConfig(),
            vocabulary=len(tokenizer),
            special_token_ids=tokenizer.all_special_ids,
            seed=13,
        )
