"""A sample of the cases of tools/bad_inputs.py, and every error of the operating system at every boundary."""

import errno
import importlib.util
import os
import random
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

TOOL = Path(__file__).parents[1] / "tools" / "bad_inputs.py"
ERRORS = (errno.ENOSPC, errno.EACCES)


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("bad_inputs", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bad_inputs"] = module
    spec.loader.exec_module(module)
    return module


def test_no_case_of_the_sample_is_silent_hangs_or_ends_in_a_traceback(tool, whole, tmp_path, monkeypatch):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    shutil.copytree(whole.folder, tmp_path / "tiny")
    folder = tmp_path / "tiny"
    site = tool.Site(whole.run, whole.config, whole.folder / "corpus", folder)
    cases = tool.all_cases(tool.add_extras(site))
    assert len(cases) > 1_000
    sample = random.Random(3).sample(cases, 30)
    ends = [(tool.run_case(case, folder / "cases" / str(n)), case) for n, case in enumerate(sample)]
    bad = [
        (end, case.kind, case.entry, case.name, said[-300:]) for (end, said), case in ends if end in tool.OUTCOMES[2:]
    ]
    assert bad == []
    assert Counter(end for (end, _), _ in ends)["answered"] > 5


@pytest.mark.parametrize("number", ERRORS, ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("call", ["replace", "mkdir", "fsync"])
def test_an_error_of_the_system_is_said_in_a_line(whole, xmtc, tmp_path, monkeypatch, number, call):
    (tmp_path / "one.jsonl").write_text('{"text": "lawery"}\n')
    torch.set_num_threads(1)
    model, predictions = whole.run / "model", whole.run / "eval" / "dev" / "predictions.parquet"
    output = tmp_path / "d" / "out"
    commands = {
        "report": ("report", whole.run, "-o", tmp_path / "a" / "r.html"),
        "explain": ("explain", model, "-t", "lawery", "-o", tmp_path / "b" / "p.html"),
        "score": ("score", model, tmp_path / "one.jsonl", "-o", tmp_path / "c" / "scored"),
        "evaluate": ("evaluate", "--predictions", predictions, "--gold", whole.folder / "corpus", "--output", output),
    }
    real = getattr(os, call)

    def refuse(*arguments, **options):
        place = arguments[0]
        if isinstance(place, int) or str(place).startswith(str(tmp_path)):
            raise OSError(number, os.strerror(number), None if isinstance(place, int) else str(place))
        return real(*arguments, **options)

    monkeypatch.setattr(os, call, refuse)
    for command, words in commands.items():
        outcome = xmtc(*words)
        assert outcome.code == 1, command
        assert "Error: " in outcome.err, command
        assert os.strerror(number) in outcome.err, command
