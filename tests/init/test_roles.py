"""Columns told apart by content, labels by their separators, and what is said where the content does not tell."""

import json
from dataclasses import replace
from datetime import date
from itertools import cycle, islice

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from xmtc.config.shape import adapter
from xmtc.data.config import DataConfig
from xmtc.data.readers.base import Rejected
from xmtc.data.readers.table import Row
from xmtc.data.readers.table_config import CsvConfig
from xmtc.errors import DataError
from xmtc.init.answers import Answers
from xmtc.init.commented import commented_yaml
from xmtc.init.data_files import DataFiles
from xmtc.init.facts import SAMPLE, ColumnFacts, read_facts
from xmtc.init.plan import data_section
from xmtc.init.recipes import Task, candidates
from xmtc.init.roles import Roles, check_header, choose_roles

WORDS = [  # of a law
    "the",
    "court",
    "finds",
    "that",
    "this",
    "act",
    "of",
    "the",
    "council",
    "on",
    "trade",
    "and",
    "fish",
    "does",
    "not",
    "apply",
    "to",
    "goods",
    "from",
    "other",
    "states",
]
NAMES = ["law", "fish", "trade", "foreign policy", "heart"]


def text(i: int, words: int = 12) -> str:
    return " ".join(islice(cycle(WORDS), i % 7, i % 7 + words)) + f" case {i}"


def roles(rows: list[dict], **answers: object) -> Roles:
    facts = read_facts(
        [Row(row, f"row {i}", i) for i, row in enumerate(rows)], "news.csv"
    )
    check_header(facts, "news.csv")
    return choose_roles(facts, Answers(**answers), "news.csv")


def test_annotations_say_which_labels_were_rejected():
    rows = [
        {
            "id": f"d{i}",
            "text": text(i),
            "labels": several(i),
            "suggested": [{"label": NAMES[i % 3], "score": 0.5, "predicted": True}],
            "accepted": [NAMES[i % 5]],
            "rejected": [NAMES[(i + 1) % 5]],
            "added": [],
        }
        for i in range(60)
    ]
    found = roles(rows)
    assert (found.labels, found.rejected) == (("labels",), "rejected")


