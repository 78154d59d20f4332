"""The checks for a GPU, where there is none."""

import json
import subprocess
import sys
from pathlib import Path

import fake_step
import floors

ROOT = Path(__file__).parents[2]
HIDDEN = ("peft", "faiss", "ray", "deepspeed", "transformers", "sklearn")
PROGRAM = """
import sys
for name in {hidden}:
    sys.modules[name] = None
sys.path.insert(0, "tools/check")
import gpu

def missed():
    yield gpu.Finding(name="a bar", value=1.0, unit="", bar=2.0, holds=False)

def broken():
    raise OSError("out of order")
    yield

gpu.CHECKS |= {{"missed": missed, "broken": broken}}
gpu.torch.cuda.is_available = lambda: True
sys.exit(gpu.main(["--only", "zero,mining,missed,broken"]))
"""


def test_a_check_without_its_modules_leaves_the_others_alone() -> None:
    program = PROGRAM.format(hidden=HIDDEN)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    *_, zero, mining, missed, broken = done.stdout.splitlines()
    assert zero.split(maxsplit=1)[0] == "zero"
    assert "not possible: import of deepspeed" in zero
    assert "not possible: import of faiss" in mining
    assert missed.endswith("failed: a bar")
    assert broken.endswith("failed: out of order")
    assert done.returncode == 1


def test_a_step_of_a_large_decoder_does_not_wait(capsys):
    assert fake_step.main(["--layers", "1", "--tokens", "64", "--labels", "100"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["tflop"] > found["useful_tflop"] > 0
    assert found["waits_at"] is None


def test_a_step_that_waits_names_the_operation(monkeypatch, capsys):
    monkeypatch.setattr(
        "xmtc.models.kernels.sdpa.attend",
        lambda keys, values, mask, *_, **__: bool(mask.all()),
    )
    assert fake_step.main(["--layers", "1", "--tokens", "64", "--labels", "100"]) == 1
    assert "local_scalar_dense" in json.loads(capsys.readouterr().out)["waits_at"]


def test_floors_are_the_oldest_versions_of_all_but_pytorch():
    extras = {
        "train": ["ray[data]>=2.5", "deepspeed>=0.1; sys_platform == 'linux'"],
        "quantize": [],
        "docs": ["mkdocs>=1"],
    }
    found = floors.floors(
        {"dependencies": ["torch>=2.13", "peft>=0.1"], "optional-dependencies": extras}
    )
    assert found == [
        "peft==0.1",
        "ray[data]==2.5",
        "deepspeed==0.1; sys_platform == 'linux'",
    ]
