"""What `prepare` says of a corpus, and when it doubts the labels."""

import itertools
import json
from collections import Counter
from dataclasses import replace
from random import Random

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora import (
    MINILM,
    data_config,
    documents,
    jsonl_source,
    serial,
    small_corpus,
    write_jsonl,
)
from xmtc.data.overview import (
    combination_warning,
    corpus_warnings,
    overview,
    warnings_of,
)
from xmtc.data.prepare import prepare
from xmtc.data.readers.base import quoted_cell
from xmtc.data.separators import separator_of
from xmtc.errors import DataError


def build(config):
    return prepare(config, None, map_unordered=serial)


def test_the_overview_counts_what_is_there(tmp_path):
    corpus = small_corpus(tmp_path, max_length=40)
    lists = [
        corpus.split(name).label_ids(i)
        for name in corpus.splits
        for i in range(len(corpus.split(name)))
    ]
    first, second, third, fourth = overview(corpus)
    assert third.startswith("texts: ")
    assert ", the longest 40 or more (identifier: " in third
    assert fourth == "names of labels: Latin 100%"
    cut = corpus.manifest.counts.truncated / len(lists)
    assert first.startswith(f"documents: train {corpus.train_documents}, ")
    assert f"; {cut:.1%} cut to 40 tokens; 0 of dev and test are also in train" in first
    assert (
        f"labels: 7; {sum(map(len, lists)) / len(lists):.2f} per document, at most 3; "
        in second
    )
    best = max(range(7), key=lambda i: corpus.labels.train_counts[i])
    assert (
        f"most frequent in train: '{corpus.labels.labels[best]}' ({corpus.labels.train_counts[best]})"
        in second
    )
    assert corpus_warnings(corpus) == []


names = st.lists(
    st.from_regex(r"[A-Za-z][a-z0-9. -]{0,6}[a-z0-9]", fullmatch=True),
    min_size=3,
    max_size=7,
    unique=True,
)


@given(names, st.sampled_from([*";；؛|,，、،\t/\n", "; ", ", ", "، "]), st.booleans())
def test_labels_that_a_separator_joins_are_doubted(atoms, separator, alone):
    joined = [separator.join(pair) for pair in itertools.permutations(atoms, 2)] + (
        atoms if alone else []
    )
    (warning,) = combination_warning(dict.fromkeys(joined, 1))
    assert f"there would be {len({atom.strip() for atom in atoms})}" in warning
    assert combination_warning(dict.fromkeys(atoms, 1)) == []


@pytest.mark.parametrize("separator", [*";|,\t/、،"])
@pytest.mark.parametrize("seed", range(3))
def test_combinations_of_rare_labels_are_doubted(seed, separator):
    random = Random(seed)
    names = [f"name {i}" for i in range(400)]
    weights = [1 / (i + 3) for i in range(400)]
    rows = {
        separator.join(
            dict.fromkeys(random.choices(names, weights, k=random.randint(2, 7)))
        )
        for _ in range(150)
    }
    (warning,) = combination_warning(dict.fromkeys(sorted(rows), 1))
    assert (
        f"there would be {len({part for row in rows for part in row.split(separator)}):,}"
        in warning
    )


@pytest.mark.parametrize("seed", range(3))
def test_names_of_people_are_not_doubted(seed):
    random = Random(seed)
    people = {
        f"Surname{random.randint(0, 900)}, First{random.randint(0, 90)}"
        for _ in range(600)
    }
    assert combination_warning(dict.fromkeys(sorted(people), 1)) == []


@pytest.mark.parametrize(
    "labels",
    [
        ["Diabetes, type 1", "Diabetes, type 2", "Asthma", "Heart failure, acute"],
        ["Law/civil", "Law/criminal", "Law/tax"],
        ["TCP/IP", "A/B tests", "and/or"],
        ["one; only"],
        [
            f'=HYPERLINK("{place}";"{name}")'
            for place in ("u", "v")
            for name in ("a", "b")
        ],
        [
            f"pain ({kind}, {place})"
            for kind in ("acute", "mild")
            for place in ("arm", "leg")
        ],
        [],
    ],
)
def test_names_with_punctuation_are_not_doubted(labels):
    assert combination_warning(dict.fromkeys(labels, 1)) == []


