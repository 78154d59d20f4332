import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from corpora import MINILM, small_corpus
from xmtc.data.collate import Collator
from xmtc.data.sampler import MicroBatch
from xmtc.data.tokenizer import special_tokens
from xmtc.data.windows import cut
from xmtc.errors import ConfigError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    minilm = {"kind": "pretrained", "name": MINILM}
    return small_corpus(tmp_path_factory.mktemp("collate"), tokenizer=minilm)


def word_tokenizer(template: str | None) -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel({"<u>": 0, "<s>": 1, "a": 2}, unk_token="<u>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    if template:
        inner.post_processor = processors.TemplateProcessing(
            template, special_tokens=[("<s>", 1)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<u>")


def micro_batch(*documents: int) -> MicroBatch:
    return MicroBatch(
        np.array(documents, dtype=np.int64),
        np.array([1] * len(documents), dtype=np.float32),
    )


def test_special_tokens_of_each_kind(corpus):
    assert special_tokens(corpus.tokenizer()) == ([101], [102])
    assert special_tokens(word_tokenizer("<s> $A")) == ([1], [])
    assert special_tokens(word_tokenizer(None)) == ([], [])


def test_whole_documents(corpus):
    train = corpus.split("train")
    batch = Collator(train, corpus.tokenizer(), window=512, overlap=64)(
        micro_batch(3, 17, 40)
    )
    assert batch.position_BT is None
    assert batch.input_ids_WU is batch.token_ids_BT
    for row, document in enumerate((3, 17, 40)):
        expected = [101, *train.tokens(document).tolist(), 102]
        assert batch.token_ids_BT[row][batch.mask_BT[row]].tolist() == expected
        assert batch.mask_BT[row].sum() == len(expected)
        labels = batch.labels_P[batch.rows_P == row]
        assert labels.tolist() == train.label_ids(document).tolist()
    assert batch.documents_B.tolist() == [3, 17, 40]
    assert (batch.token_ids_BT[~batch.mask_BT] == corpus.tokenizer().pad_token_id).all()


@pytest.mark.parametrize(("window", "overlap"), [(16, 4), (9, 0), (20, 17), (33, 5)])
def test_windows_find_every_token_again(corpus, window, overlap):
    train = corpus.split("train")
    longest = np.argsort(train.lengths)[[-1, -5, 0, 3]]
    batch = Collator(train, corpus.tokenizer(), window=window, overlap=overlap)(
        micro_batch(*longest)
    )
    assert batch.position_BT is not None
    assert batch.input_ids_WU.shape[1] <= window
    flat_ids, flat_mask = (
        batch.input_ids_WU.flatten(),
        batch.attention_mask_WU.flatten(),
    )
    found = flat_ids[batch.position_BT]
    assert torch.equal(found[batch.mask_BT], batch.token_ids_BT[batch.mask_BT])
    assert flat_mask[batch.position_BT[batch.mask_BT]].all()
    assert (batch.position_BT[~batch.mask_BT] == 0).all()
    assert (batch.input_ids_WU[:, 0] == 101).all()
    assert (batch.attention_mask_WU.sum(1) <= window).all()


def test_a_crop_is_a_span_of_the_document_that_the_seed_determines(corpus):
    train = corpus.split("train")
    shortest, longest = np.argsort(train.lengths)[[0, -1]]
    crop = int(train.lengths[longest]) - 3
    collate = Collator(train, corpus.tokenizer(), window=512, overlap=64, crop=crop)
    starts = set()
    for seed in range(50):
        batch = collate(micro_batch(shortest, longest), seed)
        assert torch.equal(
            batch.token_ids_BT,
            collate(micro_batch(shortest, longest), seed).token_ids_BT,
        )
        short, span = (
            batch.token_ids_BT[row][batch.mask_BT[row]].tolist() for row in range(2)
        )
        assert short == [101, *train.tokens(shortest).tolist(), 102]
        whole = train.tokens(longest).tolist()
        start = next(
            start
            for start in range(4)
            if [101, *whole[start : start + crop], 102] == span
        )
        starts.add(start)
    assert starts == {0, 1, 2, 3}


@pytest.mark.parametrize("content", [11, 12, 19, 40, 41, 57])
def test_each_token_is_taken_where_it_is_farthest_from_the_edges(content):
    capacity, overlap, prefix = 10, 4, 1
    one = cut(content, capacity, overlap, prefix, 1)
    assert one.starts_W[0] == 0
    assert one.starts_W[-1] == content - one.length
    assert (np.diff(one.starts_W) <= one.length - overlap).all()
    assert one.length <= capacity
    assert len(one.starts_W) == -(
        -(content - overlap) // (capacity - overlap)
    )  # no fewer windows hold the document
    assert (
        len(one.starts_W) * (one.length - 1)
        < content + (len(one.starts_W) - 1) * overlap
    )  # nor shorter ones
    assert len(one.window_T) == content + 2
    for token in range(content):
        inside = [
            (min(token - start, start + one.length - 1 - token), window)
            for window, start in enumerate(one.starts_W)
            if start <= token < start + one.length
        ]
        window = one.window_T[prefix + token]
        margin = next(margin for margin, w in inside if w == window)
        assert margin == max(inside)[0]
        assert one.offset_T[prefix + token] == prefix + token - one.starts_W[window]
    assert one.window_T[-1] == len(one.starts_W) - 1
    assert one.offset_T[-1] == prefix + one.length


def test_cached_hidden_states_are_padded(corpus):
    train = corpus.split("train")

    class Lengths:
        def read(self, documents):
            return [
                torch.full((int(train.lengths[d]) + 2, 3), float(d)) for d in documents
            ]

    batch = Collator(
        train, corpus.tokenizer(), window=512, overlap=0, hidden=Lengths()
    )(micro_batch(2, 5))
    assert batch.hidden_BTD is not None
    assert batch.hidden_BTD.shape == (*batch.mask_BT.shape, 3)
    assert (batch.hidden_BTD[batch.mask_BT] != 0).all()
    assert (batch.hidden_BTD[~batch.mask_BT] == 0).all()


def test_overlap_must_leave_room(corpus):
    with pytest.raises(
        ConfigError, match="hold 14 without special tokens, but overlap by 14"
    ):
        Collator(corpus.split("train"), corpus.tokenizer(), window=16, overlap=14)
