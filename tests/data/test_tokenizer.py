import json

import pytest
from transformers import AutoConfig

from corpora import MINILM, small_corpus
from xmtc.data.corpus import Corpus
from xmtc.data.tokenizer import (
    definition,
    identity,
    load_pretrained,
    same_ids,
    special_tokens,
    train_tokenizer,
)
from xmtc.errors import ConfigError

TEXTS = [
    "The cat sat on the mat.",
    "Dogs and cats, cats and dogs!",
    "Überraschung: naïve café",
] * 20


def test_pretrained_is_not_cut_or_padded():
    tokenizer = load_pretrained(MINILM)
    assert (
        len(tokenizer("word " * 3000, add_special_tokens=False)["input_ids"]) == 3000
    )  # its file says 128
    assert identity(tokenizer, MINILM) == identity(load_pretrained(MINILM), MINILM)


@pytest.mark.parametrize("stated", ["", "x", {}, 3, None])
def test_what_a_tokenizers_file_says_of_lengths_has_no_effect(tmp_path, stated):
    load_pretrained(MINILM).save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"model_max_length": stated}))
    tokenizer = load_pretrained(str(tmp_path))
    assert len(tokenizer("word " * 3000, add_special_tokens=False)["input_ids"]) == 3000


def test_unknown_names_say_so(tmp_path):
    with pytest.raises(ConfigError, match=r"'none'.*all-MiniLM-L6-v2"):
        load_pretrained("packaged:none")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load_pretrained(str(tmp_path))


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("bert", "has no vocabulary: copy"),
        ("roberta", "has no vocabulary: copy"),
        ("xlnet", "has no vocabulary: copy"),
        ("mpnet", "has no vocabulary: copy"),
        ("ctrl", "cannot be loaded"),
        ("roformer", "cannot be loaded"),
    ],
)
def test_a_folder_without_the_tokenizers_files_says_so(family, message, tmp_path):
    AutoConfig.for_model(family).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=message):
        load_pretrained(str(tmp_path))


@pytest.mark.parametrize("model", ["wordpiece", "word"])
def test_trained_is_deterministic_and_knows_unknown_words(model):
    first, second = (
        train_tokenizer(model, 100, iter(TEXTS), len(TEXTS)) for _ in range(2)
    )
    assert definition(first) == definition(second)
    assert first.pad_token_id == 0
    assert first.unk_token_id == 1
    assert len(first) <= 100 + 40 * (model == "wordpiece")
    ids = first("the cats ☃", add_special_tokens=True)["input_ids"]
    assert ids[-1] == 1
    assert 1 not in ids[:-2]


@pytest.mark.parametrize("model", ["wordpiece", "word"])
def test_a_trained_tokenizer_reads_back_as_it_was_saved(model, tmp_path):
    tokenizer = train_tokenizer(model, 100, iter(TEXTS), len(TEXTS))
    tokenizer.save_pretrained(tmp_path)
    again = load_pretrained(str(tmp_path))
    assert definition(again) == definition(tokenizer)
    assert again("The cat ☃")["input_ids"] == tokenizer("The cat ☃")["input_ids"]
    assert special_tokens(again) == ([], [])


def test_corpus_with_a_trained_tokenizer(tmp_path):
    corpus = small_corpus(
        tmp_path, tokenizer={"kind": "trained", "model": "word", "vocab_size": 120}
    )
    again = Corpus.open(corpus.path)
    text = again.tokenizer().decode(again.split("train").tokens(0))
    assert text.startswith("number")
    assert same_ids(again.tokenizer(), again.tokenizer())
    assert not same_ids(again.tokenizer(), load_pretrained(MINILM))
