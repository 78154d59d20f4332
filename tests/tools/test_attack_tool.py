"""A sample of tools/check/attacks.py; the tests that SECURITY.md names hold one of each kind."""

import pytest

from attack_cases.adapters import adapter_attacks
from attack_cases.content import content_attacks
from attack_cases.corpora import corpus_attacks
from attack_cases.links import link_attacks
from attack_cases.long_documents import long_document_attacks
from attack_cases.meanwhile import meanwhile_attacks
from attack_cases.runs import run_attacks
from attack_cases.served import server_attacks
from attack_cases.signals import signal_attacks
from attack_cases.store import store_attacks
from attack_cases.strange import strange_attacks
from bad_input_cases.case import Site
from bad_input_cases.trained import add_extras


@pytest.fixture
def site(whole, tmp_path, monkeypatch) -> Site:
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    (tmp_path / "tiny").mkdir()
    return add_extras(
        Site(whole.run, whole.config, whole.folder / "corpus", tmp_path / "tiny")
    )


SAMPLE = [
    ("links", "score"),
    ("input changes", "score, overwritten"),
    ("input changes", "score, replaced"),
    ("long documents", "score, .json, a little"),
    ("torn lines", "zeros"),
    ("runs: states", "status, an error that commands"),
    ("runs: logs", "status, a long line"),
    ("runs: locks", "run, a link to another file"),
    ("runs: checkpoints", "a phase of -1"),
    ("corpora: shards with the correct labels", "label_ids of 10000"),
]


def test_a_sample_of_the_attacks_holds(site, tmp_path):
    server = object()
    attacks = [*link_attacks(site), *meanwhile_attacks(site), *signal_attacks(site)]
    assert len(attacks) + sum(1 for _ in server_attacks(site, server, server)) >= 400
    assert sum(1 for _ in content_attacks(site, server, tmp_path)) >= 80
    more = [*long_document_attacks(site), *store_attacks(site, server)]
    more += strange_attacks(site, server, server, tmp_path)
    more += [
        *corpus_attacks(site, site),
        *run_attacks(site, site),
        *adapter_attacks(site),
    ]
    assert len(more) >= 700
    attacks += more
    for number, wanted in enumerate(SAMPLE):
        attack = next(one for one in attacks if (one.kind, one.boundary) == wanted)
        (tmp_path / str(number)).mkdir()
        attack.do(tmp_path / str(number))
