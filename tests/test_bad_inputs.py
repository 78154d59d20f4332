"""A sample of the cases of tools/bad_inputs.py."""

import random
import shutil
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from bad_input_cases.case import OUTCOMES, Site, run_case
from bad_input_cases.trained import add_extras
from bad_inputs import all_cases


def test_no_case_of_the_sample_is_silent_hangs_or_ends_in_a_traceback(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    shutil.copytree(whole.folder, tmp_path / "tiny")
    folder = tmp_path / "tiny"
    site = Site(whole.run, whole.config, whole.folder / "corpus", folder)
    cases = all_cases(add_extras(site))
    assert len(cases) > 1_000
    sample = random.Random(3).sample(cases, 30)
    ends = [(run_case(case, folder / "cases" / str(n)), case) for n, case in enumerate(sample)]
    bad = [(end, case.kind, case.entry, case.name, said[-300:]) for (end, said), case in ends if end in OUTCOMES[2:]]
    assert bad == []
    assert Counter(end for (end, _), _ in ends)["answered"] > 5
