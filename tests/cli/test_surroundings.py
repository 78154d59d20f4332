"""Processes as containers, services and other programs start them: no home, odd encodings, another default type."""

import os
import pickle
import pwd
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_runs
import xmtc
from whole_run import WholeRun
from xmtc.data.pretrained import user_cache

ROOT = Path(__file__).parents[2]
QUESTION = "lawery and lawing"
_INIT = """
import sys
from formats import without_measuring
from xmtc.cli import main
sys.argv = ["xmtc", *sys.argv[1:]]
with without_measuring():
    main()
"""
"""`xmtc init` that measures nothing."""


@pytest.fixture(scope="module")
def model(whole: WholeRun) -> xmtc.Model:
    return xmtc.Model.from_pretrained(whole.run, device="cpu")


def python(
    *arguments: str, folder: Path, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Run Python with these environment variables, without those that would set its encoding."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("LC_", "LANG", "PYTHON"))
    }
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tools/check")))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": paths, **variables},
        capture_output=True,
        check=False,
    )


def test_the_package_is_a_command(tmp_path: Path) -> None:
    done = python("-m", "xmtc", "--version", folder=tmp_path)
    assert done.returncode == 0
    assert xmtc.__version__ in done.stdout.decode()
    wrong = python("-m", "xmtc", "trian", folder=tmp_path)
    assert wrong.returncode == 2
    assert b"train" in wrong.stderr


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["latin-1", "C"],
)
def test_terminals_that_cannot_show_a_text(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    """Labels and names of files that the terminal lacks are escaped; files are UTF-8 all the same."""
    rows = [
        {**row, "labels": [f"税 {label} 😀" for label in row["labels"]]}
        for row in tiny_runs.documents(60)
    ]
    tiny_runs.write_jsonl(tmp_path / "a.jsonl", rows)
    done = python(
        "-c", _INIT, "init", "a.jsonl", "-o", "b.yaml", folder=tmp_path, **variables
    )
    assert done.returncode == 0, done.stderr
    assert b"60 documents" in done.stdout
    assert (tmp_path / "b.yaml").read_text(encoding="utf-8").startswith("# Written by")


def test_names_that_python_has_not_decoded(tmp_path: Path) -> None:
    variables = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    refused = python("-m", "xmtc", "init", "税.jsonl", folder=tmp_path, **variables)
    assert refused.returncode == 1
    assert b"set PYTHONUTF8=1" in refused.stderr
    assert b"Traceback" not in refused.stderr
    variables["PYTHONUTF8"] = "1"
    again = python("-m", "xmtc", "init", "税.jsonl", folder=tmp_path, **variables)
    assert "税.jsonl: no such file" in again.stderr.decode()


def test_a_text_that_is_no_utf_8_is_not_printed(
    tmp_path: Path, whole: WholeRun
) -> None:
    command = [sys.executable, "-m", "xmtc", "predict", str(whole.run), "--text"]
    text = "a secret of caf\xe9s".encode("latin-1")
    done = subprocess.run(
        [*map(os.fsencode, command), text], capture_output=True, check=False, cwd=ROOT
    )
    assert done.returncode == 1
    assert b"UTF-8" in done.stderr
    assert b"secret" not in done.stdout + done.stderr


def test_a_user_without_a_home_has_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a number that no table of users knows."""

    def nobody(number: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(RuntimeError):
        Path.home()
    assert user_cache().is_absolute()


def test_a_pickled_model_predicts_the_same(model: xmtc.Model) -> None:
    before = model.predict([QUESTION])  # with everything that a model keeps for later
    copy = pickle.loads(pickle.dumps(model))
    again = pickle.loads(pickle.dumps(copy))
    assert copy.predict([QUESTION]) == before
    assert again.predict([QUESTION]) == before
    assert again.info == model.info


def test_a_default_type_that_others_set_changes_no_prediction(
    whole: WholeRun, model: xmtc.Model
) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        loaded = xmtc.Model.from_pretrained(whole.run, device="cpu")
        predicted = loaded.predict([QUESTION], top_k=3)
    finally:
        torch.set_default_dtype(before)
    expected = model.predict([QUESTION], top_k=3)
    assert [one.label for one in predicted[0]] == [one.label for one in expected[0]]
    np.testing.assert_allclose(
        [one.score for one in predicted[0]],
        [one.score for one in expected[0]],
        rtol=1e-4,
    )
