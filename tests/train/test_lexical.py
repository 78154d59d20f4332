"""The lexical branch: features as scikit-learn's, weights as its SVM's, logits that sum up, a file that comes back."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.special import log_softmax
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

import tiny_runs
from xmtc.data.corpus import Corpus
from xmtc.errors import CheckpointError, DataError
from xmtc.models.config import LexicalConfig
from xmtc.models.lexical import Lexical
from xmtc.models.terms import Terms
from xmtc.pipeline import prepare_stage
from xmtc.train.fit_lexical import _learned_from, _temperature, fit_lexical


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
        task="multi_label",
        seed=13,
    )


def padded(corpus: Corpus, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask of a whole split, each text between special tokens."""
    tokenizer, part = corpus.tokenizer(), corpus.split(split)
    special = tokenizer.all_special_ids[0]
    wrapped = [torch.tensor([special, *part.tokens(row), special]) for row in range(len(part))]
    ids_BT = torch.nn.utils.rnn.pad_sequence(wrapped, batch_first=True)
    return ids_BT, torch.arange(ids_BT.shape[1])[None] < torch.tensor([len(one) for one in wrapped])[:, None]


def features(terms: Terms, ids_BT: torch.Tensor, mask_BT: torch.Tensor) -> np.ndarray:
    """TF-IDF (B, F)."""
    terms_U, tfidf_BU, _ = terms.tfidf(terms.found(ids_BT, mask_BT))
    found_BF = np.zeros((len(ids_BT), terms.nothing + 1), np.float32)
    found_BF[:, terms_U.numpy()] = tfidf_BU.numpy()
    assert not found_BF[:, -1].any(), "what is no term has a weight"
    return found_BF[:, :-1]


def test_features_and_margins_are_scikit_learns(corpus):
    lexical = fit(corpus, c=2.0, prune=0.0)
    ids_BT, mask_BT = padded(corpus, "train")
    special = corpus.tokenizer().all_special_ids
    counts_BV = np.stack([np.bincount(row, minlength=len(lexical.idf_F)) for row in ids_BT.where(mask_BT, special[0])])
    counts_BV[:, special] = 0
    expected_BV = TfidfTransformer(sublinear_tf=True).fit_transform(counts_BV)
    np.testing.assert_allclose(features(lexical.terms, ids_BT, mask_BT), expected_BV.toarray(), atol=1e-6)
    gold = corpus.split("train").label_matrix().toarray()
    margins_BL = lexical.margins(ids_BT, mask_BT).numpy()
    for label in range(lexical.labels):
        machine = LinearSVC(C=2.0, tol=1e-2, random_state=13).fit(expected_BV, gold[:, label])
        np.testing.assert_allclose(margins_BL[:, label], machine.decision_function(expected_BV), atol=1e-3)


def test_ngrams_are_scikit_learns(corpus):
    terms = fit(corpus, ngrams=3, min_documents=2).terms
    train, special = corpus.split("train"), set(corpus.tokenizer().all_special_ids)
    documents = [train.tokens(row).tolist() for row in range(len(train))]
    assert not special & {token for document in documents for token in document}, "special tokens would divide n-grams"
    vectorizer = TfidfVectorizer(analyzer=lambda tokens: grams(tokens, 3), sublinear_tf=True)
    expected_BX = vectorizer.fit_transform(documents).toarray()
    documents_X = (expected_BX > 0).sum(0)
    names = vectorizer.get_feature_names_out()
    kept = [i for i, gram in enumerate(names) if len(gram) == 1 or documents_X[i] >= 2]
    assert len(kept) == int((terms.idf_F > 0).sum()) < len(names)
    expected_BX = normalize(expected_BX[:, kept])
    found_BF = features(terms, *padded(corpus, "train"))
    order = [term_of(terms, names[i]) for i in kept]
    np.testing.assert_allclose(found_BF[:, order], expected_BX, atol=1e-6)


def grams(tokens: list[int], longest: int) -> list[tuple[int, ...]]:
    return [tuple(tokens[i : i + n]) for n in range(1, longest + 1) for i in range(len(tokens) - n + 1)]


def term_of(terms: Terms, gram: tuple[int, ...]) -> int:
    """The last of the terms that the n-gram, as a document of its own, has."""
    return int(terms.found(torch.tensor([gram]), torch.ones(1, len(gram), dtype=torch.bool))[0, len(gram) - 1, -1])


def test_an_ngram_with_an_unknown_token_is_none(corpus):
    terms = fit(corpus, ngrams=2, min_documents=1).terms
    tokens, special = corpus.split("train").tokens(0)[:4].tolist(), corpus.tokenizer().all_special_ids[0]
    ids_1T = torch.tensor([[tokens[0], tokens[1], special, tokens[2], tokens[3]]])
    found_NT = terms.found(ids_1T, torch.ones_like(ids_1T, dtype=torch.bool))[0]
    nothing = [[False, False, True, False, False], [True, False, True, True, False]]
    assert (found_NT == terms.nothing).tolist()[:2] == nothing
    first_missing = torch.tensor([[False, True, True, True, True]])
    assert (terms.found(ids_1T, first_missing)[0, 1, :2] == terms.nothing).all(), "padding begins an n-gram"


def test_weighting_by_log_odds_is_nb_svm(corpus):
    lexical = fit(corpus, weighting="log_odds", c=2.0, prune=0.0)
    ids_BT, mask_BT = padded(corpus, "train")
    features_BF = features(lexical.terms, ids_BT, mask_BT)
    gold = corpus.split("train").label_matrix().toarray()
    margins_BL = lexical.margins(ids_BT, mask_BT).numpy()
    for label in range(lexical.labels):
        has = gold[:, label]
        with_F, without_F = ((features_BF[rows] > 0).mean(0) * rows.sum() + 1 for rows in (has, ~has))
        scale_F = np.log(with_F / (has.sum() + 1) / (without_F / ((~has).sum() + 1)))
        machine = LinearSVC(C=2.0, tol=1e-2, random_state=13).fit(sparse.csr_array(features_BF * scale_F), has)
        np.testing.assert_allclose(margins_BL[:, label], machine.decision_function(features_BF * scale_F), atol=1e-3)


@pytest.mark.parametrize("ngrams", [1, 3])
def test_contributions_sum_to_the_logits(corpus, ngrams):
    lexical = fit(corpus, ngrams=ngrams, min_documents=1)
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
            task="multi_label",
            seed=13,
        )


def test_labels_that_exclude_each_other_get_the_likeliest_temperature(corpus):
    margins_NK = np.array([[1, -1], [-1, 1], [0.5, -0.5], [0.2, -0.2]], np.float32)
    hits_NK = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], bool)
    scale, offset = _temperature(margins_NK, hits_NK)
    tried = {s: float(-log_softmax(s * margins_NK, axis=1)[hits_NK].mean()) for s in (scale, scale * 1.1, scale / 1.1)}
    assert offset == 0
    assert min(tried, key=lambda s: tried[s]) == scale