def several(i: int) -> list[str]:
    return list(dict.fromkeys([NAMES[i % 5], NAMES[(i // 2) % 5]]))


def test_columns_are_told_by_content_and_not_by_order():
    rows = [
        {
            "topic": "; ".join(several(i)),
            "split": "train" if i % 5 else "test",
            "title": text(i, 4),
            "body": text(i, 30),
        }
        | {"uid": f"n-{i}", "views": i * 31 % 97 / 10}
        for i in range(60)
    ]
    found = roles(rows)
    assert (found.text, found.labels, found.id, found.split) == (
        ("title", "body"),
        ("topic",),
        "uid",
        "split",
    )
    assert (found.separator, found.task, found.unused) == (
        ";",
        "multi_label",
        ("views",),
    )


def test_a_title_may_be_shorter_than_a_text_but_is_no_code():
    rows = [
        {
            "Entry": f"{WORDS[i % 20]}{i}" + " act" * (i % 2),
            "body": text(i),
            "labels": several(i),
        }
        for i in range(60)
    ]
    assert (roles(rows).text, roles(rows).id) == (("Entry", "body"), None)
    rows = [row | {"Entry": row["Entry"].replace(" ", "-")} for row in rows]
    assert (roles(rows).text, roles(rows).id) == (("body",), "Entry")


@pytest.mark.parametrize(
    "answers",
    [
        {"text": ["body", "body"]},
        {"text": ["body"], "labels": "body"},
        {"id": "body", "text": ["body"]},
        {"labels": "body", "split_column": "body"},
    ],
)
def test_a_column_serves_one_purpose(answers):
    with pytest.raises(DataError, match=r"news\.csv: the column 'body' is named twice"):
        roles([{"body": text(i), "topic": NAMES[i % 2]} for i in range(30)], **answers)


def test_a_list_column_and_one_label_a_row():
    assert (
        roles([{"words": text(i), "codes": several(i)} for i in range(30)]).separator
        is None
    )
    one = roles(
        [{"words": text(i), "feeling": ["good", "bad"][i % 2]} for i in range(30)]
    )
    assert (one.labels, one.task, one.separator) == (("feeling",), "single_label", None)
    empty = roles(
        [{"words": text(i), "labels": [] if i % 3 else ["good"]} for i in range(30)]
    )
    assert (empty.task, empty.found.none) == ("multi_label", 20)
    number = roles([{"text": text(i), "label": i % 2} for i in range(30)])
    assert (number.labels, number.task) == (("label",), "single_label")


@settings(max_examples=40, deadline=None)
@given(
    separator=st.sampled_from([";", "|", ",", "\t", "/", "；", "，", "、", "؛", "،"]),
    picks=st.lists(
        st.sets(st.integers(0, 9), min_size=1, max_size=4), min_size=40, max_size=60
    ),
)
def test_the_separator_of_labels_is_found(separator, picks):
    labels = [f"label {letter}" for letter in "abcdefghij"]
    cells = [separator.join(labels[i] for i in sorted(chosen)) for chosen in picks]
    distinct, parts = len(set(cells)), len({i for chosen in picks for i in chosen})
    found = ColumnFacts("labels", "text", cells, len(cells)).separator()
    several = sum(len(chosen) > 1 for chosen in picks)
    assert found == separator or (
        found is None and (distinct <= parts or several <= len(picks) / 4)
    )


def test_commas_inside_many_names_that_hardly_repeat_do_not_separate():
    """Of a million people, a sample has nearly everybody once."""
    cells = [f"Surname {i % 1_800}, First {i % 1_997}" for i in range(SAMPLE)]
    assert ColumnFacts("label", "text", cells, SAMPLE).separator() is None


def test_commas_inside_names_do_not_separate():
    names = ["Trade, foreign", "Fishing, deep-sea", "Policy, monetary", "Law, civil"]
    cells = [names[i % 4] for i in range(40)]
    assert ColumnFacts("labels", "text", cells, 40).separator() is None
    two = [f"{names[i % 4]}; {names[(i + 1 + i // 4) % 4]}" for i in range(40)]
    assert ColumnFacts("labels", "text", two, 40).separator() == ";"


@pytest.mark.parametrize("separator", [";", " | ", ",", ", "])
def test_in_few_rows_labels_that_hardly_repeat_are_parted(separator):
    """Of 40 cells all differ, and one in 20 of their labels has come before."""
    labels = iter([f"heading {i % 77}" for i in range(80)])
    cells = [f"{next(labels)}{separator}{next(labels)}" for _ in range(40)]
    assert ColumnFacts("keywords", "text", cells, 40).separator() == separator.strip()


def test_a_list_of_labels_that_hardly_repeat_is_the_labels():
    rows = [
        {"t": text(i), "concepts": [f"heading {2 * i % 37}", f"heading {2 * i + 1}"]}
        for i in range(30)
    ]
    assert roles(rows).labels == ("concepts",)


def in_any_order(first: str, second: str, row: int) -> list[str]:
    """Labels have no fixed place, unlike the parts of names."""
    return [first, second] if row % 3 else [second, first]


@pytest.mark.parametrize("separator", [";", "|", ",", "/"])
def test_blanks_around_a_separator_of_codes_do_not_separate(separator):
    codes = [
        f" {separator} ".join(in_any_order(f"A{i % 5}0", f"B{i % 7}1", i))
        for i in range(40)
    ]
    assert ColumnFacts("codes", "text", codes, 40).separator() == separator


def test_blanks_separate_codes_and_not_words():
    codes = [" ".join(in_any_order(f"A{i % 5}0", f"B{i % 7}1", i)) for i in range(40)]
    assert ColumnFacts("codes", "text", codes, 40).separator() == " "
    assert (
        ColumnFacts(
            "codes", "text", ["world news", "sport news", "world sport"] * 9, 27
        ).separator()
        is None
    )


@pytest.mark.parametrize(
    "marks", [["0", "1"], [False, True], ["FALSE", "TRUE"], [0.0, 1.0]]
)
def test_columns_of_zeros_and_ones_are_the_labels(marks):
    rows = [
        {
            "t": text(i),
            **{name: marks[(i + j) % 3 == 0] for j, name in enumerate(NAMES)},
        }
        for i in range(30)
    ]
    found = roles(rows)
    assert found.labels == tuple(NAMES)
    assert found.found.counts[NAMES[0]] == 10
    assert "columns of 0 and 1" in found.why["labels"]
    assert not found.unused


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [{"a": "x", "label": "b"}] * 9,
            r"no column looks like text; name it with --text\. .*9 rows: a \(1 word, 1 diff",
        ),
        (
            [{"t": text(i), "k": text(i + 50)} for i in range(20)],
            r"no column looks like labels; name it with --labels",
        ),
        (
            [{"t": text(i), "labels": ""} for i in range(20)],
            r"no column looks like labels",
        ),
        (
            [{"t": text(i), "meta": {"a": 2, "b": 3}} for i in range(20)],
            r"meta \(objects, which xmtc does not read",
        ),
        (
            [{"t": text(i), "b": "xy"[i % 2], "c": "uv"[i % 2]} for i in range(20)],
            r"may be the labels.*--labels\. .*b, c\. If several are, write one column",
        ),
    ],
)
def test_what_the_columns_do_not_say_names_the_option_that_decides(rows, words):
    with pytest.raises(DataError, match=words) as caught:
        roles(rows)
    assert "case" not in str(caught.value), "a text is in the message"


@given(
    st.integers(9, 40),
    st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
    st.booleans(),
)
def test_a_document_is_not_a_header(words, labels, shuffled):
    header = (
        (text(99, words), ";".join(labels))
        if shuffled
        else (";".join(labels), text(99, words))
    )
    rows = [
        dict(zip(header, cells if shuffled else cells[::-1], strict=True))
        for cells in labelled(30, words)
    ]
    with pytest.raises(
        DataError,
        match="the first line looks like a document and not like the names of 2 columns",
    ) as caught:
        roles(rows)
    assert not any(word in str(caught.value) for word in ("court", "heart", "law"))
    numbered = [dict(enumerate(cells)) for cells in labelled(30, words)]
    assert roles(
        [{str(number): cell for number, cell in row.items()} for row in numbered]
    ).labels == ("1",)


def test_short_texts_may_contain_the_name_of_their_column():
    assert roles(
        [
            {"text": f"a text about topic {i % 3}, {i}", "label": "abc"[i % 3]}
            for i in range(60)
        ]
    ).text == ("text",)


def labelled(rows: int, words: int) -> list[tuple[str, str]]:
    return [(text(i, words), ";".join(several(i))) for i in range(rows)]


def test_a_question_of_a_survey_is_a_header():
    question, short = (
        "What could we do better in your opinion, and what should stay as it is?",
        "Which team do you mean?",
    )
    found = roles([{question: text(i, 40), short: NAMES[i % 5]} for i in range(30)])
    assert (found.text, found.labels) == ((question,), (short,))


@given(st.text(min_size=41))
def test_long_names_of_columns_are_not_shown(name):
    with pytest.raises(DataError) as caught:
        roles([{name: "x", "label": "b"}] * 9)
    assert name not in str(caught.value)


def test_answers_come_before_content():
    rows = [
        {"a": text(i), "b": text(i, 40), "x": "uv"[i % 2], "y": "a,b"}
        for i in range(30)
    ]
    found = roles(rows, text=("a",), labels="x", label_separator="", task="multi_label")
    assert (found.text, found.labels, found.task) == (("a",), ("x",), "multi_label")
    with pytest.raises(DataError, match=r"'z'.*a, b, x, y"):
        roles(rows, labels="z")
    with pytest.raises(DataError, match=r"--labels.*b, c"):
        roles([{"t": text(i), "b": "xy"[i % 2], "c": "uv"[i % 2]} for i in range(20)])


def test_a_file_without_rows():
    with pytest.raises(DataError, match=r"news\.csv: "):
        read_facts([], "news.csv")
    with pytest.raises(DataError, match="line 2: "):
        read_facts([Rejected("line 2", "malformed")], "news.csv")


def test_a_sample_is_drawn_from_files_sorted_by_label():
    rows = (
        Row({"label": "a" if i < 6_000 else "b", "n": json.dumps(i)}, "", i)
        for i in range(10_000)
    )
    column = next(one for one in read_facts(rows, "sorted") if one.name == "label")
    assert column.distinct == 2
    assert column.rows == 2_000


@given(
    st.lists(st.text(st.characters()), min_size=1, max_size=3, unique=True),
    st.sampled_from(["", "\ud83d", "x"]),
)
@example(["\x85"], "x")
@example(["a\u2028b"], "x")
@settings(max_examples=50)
def test_no_name_of_a_column_makes_a_wrong_configuration(
    others: list[str], text: str
) -> None:
    """Whatever the columns of a file are called, init writes a configuration that can be read, or asks."""
    rows = [
        {
            **dict.fromkeys(others, row),
            "labels": NAMES[row % 5],
            text: " ".join(WORDS[row % 9 :]) + f" {row}",
        }
        for row in range(40)
    ]
    try:
        roles = choose_roles(
            read_facts([Row(row, "x", 0) for row in rows], "x"), Answers(), "x"
        )
    except DataError:
        return
    section = data_section(DataFiles("x", {"train": ("x",)}, {}, CsvConfig), roles, "x")
    again = yaml.safe_load(commented_yaml({"data": section}, {}, []))["data"]
    assert adapter(DataConfig).validate_json(json.dumps(again)) == adapter(
        DataConfig
    ).validate_json(json.dumps(section))


def test_the_index_that_pandas_writes_is_left_out() -> None:
    rows = [
        {
            "": row,
            "text": " ".join(WORDS[row % 9 :]) + f" {row}",
            "labels": NAMES[row % 5],
        }
        for row in range(40)
    ]
    roles = choose_roles(
        read_facts([Row(row, "x", 0) for row in rows], "x"), Answers(), "x"
    )
    assert (roles.id, roles.text, roles.labels, roles.unused) == (
        None,
        ("text",),
        ("labels",),
        ("",),
    )


@pytest.mark.parametrize(
    "written",
    ["['{}', '{}']", "['{}' '{}']", "{{'{}', '{}'}}"],
    ids=["list", "array", "set"],
)
def test_lists_that_pandas_writes_are_called_lists(written: str) -> None:
    cells = [written.format(NAMES[row % 5], NAMES[(row + 2) % 5]) for row in range(40)]
    rows = [
        {"text": " ".join(WORDS[row % 9 :]) + f" {row}", "labels": cell}
        for row, cell in enumerate(cells)
    ]
    found = choose_roles(
        read_facts([Row(row, "x", 0) for row in rows], "x"), Answers(), "x"
    )
    assert (found.separator, found.why["labels"]) == (
        None,
        "a list; 5 different ones in 40 rows",
    )


@pytest.mark.parametrize("written", [list, json.dumps, str])
def test_lists_hold_labels_with_long_names_and_no_texts(written) -> None:
    names = [
        f"License :: OSI Approved :: GNU General Public License v{i} or later (GPLv{i}+)"
        for i in range(7)
    ]
    rows = [
        {
            "body": text(i),
            "groups": written([names[i % 7], names[i % 5]] * 3),
            "note": None,
        }
        for i in range(60)
    ]
    found = roles(rows)
    assert (found.text, found.labels, found.separator) == (("body",), ("groups",), None)
    rows = [
        row | {"places": written([NAMES[i % 3], NAMES[i % 4]])}
        for i, row in enumerate(rows)
    ]
    with pytest.raises(
        DataError,
        match=r"several columns may be the labels; .* They are: groups, places",
    ):
        roles(rows)
    steps = [
        {
            "title": text(i, 2),
            "steps": json.dumps([text(i, 30), text(i, 40)]),
            "kind": NAMES[i % 3],
        }
        for i in range(60)
    ]
    assert roles(steps).text == ("title", "steps")
    with pytest.raises(
        DataError, match=r"no column looks like text.* groups \(lists, "
    ):
        roles([{"groups": written(NAMES)}] * 20)


def test_joined_labels_may_have_long_names() -> None:
    names = [
        f"License :: OSI Approved :: GNU General Public License v{i} or later (GPLv{i}+)"
        for i in range(7)
    ]
    rows = [
        {
            "body": text(i, 60),
            "groups": "; ".join({names[i % 7], names[i % 5], NAMES[i % 3]}),
        }
        for i in range(60)
    ]
    assert (roles(rows).labels, roles(rows).separator) == (("groups",), ";")


def test_one_long_name_of_a_label_does_not_hide_the_others() -> None:
    names = [
        *NAMES,
        *"abcde",
        "the whole of the laws, of all states, that no other name tells of",
    ]
    found = roles([{"body": text(i, 30), "about": names[i % 11]} for i in range(60)])
    assert (found.labels, found.separator) == (("about",), None)


def test_vectors_are_refused_by_name() -> None:
    rows = [
        {"text": " ".join(WORDS[row % 9 :]) + f" {row}", "labels": [0, row % 2, 0]}
        for row in range(40)
    ]
    with pytest.raises(DataError, match=r"'labels' is a vector of 3 zeros and ones"):
        choose_roles(
            read_facts([Row(row, "x", 0) for row in rows], "x"), Answers(), "x"
        )


def test_categories_have_few_values_and_are_neither_labels_nor_measures():
    rows = [
        {
            "body": text(i, 30),
            "labels": several(i),
            "type": ["Directive", "Regulation 2"][i % 2 if i % 3 else 0],
        }
        | {
            "ward": i % 3,
            "day": f"2024-01-0{i % 3 + 1}",
            "same": "x",
            "remark": f"note {i}",
            "names": several(i)[0],
        }
        | {
            "place": ["Bonn", "Kiel", None, None][i % 4],
            "rare": ["a", "b", None, None, None][i % 5],
        }
        for i in range(120)
    ]
    found = roles(rows)
    assert found.categories == ("type", "place")
    assert found.unused == ("ward", "day", "same", "remark", "names", "rare")
    source = data_section(DataFiles("x", {"train": ("x",)}, {}, CsvConfig), found, "x")
    assert source["source"]["columns"]["categories"] == ["type", "place"]
    task = Task(
        source=source, name="x", labels=90, documents=500, readable=True, single=False
    )
    (best, *_) = candidates(
        replace(task, fields=("title", "body"), categories=found.categories), [128]
    )
    assert best.config().model.scorers[0].fields == {
        "title": 1,
        "body": 2,
        "type": 0.5,
        "place": 0.5,
    }


@pytest.mark.parametrize(
    "said",
    [
        ("TRUE", "FALSE"),
        ("true", "false"),
        ("True", "False"),
        (True, False),
        ("1", "0"),
    ],
)
def test_labels_that_are_columns_too_are_no_categories(said):
    rows = [{"body": text(i), "labels": several(i)} for i in range(120)]
    rows = [
        row | {name: said[name not in row["labels"]] for name in NAMES} for row in rows
    ]
    found = roles(rows)
    assert (found.labels, found.categories, found.unused) == (
        ("labels",),
        (),
        tuple(NAMES),
    )


@pytest.mark.parametrize(
    "written",
    [
        str,
        lambda day: f"{day:%d.%m.%Y}",
        lambda day: f"{day}T08:30:00Z",
        lambda day: day,
    ],
)
def test_dates_that_repeat_are_no_labels(written):
    rows = [
        {
            "body": text(i),
            "seen": written(date(2024, 5, i % 9 + 1)),
            "about": NAMES[i % 5],
        }
        for i in range(60)
    ]
    assert (roles(rows).labels, roles(rows).unused) == (("about",), ("seen",))
    with pytest.raises(
        DataError, match=r"no column looks like labels; .* seen \(dates, 9 different\)"
    ):
        roles([{"body": row["body"], "seen": row["seen"]} for row in rows])


def test_an_infinite_measure_is_no_label():
    rows = [
        {"body": text(i), "codes": several(i), "score": float("inf") if i % 2 else 0.0}
        for i in range(120)
    ]
    assert (roles(rows).labels, roles(rows).unused) == (("codes",), ("score",))


def test_a_label_that_is_written_twice_is_no_category():
    rows = [
        {"body": text(i), "label": i % 3, "group": ["law", "fish", "law"][i % 3]}
        for i in range(120)
    ]
    assert roles(rows).categories == ()
