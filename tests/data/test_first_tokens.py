"""Long texts are tokenised as far as a model reads, and no further."""

import random

import pytest
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from corpora import MINILM
from xmtc.data.tokenizer import load_pretrained
from xmtc.data.windows import first_tokens

WORDS = [
    "law",
    "fishery",
    "of",
    "the",
    "Überraschung",
    "法律经济",
    "กฎหมาย",
    "a" * 300,
    "\n\n",
    "",
    " ",
    "x-y",
]


def bpe(
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
    normalizer: normalizers.Normalizer | None,
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="?"))
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=200, special_tokens=["?"], show_progress=False
    )
    tokenizer.train_from_iterator([" ".join(WORDS[:6])] * 20, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


TOKENIZERS = {
    "WordPiece": lambda: load_pretrained(MINILM).backend_tokenizer,
    "of bytes, as GPT-2 has it": lambda: bpe(
        pre_tokenizers.ByteLevel(add_prefix_space=False), None
    ),
    "of whole texts, as Llama has it": lambda: bpe(
        None,
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
    ),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("glue", [" ", ""])
def test_first_tokens_are_those_of_the_whole_text(kind: str, glue: str) -> None:
    draw, tokenizer = random.Random(3), TOKENIZERS[kind]()
    texts = [glue.join(draw.choices(WORDS, k=n)) for n in (0, 1, 40, 400, 4_000)] + [
        "a" * 9_000,
        " " * 9_000,
    ]
    whole = tokenizer.encode_batch(texts, add_special_tokens=False)
    for most in (1, 20, 900):
        for offsets in (False, True):
            found = first_tokens(tokenizer, texts, most, offsets=offsets)
            assert [one.ids[:most] for one in found] == [
                one.ids[:most] for one in whole
            ]
            assert [len(one.ids) > most for one in found] == [
                len(one.ids) > most for one in whole
            ]
            if offsets:
                assert [one.offsets[:most] for one in found] == [
                    one.offsets[:most] for one in whole
                ]
    assert (
        len(first_tokens(tokenizer, ["law of the fishery " * 5_000], 20)[0].ids) < 1_000
    )
