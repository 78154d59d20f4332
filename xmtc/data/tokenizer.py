"""Tokenizers: the backbone's, another pretrained one, or one trained on the corpus."""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from xmtc.data.manifest import TokenizerIdentity
from xmtc.data.pretrained import pretrained_source
from xmtc.errors import ConfigError, DataError, XmtcError

PAD, UNKNOWN = "[PAD]", "[UNK]"
_MARK = "▁"
"""Begins the first piece of a word."""
_SPECIAL = re.compile(r"\W*|<.*>|\[.*\]")
"""What tokens look like that stand for no text, such as `[MASK]` or `<pad>`, and punctuation."""


def load_pretrained(name: str) -> PreTrainedTokenizerFast:
    """Load the tokenizer of a model, with truncation and padding off.

    Args:
        name: see `pretrained_source`.

    Raises:
        ConfigError: it cannot be loaded, has no fast (Rust) version, or no vocabulary.
    """
    tokenizer = _load_fast(name)
    tokens = tokenizer.get_vocab().keys() - tokenizer.get_added_vocab()
    if all(_SPECIAL.fullmatch(token) for token in tokens):
        raise ConfigError(
            f"tokenizer {name!r} has no vocabulary: copy the model's tokenizer.json into the folder"
        )
    return tokenizer


def _load_fast(name: str) -> PreTrainedTokenizerFast:
    source = pretrained_source(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source.location, trust_remote_code=False, **source.options
        )
    except Exception as error:  # the library has no error class; some raise a bare one
        raise ConfigError(
            f"tokenizer {name!r} cannot be loaded: {error}\nIf it is on the hub, run `hf auth login` and `hf download "
            f"{name} --local-dir FOLDER` on a machine with network access, and give the copied folder as the name."
        ) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ConfigError(
            f"tokenizer {name!r} has no fast version (tokenizer.json), which parallel preparation needs; choose "
            "another tokenizer, or convert it"
        )
    return _without_truncation(tokenizer)


def load_saved(
    folder: Path, vocab_size: int, kind: type[XmtcError], fix: str
) -> PreTrainedTokenizerFast:
    """Load the tokenizer in a folder of a model or corpus, whose token ids must be below the given size.

    Args:
        folder: its files.
        vocab_size: number of tokens that it must have.
        kind: kind of the error.
        fix: what to do.

    Raises:
        XmtcError: of this kind; files are missing or damaged, or it has other ids.
    """
    try:
        tokenizer = _load_fast(str(folder))
    except ConfigError as error:  # its advice is about models of the Hub
        raise kind(
            f"{folder}: its files are damaged, or are not those of a tokenizer; {fix}"
        ) from error
    if len(tokenizer) != vocab_size:
        raise kind(
            f"{folder}: has {len(tokenizer)} tokens, and should have {vocab_size}; {fix}"
        )
    greatest_id = max(tokenizer.get_vocab().values())
    if greatest_id >= vocab_size:
        raise kind(
            f"{folder}: a token has the id {greatest_id}, and ids must be below {vocab_size}; {fix}"
        )
    return tokenizer


def _without_truncation(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Switch off what a tokenizer's files say of lengths: all-MiniLM's says "truncate to 128", but we cut ourselves."""
    tokenizer.model_max_length = VERY_LARGE_INTEGER
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def train_tokenizer(
    model: Literal["wordpiece", "word"],
    vocab_size: int,
    texts: Iterator[str],
    total: int,
) -> PreTrainedTokenizerFast:
    """Train a tokenizer on `texts`; equal texts and settings give an equal tokenizer.

    Args:
        model: `wordpiece` cuts rare words into pieces; `word` maps them to the unknown token.
        vocab_size: maximum number of tokens; `wordpiece` may have a few more.
        texts: training texts.
        total: how many.
    """
    tokenizer, trainer = (
        _untrained_words(vocab_size)
        if model == "word"
        else _untrained_pieces(vocab_size)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=True, strip_accents=True
    )
    tokenizer.train_from_iterator(texts, trainer, length=total)
    if model == "wordpiece":
        tokenizer = _wordpiece(tokenizer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, unk_token=UNKNOWN
    )


def _untrained_words(vocab_size: int) -> tuple[Tokenizer, trainers.Trainer]:
    """Make a tokenizer of whole words, and what trains it."""
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size, special_tokens=[PAD, UNKNOWN], show_progress=False
    )
    return tokenizer, trainer


def _untrained_pieces(vocab_size: int) -> tuple[Tokenizer, trainers.Trainer]:
    """Make a BPE tokenizer of words with a leading `▁`, and what trains it; see `_wordpiece`."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    mark_words = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.BertPreTokenizer(), mark_words]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[PAD, UNKNOWN], show_progress=False
    )
    return tokenizer, trainer


def _wordpiece(trained: Tokenizer) -> Tokenizer:
    """Make a WordPiece model with the vocabulary of a BPE model that was trained on words with a leading `▁`.

    The library's own WordPiece trainer numbers `##x` in the order of a hash table, so that ties between equally
    frequent pairs fall differently on every run; BPE without such a prefix is deterministic.
    """
    ids_by_token = trained.get_vocab()
    trained_tokens = sorted(ids_by_token, key=lambda token: ids_by_token[token])
    pieces = dict.fromkeys(token for token in trained_tokens if token in (PAD, UNKNOWN))
    for token in trained_tokens:
        if token in pieces or token == _MARK:
            continue
        if len(token) == 1:
            pieces[token] = (
                None  # every letter may begin a word as well as continue one
            )
        begins_word = token.startswith(_MARK)
        pieces[token.removeprefix(_MARK) if begins_word else f"##{token}"] = None
    ids = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=UNKNOWN))
    tokenizer.normalizer = trained.normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def definition(tokenizer: PreTrainedTokenizerFast) -> str:
    """Serialise the Rust tokenizer to JSON, without truncation and padding, which do not define a token."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    return json.dumps(
        content | {"truncation": None, "padding": None},
        sort_keys=True,
        ensure_ascii=False,
    )


def identity(tokenizer: PreTrainedTokenizerFast, name: str) -> TokenizerIdentity:
    """Describe a tokenizer for the manifest."""
    sha256 = hashlib.sha256(definition(tokenizer).encode()).hexdigest()
    return TokenizerIdentity(name=name, sha256=sha256, vocab_size=len(tokenizer))


def same_ids(
    tokenizer: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase
) -> bool:
    """Whether every token of `tokenizer` has the same id in `other`, so that embeddings of the one serve the other."""
    return tokenizer.get_vocab().items() <= other.get_vocab().items()


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return ids that the tokenizer puts before and after a text, such as ([CLS], [SEP]), (<s>,) or none."""
    content = tokenizer.encode("a", add_special_tokens=False)
    whole = tokenizer.encode("a", add_special_tokens=True)
    starts = [
        start
        for start in range(len(whole))
        if whole[start : start + len(content)] == content
    ]
    if not content or not starts:
        raise DataError(
            "the tokenizer does not put its special tokens around the text, which windows need; choose another one"
        )
    start = starts[0]
    return whole[:start], whole[start + len(content) :]
