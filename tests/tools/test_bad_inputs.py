"""A sample of the cases of tools/check/bad_inputs.py."""

import random
import shutil
from collections import Counter

import pytest

from bad_input_cases.case import OUTCOMES, Site, run_case
from bad_input_cases.refused_writes import refused_write_cases
from bad_input_cases.trained import add_extras
from bad_inputs import all_cases


@pytest.fixture
def site(whole, tmp_path, monkeypatch) -> Site:
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    shutil.copytree(whole.folder, tmp_path / "tiny")
    return add_extras(
        Site(whole.run, whole.config, whole.folder / "corpus", tmp_path / "tiny")
    )


def test_no_case_of_the_sample_is_silent_hangs_or_ends_in_a_traceback(site):
    cases = all_cases(site)
    assert len(cases) > 1_000
    sample = random.Random(3).sample(
        [case for case in cases if case.kind != "refused writes"], 30
    )
    ends = [
        (run_case(case, site.folder / "cases" / str(n)), case)
        for n, case in enumerate(sample)
    ]
    bad = [
        (end, case.kind, case.entry, case.name, said[-300:])
        for (end, said), case in ends
        if end in OUTCOMES[2:]
    ]
    assert bad == []
    assert Counter(end for (end, _), _ in ends)["answered"] > 5


REFUSED = [
    ("train", "replace 10"),
    ("train", "files of 5,000 bytes"),
    ("labels rename", "files of 400 bytes"),
    ("labels merge", "rename 0"),
    ("evaluate", "open 5"),
    ("score", "files of 0 bytes"),
]


@pytest.mark.parametrize(("entry", "refusal"), REFUSED)
def test_a_refused_write_is_reported_and_the_same_command_then_succeeds(
    site, entry, refusal
):
    (case,) = (
        case
        for case in refused_write_cases(site)
        if case.entry == entry and case.name.startswith(refusal)
    )
    end, said = run_case(case, site.folder / "refused")
    assert end == "answered", said
