"""`xmtc explain` on a label-attention model: the page, the terminal, and what is refused."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import xmtc
from score_jobs import COLUMNS, write_rows
from trial_model import TEXTS, export
from xmtc.errors import DataError, StorageError
from xmtc.fusion.decision import BEST, Decision
from xmtc.report.evidence import explain_text, print_sections, words_of_half, write_page
from xmtc.score.inputs import find_document, read_inputs

TEXT = "Kidney failure: the kidney of <i>a patient</i> failed."


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return xmtc.Model.from_pretrained(
        export(tmp_path_factory.mktemp("run") / "model"), device="cpu"
    )


def test_chosen_labels_come_after_the_best_ones(model):
    order = [p.label for p in model.predict([TEXT], top_k=23)[0]]
    sections = explain_text(model, TEXT, [order[20], order[0]], 2)
    assert [(s.explanation.label, s.chosen) for s in sections] == [
        (order[0], False),
        (order[1], False),
        (order[20], True),
    ]
    assert [s.predicted for s in sections] == [s.probability >= 0.4 for s in sections]
    assert sections[2].standing == "not predicted: below its threshold of 0.400; chosen"
    assert [s.probability for s in sections] == sorted(
        (s.probability for s in sections), reverse=True
    )
    assert all(s.name == s.explanation.label.lower() for s in sections)


def test_what_is_called_predicted_is_what_the_thresholds_say(model, monkeypatch):
    best, second = (p.score for p in model.predict([TEXT], top_k=2)[0])
    monkeypatch.setattr(model.scorer, "decision", Decision((best + second) / 2))
    assert [s.predicted for s in explain_text(model, TEXT, [], 3)] == [
        True,
        False,
        False,
    ]
    own_L = np.ones(23, np.float32)
    own_L[model.labels.index(model.predict([TEXT], top_k=2)[0][1].label)] = second
    monkeypatch.setattr(model.scorer, "decision", Decision(1.0, own_L))
    assert [s.predicted for s in explain_text(model, TEXT, [], 3)] == [
        False,
        True,
        False,
    ]
    assert [p.predicted for p in model.predict([TEXT], top_k=3)[0]] == [
        False,
        True,
        False,
    ]
    monkeypatch.setattr(model.scorer, "decision", BEST)
    assert [s.predicted for s in explain_text(model, TEXT, [], 3)] == [
        True,
        False,
        False,
    ]


def test_bars_and_pieces_are_the_words_of_the_text(model):
    section = explain_text(model, TEXT, [], 1)[0]
    assert "".join(piece.text for piece in section.contributions) == TEXT
    assert "".join(piece.text for piece in section.attention) == TEXT
    assert section.words_sum == pytest.approx(
        sum(w.contribution for w in section.explanation.words)
    )
    kidneys = [
        w.contribution for w in section.explanation.words if w.text.lower() == "kidney"
    ]
    assert len(kidneys) == 2
    bar = next(bar for bar in section.bars if bar.word == "kidney")
    assert bar.value == pytest.approx(sum(kidneys))
    assert max(bar.share for bar in section.bars) == 1.0
    assert section.others + sum(bar.value for bar in section.bars) == pytest.approx(
        section.words_sum
    )
    long = explain_text(model, " ".join(f"word{i}" for i in range(20)), [], 1)[0]
    assert long.other_words == 20 - len(long.bars)
    assert long.rest == f"{long.other_words} other words"
    assert replace(long, other_words=1).rest == "1 other word"
    assert 0 < sum(section.explanation.attention) <= 1.0


def test_a_bar_says_how_often_its_word_is_there(model):
    section = explain_text(model, TEXT, [], 1)[0]
    assert {bar.word: bar.title for bar in section.bars}["kidney"] == "kidney ×2"
    assert {bar.word: bar.title for bar in section.bars}["failure"] == "failure"


def test_evidence_that_no_word_decides_is_called_spread(model):
    section = explain_text(model, TEXT, [], 1)[0]
    words = [replace(section.explanation.words[0], text=f"word{i}") for i in range(40)]
    for contributions, half, spread in (
        ([-9.0] + [0.1] * 39, 1, False),
        ([1.0, -1.0] * 20, 20, True),
    ):
        shares = tuple(
            replace(word, contribution=c)
            for word, c in zip(words, contributions, strict=True)
        )
        one = replace(
            section,
            explanation=replace(section.explanation, words=shares),
            half=words_of_half(contributions),
        )
        verb = "makes" if half == 1 else "make"
        assert f"{half} of the 40 words {verb} up half" in one.spread
        assert ("no word decides" in one.spread) == spread


def test_exclusive_labels_have_no_separate_log_odds(model, monkeypatch, tmp_path):
    for task, said in (
        ("multi_label", "its log-odds"),
        ("single_label", "Labels exclude each"),
    ):
        monkeypatch.setattr(model.scorer, "info", replace(model.info, task=task))
        write_page(
            tmp_path / "page.html",
            explain_text(model, TEXT, [], 1),
            title="a",
            model="m",
        )
        page = (tmp_path / "page.html").read_text()
        assert [text in page for text in ("its log-odds", "Labels exclude each")].count(
            True
        ) == 1
        assert said in page


def test_the_page_shows_the_sum_and_loads_nothing(model, tmp_path):
    sections = explain_text(model, TEXT, [], 2)
    write_page(tmp_path / "page.html", sections, title="a note", model="runs/x/model")
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert not re.search(r"src\s*=|href=\"(?!#|data:,)", page)
    assert "&lt;" in page
    assert "<i>" not in page
    assert (
        page.count('<div class="text ') == page.count('" dir="auto"') == 4
    )  # Arabic and Hebrew begin on the right
    for section in sections:
        assert f"{section.explanation.logit:+.3f}" in page
        assert f"{section.explanation.bias:+.3f}" in page
    with pytest.raises(StorageError, match="cannot be written"):
        write_page(tmp_path / "page.html" / "page.html", sections, title="a", model="m")


def test_what_the_model_does_not_read_is_grey(model, tmp_path):
    for text, unread in ((TEXT, ""), ("kidney " * 100 + "and more", "and more")):
        sections = explain_text(model, text, [], 1)
        grey = [
            piece.text for piece in sections[0].contributions if piece.side == "unread"
        ]
        assert "".join(grey).strip() == unread
        write_page(tmp_path / "page.html", sections, title="a", model="m")
        assert (
            "beyond what the model reads" in (tmp_path / "page.html").read_text()
        ) == bool(unread)


def test_the_terminal_shows_label_sum_and_words(model):
    console = Console(record=True, width=120)
    sections = explain_text(model, TEXT, [], 1)
    print_sections(sections, console)
    said = console.export_text()
    assert f"logit {sections[0].explanation.logit:+.3f} = bias" in said
    assert sections[0].bars[0].word in said
    assert "█" in said


def test_a_document_is_found_by_its_id(tmp_path):
    source = write_rows(tmp_path / "in.jsonl", 6)
    assert find_document(read_inputs([str(source)], COLUMNS), "d5") == TEXTS[1]
    with pytest.raises(DataError, match=r"'d6' .*--doc-id"):
        find_document(read_inputs([str(source)], COLUMNS), "d6")
    copy = shutil.copy(source, tmp_path / "copy.jsonl")
    with pytest.raises(DataError, match=r"2 .*'d5' .*--doc-id"):
        find_document(read_inputs([str(source), str(copy)], COLUMNS), "d5")


def test_unknown_labels_and_empty_texts_are_named(model):
    with pytest.raises(DataError, match="'L99'"):
        explain_text(model, TEXT, ["L99"], 1)
    with pytest.raises(DataError, match="text 0 "):
        explain_text(model, " ", [], 1)
