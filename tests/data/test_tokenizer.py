import pytest

from corpora import MINILM, small_corpus
from xmtc.data.corpus import Corpus
from xmtc.data.tokenizer import (
    TrainedTokenizerConfig,
    check_tokenizer,
    definition,
    identity,
    load_pretrained,
    train_tokenizer,
)
from xmtc.errors import ConfigError, DataError

TEXTS = ["The cat sat on the mat.", "Dogs and cats, cats and dogs!", "Überraschung: naïve café"] * 20


def test_pretrained_is_not_cut_or_padded():
    tokenizer = load_pretrained(MINILM)
    assert len(tokenizer("word " * 3000, add_special_tokens=False)["input_ids"]) == 3000  # its file says 128
    assert identity(tokenizer, MINILM) == identity(load_pretrained(MINILM), MINILM)


def test_unknown_names_say_so(tmp_path):
    with pytest.raises(ConfigError, match="no packaged model 'none'; there are: all-MiniLM-L6-v2"):
        load_pretrained("packaged:none")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load_pretrained(str(tmp_path))


@pytest.mark.parametrize("model", ["wordpiece", "bpe", "word"])
def test_trained_is_deterministic_and_knows_unknown_words(model):
    settings = TrainedTokenizerConfig(model=model, vocab_size=100)
    first, second = (train_tokenizer(settings, iter(TEXTS), len(TEXTS)) for _ in range(2))
    assert definition(first) == definition(second)
    assert first.pad_token_id == 0
    assert first.unk_token_id == 1
    assert len(first) <= 100 + 40 * (model == "wordpiece")
    ids = first("the cats ☃", add_special_tokens=True)["input_ids"]
    assert ids[-1] == 1
    assert 1 not in ids[:-2]


def test_corpus_with_a_trained_tokenizer(tmp_path):
    corpus = small_corpus(tmp_path, tokenizer={"kind": "trained", "model": "word", "vocab_size": 120})
    again = Corpus.open(corpus.path)
    text = again.tokenizer().decode(again.split("train").tokens(0))
    assert text.startswith("number")
    check_tokenizer(again.manifest, again.tokenizer(), "its own")
    with pytest.raises(
        DataError, match=r"built with the tokenizer 'trained word' .* the model needs 'packaged:all-Mini"
    ):
        check_tokenizer(again.manifest, load_pretrained(MINILM), MINILM)
