import os
from pathlib import Path

import numpy as np
import pytest
import torch

from xmtc.data.hidden_cache import HiddenCache, HiddenCacheWriter, cache_bytes
from xmtc.errors import DataError, TrainingError

LENGTHS = np.array([3, 1, 4, 2])


def opened(path: Path, fingerprint: str = "f") -> HiddenCache | None:
    return HiddenCache.open(path, fingerprint, LENGTHS, 5)


def padded(documents: list[int], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    longest = int(LENGTHS[documents].max())
    mask = torch.arange(longest)[None] < torch.from_numpy(LENGTHS[documents])[:, None]
    hidden = torch.randn(
        len(documents),
        longest,
        width,
        generator=torch.Generator().manual_seed(documents[0]),
    )
    return hidden, mask


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_reads_what_was_written(tmp_path, dtype):
    path = tmp_path / "train"
    first = HiddenCacheWriter(path, "f", lengths=LENGTHS, width=5, dtype=dtype)
    second = HiddenCacheWriter(
        path, "f", lengths=LENGTHS, width=5, dtype=dtype, create=False
    )
    for writer, documents in ((first, [2, 0]), (second, [1, 3])):
        writer.write(np.array(documents), *padded(documents, 5))
        writer.flush()
    assert opened(path) is None
    first.publish()
    cache = opened(path)
    assert cache is not None
    assert opened(path, "g") is None
    hidden, mask = padded([2, 0], 5)
    for row, found in enumerate(cache.read(np.array([2, 0]))):
        assert torch.equal(found, hidden[row][mask[row]].to(getattr(torch, dtype)))
    assert (path / "hidden.bin").stat().st_size == cache_bytes(LENGTHS, 5, dtype)
    assert os.listdir(tmp_path) == ["train"]


def test_an_interrupted_writer_is_continued(tmp_path):
    def start(fingerprint: str) -> HiddenCacheWriter:
        return HiddenCacheWriter(
            tmp_path / "train", fingerprint, lengths=LENGTHS, width=5, dtype="float32"
        )

    killed = start("f")
    killed.write(np.array([2, 0]), *padded([2, 0], 5))
    killed.flush()
    killed.write(
        np.array([1]), *padded([1], 5)
    )  # not flushed: after a failure of the machine, it may not be there
    again = start("f")
    assert [again.has(np.array([document])) for document in range(4)] == [
        True,
        False,
        True,
        False,
    ]
    again.write(np.array([1, 3]), *padded([1, 3], 5))
    again.publish()
    cache = opened(tmp_path / "train")
    assert cache is not None
    hidden, mask = padded([2, 0], 5)
    assert torch.equal(cache.read(np.array([2]))[0], hidden[0][mask[0]])
    assert not start("g").has(np.array([0]))


def test_unfinished_is_never_read(tmp_path):
    writer = HiddenCacheWriter(
        tmp_path / "train", "f", lengths=LENGTHS, width=5, dtype="float32"
    )
    writer.write(np.array([1]), *padded([1], 5))
    with pytest.raises(TrainingError, match="3 of 4 documents"):
        writer.publish()
    assert opened(tmp_path / "train") is None


@pytest.mark.parametrize("left", [0, 7, None])
def test_a_cache_cut_short_counts_as_absent(tmp_path, caplog, left):
    writer = HiddenCacheWriter(
        tmp_path / "train", "f", lengths=LENGTHS, width=5, dtype="float32"
    )
    for document in range(4):
        writer.write(np.array([document]), *padded([document], 5))
    writer.publish()
    states = tmp_path / "train" / "hidden.bin"
    if left is None:
        states.unlink()
    else:
        os.truncate(states, left)
    assert opened(tmp_path / "train") is None
    assert "hidden.bin: damaged; xmtc computes the hidden states again" in caplog.text
    caplog.clear()
    assert HiddenCache.open(tmp_path / "train", "f", LENGTHS + 1, 5) is None
    assert "hidden.bin: damaged" in caplog.text  # it is not of these documents
    (tmp_path / "train" / "meta.json").write_text("{}")
    assert opened(tmp_path / "train") is None
    assert "meta.json: damaged" in caplog.text
    os.truncate(tmp_path / "train" / "meta.json", left or 0)
    assert opened(tmp_path / "train") is None
    assert "meta.json: damaged" in caplog.text


def test_states_must_be_finite(tmp_path):
    writer = HiddenCacheWriter(
        tmp_path / "train", "f", lengths=LENGTHS, width=5, dtype="float32"
    )
    hidden, mask = padded([1], 5)
    with pytest.raises(TrainingError, match="not finite as float32"):
        writer.write(np.array([1]), hidden / 0, mask)


def test_no_room_on_the_disk(tmp_path):
    with pytest.raises(DataError, match=r"no room for .* GiB of hidden states"):
        HiddenCacheWriter(
            tmp_path / "train",
            "f",
            lengths=np.array([1 << 42]),
            width=1024,
            dtype="float32",
        )
    assert os.listdir(tmp_path) == []
