"""Which card a run has, and what estimates say of it."""

import shlex
import types
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from xmtc.config.load import load_config
from xmtc.distributed.cards import CARDS, card_named
from xmtc.distributed.config import DistributedConfig
from xmtc.estimate import memory
from xmtc.estimate.estimate import Estimate
from xmtc.estimate.memory import memory_of_worker
from xmtc.estimate.size import Size
from xmtc.preflight.dry_run import print_estimate
from xmtc.run.config import RunConfig

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "configs/quickstart.yaml"
FOUND = Estimate(
    memory={"weights": 30 * 2**30},
    disk={},
    parameters=10,
    trained=10,
    steps={},
    workers=1,
    size=Size(),
    width=8,
)


def run(**distributed: object) -> RunConfig:
    loaded = load_config(RunConfig, QUICKSTART, [])
    return replace(
        loaded,
        distributed=DistributedConfig(
            **{"workers": 1, "gpus_per_worker": 1.0} | distributed
        ),
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("A100-80G", "A100-80G"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10G", "A10G"),
        ("Tesla T4", "T4"),
        ("Quadro K620", None),
    ],
)
def test_names(name: str, found: str | None) -> None:
    assert card_named(name) == (None if found is None else CARDS[found])


def test_a_card_that_ray_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = run(resources_per_worker={"accelerator_type:A10G": 0.001})
    assert memory_of_worker(config) == 24 * 2**30
    on_cpus = run(
        gpus_per_worker=0.0, resources_per_worker={"accelerator_type:A10G": 0.001}
    )
    assert memory_of_worker(on_cpus) != 24 * 2**30


def test_the_card_of_this_machine_has_its_real_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = types.SimpleNamespace(name="NVIDIA A100-SXM4-80GB", total_memory=79 * 2**30)
    monkeypatch.setattr(memory.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(memory.torch.cuda, "get_device_properties", lambda index: here)
    monkeypatch.setattr(memory.torch.cuda, "device_count", lambda: 1)
    assert memory_of_worker(run(precision="bf16")) == 79 * 2**30
    assert (
        memory_of_worker(run(gpus_per_worker=0.0, workers=0)) == 79 * 2**30
    )  # the process takes it unasked
    assert memory_of_worker(run(gpus_per_worker=0.0, workers=1)) != 79 * 2**30


def test_an_unknown_card_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    print_estimate(run(precision="bf16"), FOUND)
    advice = next(
        line
        for line in capsys.readouterr().out.splitlines()
        if "accelerator_type:A100" in line
    )
    (pasted,) = [word for word in shlex.split(advice) if "accelerator_type" in word]
    config = load_config(
        RunConfig, ROOT / "configs/smoke_llama.yaml", [pasted.rstrip(",")]
    )
    assert config.distributed.resources_per_worker == {"accelerator_type:A100": 0.001}


def test_what_does_not_fit_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    print_estimate(run(resources_per_worker={"accelerator_type:L4": 0.001}), FOUND)
    assert "this exceeds the 24.0 GiB of a worker" in capsys.readouterr().out


def test_the_table_has_every_name_once_and_longer_names_first() -> None:
    names = list(CARDS)
    for place, name in enumerate(names):
        assert not any(earlier in name for earlier in names[:place]), name
