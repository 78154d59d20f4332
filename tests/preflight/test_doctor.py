"""The doctor's findings, on machines that lack this and that."""

import io
import shutil
import types
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from rich.console import Console

from xmtc.config.load import load_config
from xmtc.estimate.estimate import estimate
from xmtc.preflight import doctor as doctor_module
from xmtc.preflight import machine as module
from xmtc.preflight.doctor import check_machine, doctor, run_doctor
from xmtc.preflight.machine import Check
from xmtc.preflight.places import check_estimated_disks, check_source
from xmtc.run.config import RunConfig
from xmtc.track.console import terminal_table

QUICKSTART = Path(__file__).parents[2] / "configs/quickstart.yaml"


def config(*overrides: str) -> RunConfig:
    return load_config(RunConfig, QUICKSTART, overrides)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def found(*overrides: str) -> dict[str, Check]:
    return {check.name: check for check in doctor(config(*overrides))}


def test_the_quickstart_runs_on_this_machine() -> None:
    checks = found()
    assert {
        name for name, check in checks.items() if check.status == "missing"
    } == set()


def test_what_several_workers_need_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = module.find_spec
    monkeypatch.setattr(
        module,
        "find_spec",
        lambda name: None if name in ("ray", "deepspeed") else real(name),
    )
    assert {name: found()[name].status for name in ("ray", "deepspeed")} == {
        "ray": "note",
        "deepspeed": "note",
    }
    checks = found(
        "distributed.workers=2", "distributed.strategy={kind: deepspeed, stage: 1}"
    )
    assert {checks[name].status for name in ("ray", "deepspeed")} == {"missing"}
    assert {checks[name].fix for name in ("ray", "deepspeed")} == {
        "pip install 'xmtc[train]'"
    }
    assert "packaged:all-MiniLM-L6-v2" in checks["backbone"].detail


def test_table_and_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=160)
    assert run_doctor(config(), console) == 0
    assert "everything that this configuration needs is here" in printed(console)
    monkeypatch.setattr(
        doctor_module,
        "doctor",
        lambda config: [Check("x [1]", "missing", "gone", "get it")],
    )
    console = Console(file=io.StringIO(), width=160)
    assert run_doctor(None, console) == 1
    assert "x [1]" in printed(console)
    assert "1 missing" in printed(console)


def test_deepspeed_needs_a_compiler_only_when_it_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    assert {found()[name].status for name in ("compiler", "ninja")} == {"note"}
    checks = found("distributed.workers=2", "distributed.strategy={kind: deepspeed}")
    assert {checks[name].status for name in ("compiler", "ninja")} == {"missing"}
    assert "apt-get install g++" in checks["compiler"].fix


def test_what_a_configuration_asks_for_must_be_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    checks = found("track.sinks=[{kind: wandb}]")
    assert checks["wandb"].status == "missing"
    assert checks["wandb"].fix == "pip install 'xmtc[track]'"
    assert {
        checks[name].status for name in ("mlflow", "triton", "bitsandbytes", "omikuji")
    } == {"note"}
    assert (
        found("model.scorers=[{kind: tree}]")["omikuji"].fix
        == "pip install 'xmtc[trees]'"
    )
    quantized = "model.encoder={quantize: nf4, lora: {}}"
    assert found(quantized)["bitsandbytes"].status == "missing"


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert found()["gpu"].status == "note"
    assert (
        found("distributed.workers=1", "distributed.gpus_per_worker=1")["gpu"].status
        == "missing"
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    gpu = types.SimpleNamespace(
        name="Test GPU", total_memory=80 * 2**30, major=9, minor=0
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpu)
    assert found()["gpu 0"].detail == "Test GPU, 80 GiB, compute capability 9.0"


def test_more_workers_than_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cpu_count", lambda: 2)
    assert found("distributed.workers=2")["cpu"].status == "ok"
    check = found("distributed.workers=2", "distributed.cpus_per_worker=2")["cpu"]
    assert check.status == "missing"
    assert "4 needed" in check.detail


def test_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": False}
    )
    check = found("distributed.precision=bf16")["bf16"]
    assert (check.status, check.fix) == (
        "note",
        "distributed.precision=fp32 is faster here",
    )
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert found("distributed.precision=bf16")["bf16"].status == "ok"


def test_a_run_warns_of_emulated_bf16(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": False}
    )
    check_machine(config("distributed.precision=bf16"))
    assert (
        "bf16 is emulated on this CPU: correct, but slow; distributed.precision=fp32 is faster here"
        in caplog.text
    )


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        psutil,
        "virtual_memory",
        lambda: types.SimpleNamespace(total=8 * 2**30, available=2**30),
    )
    assert found()["memory"].status == "note"


