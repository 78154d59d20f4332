"""Loading: bases, overrides, YAML traps, and the wording of each kind of mistake."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Discriminator, Field

from xmtc.config import yaml_tree
from xmtc.config.base import config
from xmtc.config.load import load_config
from xmtc.errors import ConfigError


@config
class Attention:
    """Label attention."""

    kind: Literal["attention"] = "attention"
    """Selects it."""
    heads: Annotated[int, Field(ge=1)] = 4
    """How many."""
    width: int | None = None
    """Width."""


@config
class Flat:
    kind: Literal["flat"] = "flat"
    bias: bool = True


Head = Annotated[Attention | Flat, Discriminator("kind")]


@config
class Optimizer:
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    schedule: Literal["cosine", "linear"] = "cosine"
    warmup: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        if self.betas[0] > self.betas[1]:
            raise ValueError("betas must rise; swap them")


@config
class Run:
    name: str
    seed: int = 0
    head: Head = Attention(heads=2)
    extra_head: Head | None = None
    heads: tuple[Head, ...] = ()
    optimizer: Optimizer = Optimizer()
    columns: tuple[str, ...] = ("text",)
    from_config: Mapping[str, Any] | None = None
    rule: (
        Annotated[str, Field(pattern=r"^[a-z]=\d$", examples=["a=1", "b=2"])] | None
    ) = None
    code: Annotated[str, Field(pattern=r"^x$")] = "x"
    fields: (
        str | Annotated[tuple[str, ...] | Mapping[str, float], Field(min_length=1)]
    ) = "text"


def write(folder: Path, text: str, name: str = "run.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, text: str, *overrides: str) -> Run:
    return load_config(Run, write(folder, text), overrides)


def problem(folder: Path, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, *overrides)
    return str(caught.value).replace(f"{folder}/", "")


def test_defaults_sections_and_tuples(tmp_path: Path) -> None:
    run = load(
        tmp_path, "name: a\noptimizer: {betas: [0.5, 0.6]}\ncolumns: [title, body]\n"
    )
    assert run == Run(
        name="a", optimizer=Optimizer(betas=(0.5, 0.6)), columns=("title", "body")
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1e5", 1e5),
        ("1.5E+3", 1500.0),
        (".5", 0.5),
        ("3.", 3.0),
        ("-2", -2),
        ("1_000", 1000),
        ("on", "on"),
        ("no", "no"),
        ("Y", "Y"),
        ("true", True),
        ("2024-01-31", "2024-01-31"),
        ("0123", "0123"),
        ("12:30", "12:30"),
        ("0x1f", "0x1f"),
        ("~", None),
        ("", None),
        ("428.0", 428.0),
        ("'428.0'", "428.0"),
        ("1e", "1e"),
        ("-", "-"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(
    tmp_path: Path, text: str, value: object
) -> None:
    if text == "-":
        text = "'-'"
    run = load(tmp_path, f"name: a\nfrom_config:\n  key: {text}\n  on: 1\n")
    assert run.from_config == {"key": value, "on": 1}
    assert type(run.from_config["key"]) is type(value)


def test_base_is_merged_deeply_and_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    write(
        tmp_path,
        "name: low\nseed: 1\noptimizer: {learning_rate: 0.1, schedule: linear}\n",
        "shared/low.yaml",
    )
    write(tmp_path, "base: low.yaml\nseed: 2\ncolumns: [a, b]\n", "shared/middle.yaml")
    run = load(
        tmp_path,
        "base: shared/middle.yaml\nname: top\noptimizer: {schedule: cosine}\ncolumns: [c]\n",
    )
    assert run == Run(
        name="top", seed=2, optimizer=Optimizer(learning_rate=0.1), columns=("c",)
    )


def test_another_kind_replaces_the_section(tmp_path: Path) -> None:
    write(tmp_path, "name: a\nhead: {kind: attention, heads: 8}\n", "base.yaml")
    assert load(tmp_path, "base: base.yaml\nhead: {kind: flat}\n").head == Flat()
    assert load(
        tmp_path, "base: base.yaml\nhead: {kind: attention, width: 3}\n"
    ).head == Attention(heads=8, width=3)
    assert load(tmp_path, "base: base.yaml\nhead: {width: 3}\n").head == Attention(
        heads=8, width=3
    )
    assert load(
        tmp_path, "base: base.yaml\n", "head.bias=false", "head.kind=flat"
    ).head == Flat(bias=False)
    assert load(tmp_path, "base: base.yaml\n", "head={kind: flat}").head == Flat()
    assert load(tmp_path, "base: base.yaml\n", "head.kind=attention").head == Attention(
        heads=8
    )


def test_kind_may_be_left_out_where_the_default_has_one(tmp_path: Path) -> None:
    assert load(tmp_path, "name: a\nhead: {heads: 7}\n").head == Attention(heads=7)
    assert load(tmp_path, "name: a\n", "head.heads=7").head == Attention(heads=7)
    assert load(
        tmp_path, "name: a\nhead: {heads: 7}\n", "head.kind=attention"
    ).head == Attention(heads=7)


@pytest.mark.parametrize("sign", [",", "|", "-", ";", "#", "\t", " ", "%", '"'])
def test_a_sign_as_an_override_is_itself(tmp_path: Path, sign: str) -> None:
    """The shell takes the quotes that YAML would need."""
    assert load(tmp_path, "name: a\n", f"name={sign}").name == sign


def test_overrides_win_and_are_yaml(tmp_path: Path) -> None:
    run = load(
        tmp_path,
        "name: a\nseed: 3\nextra_head: {kind: flat}\n",
        "seed=4",
        "seed=5",
        "optimizer.learning_rate=1e-5",
        "columns=[x, y]",
        "extra_head=null",
        "from_config.hidden.size=8",
        "name='7'",
        "heads=[{kind: flat}, {kind: attention, width: 3}]",
        "heads.0={kind: attention, heads: 5}",
        "heads.1.heads=6",
    )
    assert run.heads == (Attention(heads=5), Attention(heads=6, width=3))
    assert (run.seed, run.optimizer.learning_rate, run.columns) == (5, 1e-5, ("x", "y"))
    assert run.extra_head is None
    assert run.from_config == {"hidden": {"size": 8}}
    assert run.name == "7"


@pytest.mark.parametrize(
    ("text", "overrides", "words"),
    [
        (
            "name: a\nsede: 1\n",
            (),
            "run.yaml:2: sede: unknown key; did you mean 'seed'? known here: name, seed, head,",
        ),
        (
            "name: a\nhead:\n  kind: flat\n  heads: 3\n",
            (),
            "run.yaml:4: head.heads: unknown key; known here: kind",
        ),
        ("name: a\nzzzz: 1\n", (), "run.yaml:2: zzzz: unknown key; known here: name"),
        ("seed: 1\n", (), "run.yaml:1: name: missing; give it a value"),
        ("name: 3\n", (), '; put it in quotes: "3"'),
        (
            "name: a\nseed: 1.0\n",
            (),
            "run.yaml:2: seed: 1.0: must be a valid integer; write 1",
        ),
        (
            "name: a\nseed: true\n",
            (),
            "run.yaml:2: seed: true: must be a valid integer",
        ),
        (
            "name: a\nseed: null\n",
            (),
            "run.yaml:2: seed: null: must be a valid integer",
        ),
        (
            "name: a\nhead: {heads: 0}\n",
            (),
            "run.yaml:2: head.heads: 0: must be greater than or equal to 1",
        ),
        (
            "name: a\nhead: {width: x}\n",
            (),
            "run.yaml:2: head.width: 'x': must be a valid integer",
        ),
        (
            "name: a\nhead: {kind: flat, bias: off}\n",
            (),
            "head.bias: 'off': must be a valid boolean; write false",
        ),
        (
            "name: a\nhead: {kind: flatt}\n",
            (),
            "head.kind: 'flatt': unknown kind; did you mean 'flat'? known:",
        ),
        (
            "name: a\nextra_head: {heads: 1}\n",
            (),
            "run.yaml:2: extra_head: needs a kind; add 'kind:' with one of att",
        ),
        (
            "name: a\nheads:\n- kind: flat\n- kind: flat\n  bais: 1\n",
            (),
            "run.yaml:5: heads.1.bais: unknown key; did",
        ),
        ("name: a\nhead: flat\n", (), "run.yaml:2: head: 'flat': must be"),
        ("name: a\nrule: top\n", (), "run.yaml:2: rule: 'top': must be like a=1, b=2"),
        (
            "name: a\ncode: y\n",
            (),
            "run.yaml:2: code: 'y': must match pattern",
        ),  # a plugin without examples
        ("name: a\ncolumns: text\n", (), "must be a list; write [text]"),
        ("name: a\ncolumns: 2\n", (), "must be a list; write [2]"),
        ("name: a\ncolumns: [1]\n", (), "columns.0: 1: must be a valid string"),
        (
            "name: a\nfields: []\n",
            (),
            "fields: []: must be a valid string or must have at least 1 item, not 0",
        ),
        ("name: a\noptimizer: x\n", (), "optimizer: 'x': must be a section"),
        (
            "name: a\noptimizer: {betas: [1]}\n",
            (),
            "run.yaml:2: optimizer.betas.1: missing",
        ),
        (
            "name: a\noptimizer: {betas: [0.9, 0.1]}\n",
            (),
            "run.yaml:2: optimizer: betas must rise; swap them",
        ),
        (
            "name: a\noptimizer: {schedule: cosin}\n",
            (),
            "schedule: 'cosin': must be 'cosine' or 'linear'; did",
        ),
        (
            "name: a\noptimizer: {warmup: autom}\n",
            (),
            "must be a valid integer or must be 'auto'; did you mean 'auto'?",
        ),
        (
            "name: a\noptimizer: {learning_rate: .nan}\n",
            (),
            "nan: must be a finite number",
        ),
        ("name: a\noptimizer: 3\n", (), "run.yaml:2: optimizer: 3: must be"),
        (
            "name: a\nname: b\n",
            (),
            "run.yaml:2: name: occurs twice in this section (first in line 1); keep one",
        ),
        (
            "name: a\n",
            ("seed",),
            "command line: 'seed': an override is written key=value",
        ),
        ("name: a\n", ("=1",), "an override is written key=value"),
        (
            "name: a\nheads: [{kind: flat}]\n",
            ("heads.1.bias=true",),
            "heads.1.bias=true: 1: the list has 1 elements",
        ),
        (
            "name: a\nheads: [{kind: flat}]\n",
            ("heads.0.bias=3",),
            "heads.0.bias=3: heads.0.bias: 3: must be",
        ),
        (
            "name: a\n",
            ("sead=1",),
            "command line: sead=1: sead: unknown key; did you mean 'seed'?",
        ),
        (
            "name: a\n",
            ("warmup=1",),
            "warmup: unknown key; did you mean 'optimizer.warmup'? known here: name",
        ),
        (
            "name: a\n",
            ("true",),
            "'true': an option such as --dry-run takes no value; leave true out",
        ),
        ("name: a\n", ("columns=[1",), "command line: columns=[1: not valid YAML"),
        (
            "name: a\n",
            ("head.heads=many",),
            "command line: head.heads=many: head.heads: 'many': must be a",
        ),
        ("name: [a\nseed: 1\n", (), "run.yaml:2: not valid YAML"),
        ("name: a\n\tseed: 1\n", (), "run.yaml:2: not valid YAML"),
        (
            "- a\n",
            (),
            "run.yaml:1: the top level must be sections such as 'data:', not a list",
        ),
        ("just text\n", (), "not the value 'just text'"),
        (
            "name: !!python/name:os.system a\n",
            (),
            "run.yaml:1: the tag tag:yaml.org,2002:python/name:os",
        ),
        ("name: &x {a: *x}\n", (), "an alias refers to a section that contains it"),
        ("? [a]\n: 1\nname: a\n", (), "a key must be a word"),
        ("", (), "name: missing"),
    ],
)
def test_each_mistake_has_a_message(
    tmp_path: Path, text: str, overrides: tuple[str, ...], words: str
) -> None:
    assert words in problem(tmp_path, text, *overrides)


def test_all_problems_at_once(tmp_path: Path) -> None:
    words = problem(
        tmp_path,
        "seed: x\nseed: y\nsede: 1\nhead: {kind: flat, bias: 3}\n",
        "nonsense",
        "columns=3",
    )
    assert words.startswith("7 problems in the configuration:\n")
    for key in (
        "seed: occurs twice",
        "seed: 'y'",
        "sede",
        "head.bias",
        "'nonsense'",
        "columns",
        "name: missing",
    ):
        assert key in words
    assert len(words.splitlines()) == 8


def test_problem_names_the_file_that_holds_the_value(tmp_path: Path) -> None:
    write(tmp_path, "name: a\nseed: x\n", "base.yaml")
    assert problem(tmp_path, "base: base.yaml\n").startswith("base.yaml:2: seed: 'x'")


def test_base_mistakes(tmp_path: Path) -> None:
    assert (
        "base: 'none.yaml': no such file; the path is relative to run.yaml"
        in problem(tmp_path, "base: none.yaml\n")
    )
    assert "run.yaml:1: base: must be the path" in problem(tmp_path, "base: [a]\n")
    write(tmp_path, "base: run.yaml\n", "other.yaml")
    assert "each other's base (run.yaml -> other.yaml -> run.yaml)" in problem(
        tmp_path, "base: other.yaml\n"
    )
    assert "each other's base" in problem(tmp_path, "base: run.yaml\n")


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(Run, tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(Run, tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.yaml: .*not UTF-8"):
        load_config(Run, tmp_path / "latin.yaml")
    (tmp_path / "control.yaml").write_text("name: a\nseed: \x001\n")
    with pytest.raises(ConfigError, match=r"control\.yaml:2: .*#x0000"):
        load_config(Run, tmp_path / "control.yaml")


def test_long_values_are_cut(tmp_path: Path) -> None:
    words = problem(tmp_path, f"name: a\nseed: {'x' * 500}\n")
    assert len(words) < 200


_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
_plain = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_plain)
def test_dump_and_parse_agree(data: Any) -> None:
    problems: list[str] = []
    text = yaml_tree.dump(data)
    if re.search("[\x85\u2028\u2029\ufeff]", text):
        return
    assert yaml_tree.parse(text, "file", problems).plain() == data
    assert not problems


@pytest.mark.parametrize(
    "text",
    ["1e-4", "on", "0123", "null", "true", "1_0", "12:30", "2024-01-31", ".5", "~", ""],
)
def test_text_that_looks_like_something_else_stays_text(text: str) -> None:
    assert yaml_tree.parse(yaml_tree.dump({"key": text}), "file", []).plain() == {
        "key": text
    }


def test_the_place_of_a_mistake_is_where_it_was_written(tmp_path: Path) -> None:
    assert (
        problem(tmp_path, "name: a\nfields:\n  title: x\n")
        == "run.yaml:3: fields.title: 'x': must be a valid number"
    )
    assert (
        problem(tmp_path, "name: a\nfields: [b, 1]\n")
        == "run.yaml:2: fields.1: 1: must be a valid string"
    )
    of_another = problem(tmp_path, "name: a\nfields: {title: 1}\n", "fields.title=x")
    assert (
        of_another
        == "command line: fields.title=x: fields.title: 'x': must be a valid number"
    )
    below_a_value = problem(tmp_path, "name: a\nseed: 1\n", "seed.x=1")
    assert below_a_value == "command line: seed.x=1: seed: must be a valid integer"
