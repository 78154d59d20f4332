"""Tokenizers: the backbone's, another pretrained one, or one trained on the corpus."""

import hashlib
import json
import re
from collections.abc import Iterator

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from xmtc.data.config import TrainedTokenizerConfig
from xmtc.data.manifest import TokenizerIdentity
from xmtc.data.pretrained import pretrained_source
from xmtc.errors import ConfigError, DataError

PAD, UNKNOWN = "[PAD]", "[UNK]"
_MARK = "▁"
_NO_WORD = re.compile(r"\W*|<.*>|\[.*\]")


def load_pretrained(name: str) -> PreTrainedTokenizerFast:
    """Load the tokenizer of a model, with truncation and padding off.

    Args:
        name: see `pretrained_source`.

    Raises:
        ConfigError: it cannot be loaded, has no fast (Rust) version, or no vocabulary.
    """
    source = pretrained_source(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.location, trust_remote_code=False, **source.options)
    except Exception as error:  # the library has no error class
        raise ConfigError(
            f"tokenizer {name!r} cannot be loaded: {error}\nIf it is on the hub, run `hf auth login` and `hf download "
            f"{name} --local-dir FOLDER` on a machine with network access, and give the copied folder as the name."
        ) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ConfigError(f"tokenizer {name!r} has no fast version (tokenizer.json), which parallel preparation needs")
    if all(map(_NO_WORD.fullmatch, tokenizer.get_vocab().keys() - tokenizer.get_added_vocab())):
        raise ConfigError(f"tokenizer {name!r} has no vocabulary: copy the model's tokenizer.json into the folder")
    # all-MiniLM's tokenizer.json says "truncate to 128"; lengths are our own business
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def train_tokenizer(settings: TrainedTokenizerConfig, texts: Iterator[str], total: int) -> PreTrainedTokenizerFast:
    """Train a tokenizer on `texts`; equal texts and settings give an equal tokenizer.

    Args:
        settings: model and size.
        texts: training texts.
        total: how many.
    """
    tokenizer, trainer = _untrained(settings)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    tokenizer.train_from_iterator(texts, trainer, length=total)
    if settings.model == "wordpiece":
        tokenizer = _wordpiece(tokenizer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, unk_token=UNKNOWN)


def _untrained(settings: TrainedTokenizerConfig) -> tuple[Tokenizer, trainers.Trainer]:
    size, special = settings.vocab_size, [PAD, UNKNOWN]
    if settings.model == "word":
        tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return tokenizer, trainers.WordLevelTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    marked = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), marked])
    return tokenizer, trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False)


def _wordpiece(trained: Tokenizer) -> Tokenizer:
    """Make a WordPiece model with the vocabulary of a BPE model that was trained on words with a leading `▁`.

    The library's own WordPiece trainer numbers `##x` in the order of a hash table, so that ties between equally
    frequent pairs fall differently on every run; BPE without such a prefix is deterministic.
    """
    by_id = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    tokens = dict.fromkeys(token for token, _ in by_id if token in (PAD, UNKNOWN))
    for token, _ in by_id:
        if token in tokens or token == _MARK:
            continue
        begins = token.startswith(_MARK)
        # Every letter may begin a word as well as continue one.
        tokens |= dict.fromkeys([token] if len(token) == 1 else [])
        tokens[token.removeprefix(_MARK) if begins else f"##{token}"] = None
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token=UNKNOWN))
    tokenizer.normalizer = trained.normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def definition(tokenizer: PreTrainedTokenizerFast) -> str:
    """Serialise the Rust tokenizer to JSON, without truncation and padding, which do not define a token."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    return json.dumps(content | {"truncation": None, "padding": None}, sort_keys=True, ensure_ascii=False)


def identity(tokenizer: PreTrainedTokenizerFast, name: str) -> TokenizerIdentity:
    """Describe a tokenizer for the manifest."""
    sha256 = hashlib.sha256(definition(tokenizer).encode()).hexdigest()
    return TokenizerIdentity(name=name, sha256=sha256, vocab_size=len(tokenizer))


def same_ids(tokenizer: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> bool:
    """Whether every token of `tokenizer` has the same id in `other`, so that embeddings of the one serve the other."""
    return tokenizer.get_vocab().items() <= other.get_vocab().items()


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return ids that the tokenizer puts before and after a text, such as ([CLS], [SEP]), (<s>,) or none."""
    bare = tokenizer.encode("a", add_special_tokens=False)
    whole = tokenizer.encode("a", add_special_tokens=True)
    at = next((i for i in range(len(whole)) if whole[i : i + len(bare)] == bare), None)
    if not bare or at is None:
        raise DataError("the tokenizer does not put its special tokens around the text, which windows need")
    return whole[:at], whole[at + len(bare) :]