def test_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = f"track.directory={tmp_path}/not/yet/there"
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: types.SimpleNamespace(free=2**40)
    )
    assert found(directory)["disk: runs"].status == "ok"
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: types.SimpleNamespace(free=2**30)
    )
    assert found(directory)["disk: runs"].status == "note"
    monkeypatch.setattr(module.os, "access", lambda path, mode: False)
    assert found(directory)["disk: runs"].status == "missing"


def source_check(*overrides: str) -> Check:
    (check,) = check_source(config(*overrides))
    return check


def test_a_source_on_this_machine(tmp_path: Path) -> None:
    mimic = (
        f"data.source={{kind: mimic, directory: {tmp_path}, notes: {tmp_path}/notes}}"
    )
    missing = source_check(mimic)
    names = ("notes/note/discharge", "hosp/diagnoses_icd", "hosp/procedures_icd")
    assert missing.status == "missing"
    assert missing.detail == "no such file: " + ", ".join(
        f"{tmp_path}/{name}.csv.gz" for name in names
    )
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.csv").write_text("subject_id,hadm_id\n")
    assert source_check(mimic) == Check("source", "ok", "3 files are here")
    (tmp_path / "hosp/diagnoses_icd.csv").write_text("")
    assert "diagnoses_icd.csv: the file is empty" in source_check(mimic).detail
    pattern = source_check(
        f"data.source={{kind: jsonl, files: {{train: '{tmp_path}/*.jsonl'}}}}"
    )
    assert pattern.status == "missing"
    assert str(tmp_path) in pattern.detail
    folder = source_check(
        f"data.source={{kind: xc_repository, directory: {tmp_path}/none}}"
    )
    assert (folder.status, folder.detail) == (
        "missing",
        f"{tmp_path}/none: no such folder (data.source.directory)",
    )


def test_hidden_states_are_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = (
        f"data.corpus={tmp_path}/corpus",
        "data.limit={train: 1000, dev: 24}",
        "data.max_length=512",
    )
    check = found(*wanted)["hidden states"]
    assert (
        check.status,
        f"about {1024 * 256 * 384 * 4 / 2**30:.2f} GiB" in check.detail,
    ) == ("ok", True)
    assert "hidden states" not in found(
        "plant.cache_hidden=false", "finetune.cache_hidden=false"
    )
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: types.SimpleNamespace(free=2**28)
    )
    check = found(*wanted)["hidden states"]
    assert check.status == "note"  # its corpus is assumed
    assert "finetune.cache_hidden=false" in check.fix
    estimated = estimate(config(*wanted))
    (check,) = check_estimated_disks(
        config(*wanted), replace(estimated, size=replace(estimated.size, prepared=True))
    )
    assert check.status == "missing"


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("packaged:all-MiniLM-L6-v2", "ok"),
        ("packaged:none", "missing"),
        ("/no/such/folder", "missing"),
        ("some-owner/some-model-that-nobody-has", "missing"),
    ],
)
def test_backbones(name: str, status: str) -> None:
    assert (
        found(f"model.encoder={{kind: hugging_face, name: '{name}'}}")[
            "backbone"
        ].status
        == status
    )


def test_random_and_light_backbones_need_no_files() -> None:
    assert (
        "llama"
        in found("model.encoder.from_config={model_type: llama}")["backbone"].detail
    )
    assert found("model.encoder={kind: cnn}")["backbone"].status == "ok"


def test_the_backbone_inside_another_encoder_is_checked_too() -> None:
    base = "{kind: hugging_face, name: 'some-owner/some-model-that-nobody-has'}"
    assert (
        found(f"model.encoder={{kind: maxpool, base: {base}}}")["backbone"].status
        == "missing"
    )
    assert "packaged" in found("model.encoder={kind: maxpool}")["backbone"].detail


def test_a_narrow_terminal_cuts_no_key_off() -> None:
    """Keys are there to be copied."""
    console = Console(file=io.StringIO(), width=40)
    key = "distributed.gpus_per_worker_and_some_more"
    console.print(terminal_table(("check", "what to do"), [("GPUs", f"set {key}")]))
    assert isinstance(console.file, io.StringIO)
    cells = [line.split("│")[2] for line in console.file.getvalue().splitlines()[3:-1]]
    assert "".join(cell.strip() for cell in cells).endswith(key)
