"""Give every entry point every kind of bad input, and count what comes of it.

    python tools/check/bad_inputs.py [--cases N] [--seed S] [--only CLASS] [--record FILE]

A tiny model is trained first. The cases are drawn evenly from all classes and entry points. Each runs in a fork of this
process, which may crash or hang. A case ends in one of these ways:

    answered    a message without a traceback, and another exit status than 0
    accepted    exit status 0, where the input can be read after all, or where a warning says what was left out
    silent      exit status 0 without a word, where the case must be refused, or with other scores or metrics
    traceback   an exception that is no XmtcError
    hung        no answer within 30 seconds
    crashed     the process was lost, by a signal for example

The exit status is 1 if a case ends in one of the last four ways.
"""

import argparse
import gc
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bad_input_cases.calls import python_cases
from bad_input_cases.case import OUTCOMES, Case, Site, import_all, in_child, run_apart
from bad_input_cases.configurations import configuration_cases
from bad_input_cases.directories import directory_cases
from bad_input_cases.documents import document_cases
from bad_input_cases.outputs import output_cases
from bad_input_cases.refused_writes import refused_write_cases
from bad_input_cases.tables import table_cases
from bad_input_cases.trained import make_site

GOOD = ("answered", "accepted")


def all_cases(site: Site) -> list[Case]:
    """Every class at every entry point."""
    made = (
        document_cases,
        directory_cases,
        configuration_cases,
        output_cases,
        refused_write_cases,
        table_cases,
    )
    return [case for cases in (*made, python_cases) for case in cases(site)]


def prepared(folder: Path) -> Site:
    """Train the tiny model in a fork, then import here what it imported: threads do not survive a fork."""
    (site, modules), _ = in_child(
        lambda: (make_site(folder), sorted(sys.modules)), limit_s=600
    )
    import_all(modules)
    gc.freeze()  # a collection in a fork would copy every page
    return site


def spread(cases: list[Case], random_: random.Random) -> list[Case]:
    """The cases in an order that takes one of each class and entry point in turn."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in random_.sample(cases, len(cases)):
        groups.setdefault((case.kind, case.entry), []).append(case)
    turns = itertools.zip_longest(*groups.values())
    return [case for turn in turns for case in turn if case is not None]


def table_of(found: list[tuple[Case, str]]) -> str:
    """Counts by class and entry point, as Markdown."""
    groups = dict.fromkeys((case.kind, case.entry) for case, _ in found)
    lines = [
        "| class | entry point | tried | " + " | ".join(OUTCOMES) + " |",
        "|---" * (3 + len(OUTCOMES)) + "|",
    ]
    for group in [*groups, None]:
        ends = Counter(
            end for case, end in found if group in (None, (case.kind, case.entry))
        )
        counts = " | ".join(str(ends[end]) for end in OUTCOMES)
        lines.append(
            f"| {' | '.join(group) if group else 'all | '} | {ends.total()} | {counts} |"
        )
    return "\n".join(lines)


def key_of(case: Case) -> tuple[str, str, str]:
    """What tells a case from all others."""
    return case.kind, case.entry, case.name


def read_record(path: Path | None) -> dict[tuple[str, str, str], str]:
    """How the cases of an interrupted tool ended."""
    if path is None or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {(kind, entry, name): end for kind, entry, name, end in lines}


def end_of(case: Case, folder: Path) -> str:
    """Run a case; name it on stderr if it ends badly."""
    end, said = run_apart(case, folder)
    if end not in GOOD:
        print(
            f"{end}: {case.kind}, {case.entry}, {case.name}\n    {said[-900:]!a}",
            file=sys.stderr,
            flush=True,
        )
    shutil.rmtree(folder, ignore_errors=True)
    return end


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases",
        type=int,
        default=1_000,
        help="how many to run (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument(
        "--only", default="", help="run the classes whose names begin so"
    )
    parser.add_argument(
        "--record",
        type=Path,
        help="JSON lines of the cases that ran; an interrupted tool continues",
    )
    given = parser.parse_args()
    os.environ["LOKY_MAX_CPU_COUNT"] = (
        "1"  # no pool of processes for a handful of documents
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = [
            case
            for case in all_cases(prepared(folder))
            if case.kind.startswith(given.only)
        ]
        known = read_record(given.record)
        spread_cases = spread(cases, random.Random(given.seed))
        chosen = sorted(spread_cases, key=lambda case: key_of(case) not in known)[
            : given.cases
        ]
        for number, case in enumerate(
            case for case in chosen if key_of(case) not in known
        ):
            known[key_of(case)] = end_of(case, folder / "cases" / str(number))
            if given.record:
                given.record.open("a").write(
                    json.dumps([*key_of(case), known[key_of(case)]]) + "\n"
                )
    found = [(case, known[key_of(case)]) for case in chosen]
    print(f"{len(found)} of {len(cases)} cases\n")
    print(table_of(sorted(found, key=lambda pair: (pair[0].kind, pair[0].entry))))
    sys.exit(any(end not in GOOD for _, end in found))


if __name__ == "__main__":
    main()
