"""N-gram evidence beside an encoder: which n-grams there are, what they count for, what is refused."""

import math

import numpy as np
import pytest
import torch
from tiny import VOCAB, whole_documents

from xmtc.errors import ConfigError
from xmtc.models.encoders.bag import BagConfig
from xmtc.models.encoders.embedding import EmbeddingConfig
from xmtc.models.encoders.ngrams import NGramsConfig, ngram_buckets

BAG = BagConfig(embedding=EmbeddingConfig(width=16))


class Split:
    """Documents as (tokens, labels)."""

    def __init__(self, *documents):
        self.documents = documents

    def __len__(self):
        return len(self.documents)

    def tokens(self, document):
        return np.array(self.documents[document][0], np.int32)

    def label_ids(self, document):
        return np.array(self.documents[document][1], np.int32)


GOOD, BAD = ([5, 6, 9], [0]), ([6, 5, 9], [1])
CORPUS = Split(GOOD, GOOD, GOOD, BAD, BAD, BAD)


def started(**settings):
    torch.manual_seed(0)
    config = NGramsConfig(**({"base": BAG, "labels": 2, "longest": 2, "buckets": 1 << 16} | settings))
    encoder = config.build(VOCAB)
    encoder.start(CORPUS, 2)
    return encoder.eval()


def evidence(encoder, tokens):
    ids = torch.tensor([tokens])
    return encoder(ids, torch.ones_like(ids, dtype=torch.bool))[0, :, -2:]


def test_a_bucket_stands_for_the_tokens_in_their_order_and_only_within_the_document():
    ids = torch.tensor([[5, 6, 5, 6, 0], [6, 5, 6, 0, 0]])
    mask = ids > 0
    (one, whole_one), (two, whole_two) = ngram_buckets(ids, mask, 2, 1 << 16)
    assert one[0, 0] == one[0, 2] == one[1, 1]
    assert two[0, 1] == two[0, 3] == two[1, 2]
    assert two[0, 1] != two[0, 2]
    assert len({int(b) for b in (*one[0, :2], *two[0, 1:3])}) == 4
    assert whole_one.equal(mask)
    assert whole_two.tolist() == [[False, True, True, True, False], [False, True, True, False, False]]


def test_starts_as_the_base_encoder():
    encoder, batch = started(), whole_documents([7, 4])
    hidden = encoder(batch.input_ids_WU, batch.attention_mask_WU)
    assert hidden.shape == (2, 7, 18)
    torch.testing.assert_close(hidden[..., :16], encoder.base(batch.input_ids_WU, batch.attention_mask_WU))
    assert (hidden[..., 16:] == 0).all()


def test_evidence_is_the_naive_bayes_log_odds_where_the_order_tells_the_labels_apart():
    encoder = started()
    torch.nn.init.ones_(encoder.gain_FK)
    good, bad = evidence(encoder, [5, 6]), evidence(encoder, [6, 5])
    torch.testing.assert_close(good, bad.flip(1))
    assert (good[0] == 0).all()  # alone, 5 is in as many documents of either label
    log_odds = math.log(((3 + 1) / (3 + 1)) / ((0 + 1) / (3 + 1)))
    # one bigram "5 6" in each good document of three tokens, "6 9" beside it: the mean over tokens is 2/3 log_odds
    assert good[1, 0].item() == pytest.approx(log_odds / (2 / 3 * log_odds), rel=1e-4)


def test_rare_ngrams_and_padding_count_for_nothing():
    encoder = started(min_documents=4)
    torch.nn.init.ones_(encoder.gain_FK)
    assert (evidence(encoder, [5, 6]) == 0).all()
    encoder = started()
    torch.nn.init.ones_(encoder.gain_FK)
    ids = torch.tensor([[5, 6, 0, 0]])
    padded = encoder(ids, ids > 0)[0]
    torch.testing.assert_close(padded[:2, -2:], evidence(encoder, [5, 6]))
    assert (padded[2:] == 0).all()


def test_training_moves_the_gains_and_drops_out():
    encoder = started(dropout=0.5).train()
    torch.nn.init.ones_(encoder.gain_FK)
    ids = torch.tensor([[5, 6]] * 64)
    shares = encoder(ids, torch.ones_like(ids, dtype=torch.bool))[:, 1, -2]
    assert set(shares.ne(0).tolist()) == {True, False}
    shares.sum().backward()
    assert encoder.gain_FK.grad.ne(0).any(1).sum() == 1


def test_another_number_of_labels_is_refused():
    with pytest.raises(ConfigError, match=r"model.encoder.labels: 2, but the corpus has 5"):
        NGramsConfig(base=BAG, labels=2, buckets=1024).build(VOCAB).start(CORPUS, 5)
