import gzip

import pytest
import torch

from xmtc.errors import ConfigError, DataError
from xmtc.models.encoders.light_config import BagConfig, EmbeddingConfig

VOCABULARY = {"[PAD]": 0, "the": 1, "law": 2, "of the": 3, "unseen": 4}
GLOVE = "the 0.5 -1 2\nother 9 9 9\nlaw 1e-3 0 4\nof the 7 8 9\n"


def load(tmp_path, text, width=3):
    path = tmp_path / "vectors.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    torch.manual_seed(0)
    encoder = BagConfig(embedding=EmbeddingConfig(width=width, vectors=str(path))).build(5)
    before = encoder.embedding.tokens.weight.detach().clone()
    return encoder.load_vectors(VOCABULARY), before, encoder.embedding.tokens.weight.detach()


@pytest.mark.parametrize("header", ["", "4 3\n", "\ufeff", "\n"], ids=["glove", "word2vec", "BOM", "blank"])
def test_known_words_start_at_their_vectors(tmp_path, header):
    found, before, after = load(tmp_path, header + GLOVE)
    assert found == 3
    torch.testing.assert_close(after[1:4], torch.tensor([[0.5, -1, 2], [1e-3, 0, 4], [7, 8, 9]]))
    torch.testing.assert_close(after[[0, 4]], before[[0, 4]])


def test_without_a_file_nothing_changes():
    encoder = BagConfig().build(5)
    assert encoder.load_vectors(VOCABULARY) == 0


@pytest.mark.parametrize(
    ("text", "width", "error", "message"),
    [
        (GLOVE, 4, ConfigError, "width: 4, but the vectors of .* have 3"),
        ("4 3\n" + GLOVE, 2, ConfigError, "have 3 dimensions"),
        ("the 1 2 3\nlaw 1 x 3\n", 3, DataError, r"vectors\.txt:2: .* 3 finite numbers"),
        ("the 1 2 3\nlaw 1 nan 3\n", 3, DataError, r"vectors\.txt:2: .* 3 finite numbers"),
        ("the 1 2 1e39\n", 3, DataError, r"vectors\.txt:1: .* 3 finite numbers"),
        ("the 1 2 3\nother 1 2\n", 3, DataError, r"vectors\.txt:2: .* 3 finite numbers"),
        ("a 1 2 3\nb 1 2 3\n", 3, DataError, "none of the 5 tokens"),
        ("", 3, DataError, "none of the 5 tokens"),
        ("0 3\n", 3, DataError, "none of the 5 tokens"),
        ("the\t1\t2\t3\n", 3, DataError, r"vectors\.txt:1: expected .* separated by spaces"),
        (gzip.compress(GLOVE.encode(), mtime=0), 3, DataError, "is not text; unpack it"),
        (b"2 3\nthe \x00\x00\x80?", 3, DataError, "word2vec's binary format"),
    ],
)
def test_wrong_files_are_named(tmp_path, text, width, error, message):
    with pytest.raises(error, match=message):
        load(tmp_path, text, width)


def test_missing_file():
    encoder = BagConfig(embedding=EmbeddingConfig(vectors="nowhere.txt")).build(5)
    with pytest.raises(DataError, match=r"nowhere\.txt"):
        encoder.load_vectors(VOCABULARY)
