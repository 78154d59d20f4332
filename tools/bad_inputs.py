"""Give every entry point every kind of bad input, and count what comes of it.

    python tools/bad_inputs.py [--every N] [--seed S] [--only CLASS]

A tiny model is trained first. Then each case runs in this process, under an alarm. A case ends in one of these ways:

    answered    a message without a traceback, and another exit status than 0
    accepted    exit status 0, where the input can be read after all, or where a warning says what was left out
    silent      exit status 0 without a word, where the case must be refused
    traceback   an exception that is no XmtcError
    hung        no answer within 30 seconds

The exit status is 1 if a case is silent, ends in a traceback or hangs.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bad_input_cases.calls import python_cases
from bad_input_cases.case import OUTCOMES, Case, Site, run_case
from bad_input_cases.configurations import configuration_cases
from bad_input_cases.directories import directory_cases
from bad_input_cases.documents import document_cases
from bad_input_cases.outputs import output_cases
from bad_input_cases.trained import make_site


def all_cases(site: Site) -> list[Case]:
    """Every class at every entry point."""
    made = (document_cases, directory_cases, configuration_cases, output_cases, python_cases)
    return [case for cases in made for case in cases(site)]


def table_of(found: list[tuple[Case, str]]) -> str:
    """Counts by class and entry point, as Markdown."""
    groups = dict.fromkeys((case.kind, case.entry) for case, _ in found)
    lines = ["| class | entry point | tried | " + " | ".join(OUTCOMES) + " |", "|---" * (3 + len(OUTCOMES)) + "|"]
    for group in [*groups, None]:
        ends = Counter(end for case, end in found if group in (None, (case.kind, case.entry)))
        counts = " | ".join(str(ends[end]) for end in OUTCOMES)
        lines.append(f"| {' | '.join(group) if group else 'all | '} | {ends.total()} | {counts} |")
    return "\n".join(lines)


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="run one case in so many")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--only", default="", help="run the classes whose names begin so")
    given = parser.parse_args()
    os.environ["LOKY_MAX_CPU_COUNT"] = "1"  # no pool of processes for a handful of documents
    found: list[tuple[Case, str]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site = make_site(folder)
        cases = [case for case in all_cases(site) if case.kind.startswith(given.only)]
        random.Random(given.seed).shuffle(cases)
        for number, case in enumerate(cases[:: given.every]):
            end, said = run_case(case, folder / "cases" / str(number))
            found.append((case, end))
            if end not in ("answered", "accepted"):
                print(
                    f"{end}: {case.kind}, {case.entry}, {case.name}\n    {said[-900:]!a}", file=sys.stderr, flush=True
                )
            shutil.rmtree(folder / "cases" / str(number), ignore_errors=True)
    print(table_of(sorted(found, key=lambda pair: (pair[0].kind, pair[0].entry))))
    sys.exit(any(end not in ("answered", "accepted") for _, end in found))


if __name__ == "__main__":
    main()