@pytest.mark.parametrize("task", ["multi_label", "single_label"])
def test_a_table_whose_labels_were_not_separated_is_doubted(tmp_path, task):
    rows = [
        {"text": row["text"], "labels": f"l{i % 5};l{i % 3}"}
        for i, row in enumerate(documents(60))
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    source = {"kind": "csv", "files": {"train": str(tmp_path / "a.csv")}}
    (warning,) = corpus_warnings(
        build(data_config(tmp_path / "corpus", source, task=task))
    )
    assert "look like combinations" in warning
    assert (
        "give lists, or data.source.columns.label_separator" in warning
    )  # lists are what Python callers have


def test_absent_labels_are_counted_and_named(tmp_path):
    rows = documents(40)
    rows[0]["labels"] = [None, "l1", float("nan"), " "]
    rows[1]["labels"] = ["None", "l1"]
    rows[2]["labels"] = ["NaN", "l1"]
    config = data_config(
        tmp_path / "corpus",
        jsonl_source(tmp_path, rows),
        split={"dev": 0.0, "test": 0.0},
    )
    corpus = build(config)
    assert corpus.manifest.counts.absent_labels == 4
    assert corpus_warnings(corpus) == [
        "documents with the label 'None': 1; if it means that no label is known, remove it"
    ]


@pytest.mark.parametrize(
    ("task", "doubted"), [("multi_label", True), ("single_label", False)]
)
def test_vectors_of_zeros_and_ones_are_doubted_and_answers_are_not(
    tmp_path, task, doubted
):
    """No and yes, written as 0 and 1, are the labels of many tasks."""
    rows = [
        row | {"labels": ["0", "1"] if doubted else [str(i % 2)]}
        for i, row in enumerate(documents(40))
    ]
    found = corpus_warnings(
        build(data_config(tmp_path / "corpus", jsonl_source(tmp_path, rows), task=task))
    )
    assert any("the only labels are 0 and 1" in line for line in found) == doubted


@pytest.mark.parametrize(
    "label", ["NA", "#N/A", "null", "None"]
)  # R, spreadsheets, databases, Python
def test_labels_that_may_say_that_there_is_none_are_doubted(label):
    assert warnings_of(
        {label: 3, "law": 9}, alone=False, joined=False, relabelled=0.0
    ) == [
        f"documents with the label {label!r}: 3; if it means that no label is known, remove it"
    ]


@pytest.mark.parametrize("task", ["multi_label", "single_label"])
def test_rows_that_are_one_label_of_a_document_are_doubted(tmp_path, task):
    rows = [
        {**row, "id": f"{row['id']}-{n}", "labels": [f"l{n}"]}
        for row in documents(40)
        for n in range(2)
    ]
    config = data_config(
        tmp_path / "corpus",
        jsonl_source(tmp_path, rows),
        task=task,
        split={"dev": 0.0, "test": 0.0},
    )
    (warning,) = corpus_warnings(build(config))
    assert warning.startswith(
        "50% of the documents repeat a text that has another label"
    )
    same = [{**row, "labels": ["l" + row["id"][-1]]} for row in documents(40)]
    same += [{**row, "id": f"again {row['id']}"} for row in same]
    config = data_config(
        tmp_path / "same",
        jsonl_source(tmp_path, same),
        task=task,
        split={"dev": 0.0, "test": 0.0},
    )
    assert corpus_warnings(build(config)) == []


def test_labels_that_look_alike_are_named_and_folded(tmp_path):
    rows = documents(40)
    for row, label in zip(
        rows,
        ("Law", "law", "LAW", "tax law", "tax  law", "0389", "389", "389.0", "38.9"),
        strict=False,
    ):
        row["labels"] = ["l1", label]
    source = jsonl_source(tmp_path, rows)
    whole = {"dev": 0.0, "test": 0.0}
    (warning,) = corpus_warnings(
        build(data_config(tmp_path / "corpus", source, split=whole))
    )
    assert "labels that differ from others only in case" in warning
    assert "a dot: 6, such as" in warning
    assert "'LAW' and 'Law'" in warning
    labels = build(
        data_config(tmp_path / "folded", source, split=whole, fold_label_case=True)
    ).labels
    assert ("Law" in labels, "law" in labels, "LAW" in labels) == (True, False, False)


def test_the_label_file_spells_labels_whose_case_is_folded(tmp_path):
    file = write_jsonl(
        tmp_path / "labels.jsonl", [{"label": f"L{i}", "name": "x"} for i in range(7)]
    )
    source = jsonl_source(tmp_path, documents(40), labels={"path": str(file)})
    with pytest.raises(
        DataError, match=r"label 'l0' is not in the label file .*did you mean 'L0'\?"
    ):
        build(data_config(tmp_path / "corpus", source))
    folded = build(
        data_config(tmp_path / "corpus", source, fold_label_case=True)
    ).labels
    assert list(folded.labels) == [f"L{i}" for i in range(7)]


def test_a_label_may_have_one_row_of_its_file(tmp_path):
    file = write_jsonl(
        tmp_path / "labels.jsonl",
        [{"label": f"l{i}", "name": "x"} for i in (0, 1, 2, 3, 4, 5, 6, 2)],
    )
    source = jsonl_source(tmp_path, documents(40), labels={"path": str(file)})
    with pytest.raises(DataError, match=r"labels\.jsonl: .*'l2' .*row 3 .*row 8"):
        build(data_config(tmp_path / "corpus", source))


@given(st.text())
def test_a_cell_that_may_be_text_is_not_quoted(text):
    shown = quoted_cell(text)
    if any(c.isspace() for c in text) or len(text) > 40:
        assert shown == f"a text of {len(text):,} characters"
    else:
        assert shown == repr(text)


def test_prepare_says_it_every_time(whole, xmtc):
    for _ in range(2):
        said = xmtc("prepare", whole.config).err
        assert "documents: train 60, dev 16, test 16; " in said
        assert "labels: 6; " in said
    assert (
        json.loads((whole.folder / "corpus" / "manifest.json").read_text())["counts"][
            "absent_labels"
        ]
        == 0
    )


def test_a_chinese_corpus_for_an_english_encoder_is_named(tmp_path):
    names = write_jsonl(
        tmp_path / "names.jsonl",
        [{"label": f"l{i}", "name": f"法律{i}"} for i in range(7)],
    )
    rows = [
        row | {"text": f"法律经济图书馆的历史{i}" if i % 2 else row["text"]}
        for i, row in enumerate(documents(60))
    ]
    source = jsonl_source(tmp_path, rows, labels={"path": str(names)})
    corpus = build(
        data_config(
            tmp_path / "corpus",
            source,
            tokenizer={"kind": "pretrained", "name": MINILM},
        )
    )
    (warning,) = corpus_warnings(corpus)
    assert "whose language is clear are in other languages (zh)" in warning
    assert "than English, which packaged:all-MiniLM-L6-v2 knows" in warning
    assert "packaged:multilingual-e5-small" in warning
    _, labels, texts, script = overview(corpus)
    assert "'l0' '法律0' (" in labels
    assert "zh" in texts
    assert script == "names of labels: Cjk 100%"
    assert corpus_warnings(build(data_config(tmp_path / "other", source))) == []


def test_languages_that_are_no_percent_are_not_listed(tmp_path):
    corpus = build(
        data_config(tmp_path / "corpus", jsonl_source(tmp_path, documents(60)))
    )
    corpus.manifest = replace(corpus.manifest, languages={"en": 995, "de": 6, "pcm": 5})
    assert overview(corpus)[2].startswith("texts: en 99%, de 1%; in train, ")


CLASSES = {
    "answers": ["very negative", "negative", "neutral", "positive", "very positive"],
    "fields of law": [
        "Real Estate",
        "Estate Planning",
        "Criminal Law",
        "Law School",
        "Tax Law",
        "Tax Planning",
        "Family Law",
        "Planning Law",
    ],
    "languages": ["C", "C++", "C#", "Visual C++", "Visual Basic", "Basic", "Turbo C++"],
    "genres": ["R&B/Soul", "Soul", "Hip-Hop/Rap", "Rap", "Rock & Roll", "Rock/Pop"],
    "places": ["New York", "York", "New Orleans", "San Jose", "San Juan", "Jose"],
    "versions": ["Python 2", "Python 3", "Python", "Java 8", "Java 11", "Java"],
}


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("seed", range(3))
def test_names_of_few_classes_are_not_split(name, seed):
    """Each document has one of them, so that the cells repeat as often as their words do."""
    drawn = Random(seed).choices(CLASSES[name], k=600)
    assert separator_of(Counter(drawn)) is None


@pytest.mark.parametrize("seed", range(3))
def test_few_tags_between_blanks_are_split(seed):
    random = Random(seed)
    tags = ["red", "green", "blue", "black"]
    cells = [" ".join(random.sample(tags, random.randint(1, 3))) for _ in range(600)]
    found = separator_of(Counter(cells))
    assert found is not None
    assert (found.text, found.sure, found.parts) == (" ", True, 4)


HEADINGS = [
    f"{first} {second}"
    for first in ("law", "history", "system", "theory", "history of", "public")
    for second in (
        "design",
        "network",
        "economy",
        "Europe",
        "software",
        "trade",
        "health",
    )
]


@pytest.mark.parametrize("separator", ["; ", ", ", " | ", " / ", ";", "; \n"])
@pytest.mark.parametrize("documents", [150, 1500])
def test_headings_of_several_words_are_not_split_at_their_blanks(separator, documents):
    random = Random(documents)
    rare = [f"{random.choice(HEADINGS)} {number}" for number in range(2 * documents)]
    cells = [
        separator.join(random.sample([*HEADINGS, *rare], random.randint(1, 5)))
        for _ in range(documents)
    ]
    found = separator_of(Counter(cells))
    assert found is not None
    assert (found.text.strip(), found.sure) == (separator.strip(), True)


def test_tags_with_signs_inside_are_split_at_blanks():
    random = Random(0)
    tags = [f"{kind}:{name}" for kind in ("lang", "os", "area") for name in "abcdef"]
    cells = [" ".join(random.sample(tags, random.randint(1, 4))) for _ in range(600)]
    found = separator_of(Counter(cells))
    assert found is not None
    assert (found.text, found.sure, found.parts) == (" ", True, len(tags))
