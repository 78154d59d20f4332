"""The speed-up by threads, and which number of threads a measurement assumes."""

from itertools import pairwise

import numpy as np
import pytest

import tiny_runs
from xmtc.data.pretrained import DEFAULT_BACKBONE
from xmtc.estimate import probe
from xmtc.estimate.probe import encoder_seconds, gain, head_seconds


@pytest.fixture
def cores(monkeypatch):
    monkeypatch.setattr(probe, "cpu_count", lambda: 16)


@pytest.mark.usefixtures("cores")
def test_threads_gain_up_to_the_number_of_cores() -> None:
    gains = [gain(threads) for threads in range(1, 17)]
    assert gains[0] == 1
    assert all(less < more for less, more in pairwise(gains))
    assert gains[-1] < 16
    assert gain(99) == gain(None) == gains[-1], "no more threads than cores"


@pytest.mark.usefixtures("cores")
def test_times_are_those_of_the_run_s_threads(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(probe, "_best_of", lambda *_: 1.0)
    monkeypatch.setattr(probe, "_encoding", lambda *_: 1.0)
    monkeypatch.setattr(probe, "_token_seconds", {})
    model = {"encoder": {"kind": "hugging_face", "name": DEFAULT_BACKBONE}}
    path = tiny_runs.write_config(tmp_path, model=model)
    one, four = (
        tiny_runs.load(path, f"distributed.threads={count}") for count in (1, 4)
    )
    heads = [head_seconds(config, 384, 500, 5.0) for config in (one, four)]
    for name in ("train_s", "step_s", "score_s"):
        assert getattr(heads[0], name) == pytest.approx(
            getattr(heads[1], name) * gain(4)
        ), name
    encoded = [
        encoder_seconds(config, [np.arange(9, dtype=np.int32)], [48])[48]
        for config in (one, four)
    ]
    assert encoded[0] == pytest.approx(encoded[1] * gain(4))


def test_an_encoder_is_measured_once_for_documents_of_a_length(
    tmp_path, monkeypatch
) -> None:
    measured = []

    def encoding(_ids, _encoder, _model, _tokenizer, max_length: int, _tokens) -> float:
        measured.append(max_length)
        return 0.5

    monkeypatch.setattr(probe, "_encoding", encoding)
    monkeypatch.setattr(probe, "_token_seconds", {})
    model = {"encoder": {"kind": "hugging_face", "name": DEFAULT_BACKBONE}}
    config = tiny_runs.load(tiny_runs.write_config(tmp_path, model=model))

    def seconds(*lengths: int, documents_of: int, train: bool = False) -> list[float]:
        ids_N = [np.arange(documents_of, dtype=np.int32)] * 3
        measured.clear()
        by_length = encoder_seconds(config, ids_N, lengths, train=train)
        return [by_length[length] for length in lengths]

    first, second = seconds(64, 32, documents_of=40)
    assert measured == [64, 32]
    assert first == pytest.approx(second * 40 / 32), "a document has 40 or 32 tokens"
    again, _ = seconds(64, 32, documents_of=41)
    assert measured == []
    assert again == pytest.approx(first * 41 / 40)
    seconds(64, documents_of=9)
    assert measured == [64], "short documents are another case"
    seconds(64, documents_of=40, train=True)
    assert measured == [64], "a backward pass is another case"
