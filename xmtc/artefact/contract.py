"""What a model's files must hold for its scorers to compute: one table of every array, checked in one place.

A model may come from a stranger, whose checksums show only that nothing has changed on the way. `check_arrays` compares
every array with its table: its type, its shape in the model's own sizes, indices within bounds, values that are finite.
Each class says what its arrays are (`ARRAYS`); here stands which files a model has, and what the letters are.

    L labels    V terms of the vocabulary    F fields and categories    C = F · V    N training documents
    D width of the encoder's states    X inputs of a fusion    Z token ids

    calibration.safetensors            scale L, offset L
    outcomes.safetensors               `Outcomes.ARRAYS`
    profile.safetensors                bits Z, kinds, samples
    scorers/words.safetensors          `Vocabulary.ARRAYS`
    scorers/documents.arrow            doc_id N
    scorers/<number>-<kind>/…          `Scorer.ARRAYS`
    scorers/fusion.safetensors         `Combination.ARRAYS`, and two arrays for each scorer's map
    scorers/occurrences.safetensors    `Occurrences.ARRAYS`
    scorers/first/…                    the same of the first fusion
    labels.arrow                       label, name and train_count L, and more columns of text

Names and shapes in `head.safetensors`, `encoder/` and `adapter/` are those of the modules that load them; their values
must be finite. Files that native code reads are tried in another process, see `xmtc.artefact.trial`.
"""

from pathlib import Path

import pyarrow as pa

from xmtc.artefact.info import ModelInfo
from xmtc.artefact.output import HEAD
from xmtc.artefact.profile import FILE as PROFILE
from xmtc.artefact.profile import arrays_of_profile
from xmtc.data.array_contract import (
    FIX,
    Array,
    Arrays,
    Sizes,
    check_any_sparse,
    check_finite,
    check_tensors,
)
from xmtc.data.arrow_files import read_arrow
from xmtc.data.words import WORDS_FILES, Vocabulary
from xmtc.errors import CheckpointError
from xmtc.files import reading
from xmtc.fusion.decision import Outcomes
from xmtc.fusion.ensemble import DOCUMENTS, folder_of_scorer, names_of
from xmtc.fusion.fusion import FIRST, FUSION, arrays_of, described, inputs_of
from xmtc.fusion.occurrences import CO_OCCURRENCE, OCCURRENCES, Occurrences

CALIBRATION = "calibration.safetensors"
OUTCOMES = "outcomes.safetensors"
SCORERS = "scorers"
LABELS = "labels.arrow"
_CALIBRATION: Arrays = {
    "scale": Array("F32", "L", least=1e-30),
    "offset": Array("F32", "L"),
}
_WEIGHTS = ("encoder", "adapter")  # folders


def check_arrays(directory: Path, info: ModelInfo, labels: int, width: int) -> None:
    """Check every array of a model against its table.

    Args:
        directory: the model.
        info: its description.
        labels: L.
        width: D.

    Raises:
        CheckpointError: names the first array that is not as it must be.
    """
    sizes = Sizes({"L": labels, "D": width, "Z": info.vocab_size})
    for path in [
        directory / HEAD,
        *(
            file
            for name in _WEIGHTS
            for file in directory.glob(f"{name}/*.safetensors")
        ),
    ]:
        if path.is_file():
            check_finite(path)
    if (directory / CALIBRATION).is_file():
        check_tensors(directory / CALIBRATION, _CALIBRATION, sizes.own())
    if (directory / OUTCOMES).is_file():
        check_tensors(directory / OUTCOMES, Outcomes.ARRAYS, sizes.own())
    if (directory / PROFILE).is_file():
        check_tensors(
            directory / PROFILE, arrays_of_profile(directory / PROFILE), sizes.own()
        )
    if info.model.scorers:
        _check_scorers(directory / SCORERS, info, sizes)


def _check_scorers(folder: Path, info: ModelInfo, sizes: Sizes) -> None:
    vocabulary = Vocabulary.load(folder)
    fields = len(vocabulary.fields) + len(vocabulary.categories)
    if (vocabulary.fields, vocabulary.categories) != (info.fields, info.categories):
        raise CheckpointError(
            f"{folder / WORDS_FILES[0]}: has other fields than the model; {FIX}"
        )
    documents = _sound_table(folder / DOCUMENTS)
    if (
        documents.schema != pa.schema({"doc_id": pa.string()})
        or documents["doc_id"].null_count
    ):
        raise CheckpointError(
            f"{folder / DOCUMENTS}: is not one column doc_id of texts; {FIX}"
        )
    terms = len(vocabulary)
    sizes = Sizes(
        {
            **sizes.numbers,
            "V": terms,
            "F": fields,
            "C": fields * terms,
            "N": len(documents),
        }
    )
    check_tensors(folder / WORDS_FILES[1], Vocabulary.ARRAYS, sizes.own())
    settings = info.model.scorers
    names = names_of(settings)
    for number, (name, one) in enumerate(zip(names, settings, strict=True)):
        path = folder_of_scorer(folder, number, name) / one.scorer.FILE
        if one.scorer.ARRAYS is not None:
            check_tensors(path, one.scorer.ARRAYS, sizes.own())
        elif path.is_file():
            check_any_sparse(path)
    fused = len(names) + info.model.head.scores
    _check_fusion(folder, fused, sizes, first=False)


def _check_fusion(folder: Path, fused: int, sizes: Sizes, *, first: bool) -> None:
    """Check a fusion of this many scorers, and its first one if the co-occurrence of labels is one more."""
    names, kind = described(folder)
    with_co_occurrence = names[-1] == CO_OCCURRENCE and not first
    if len(names) != fused + with_co_occurrence:
        raise CheckpointError(
            f"{folder / 'fusion.json'}: fuses {len(names)} scorers, the model has {fused}; {FIX}"
        )
    own = Sizes({"L": sizes.numbers["L"], "X": inputs_of(len(names))})
    check_tensors(folder / FUSION, arrays_of(kind, len(names)), own)
    check_tensors(folder / OCCURRENCES, Occurrences.ARRAYS, sizes.own())
    if with_co_occurrence:
        _check_fusion(folder / FIRST, fused, sizes, first=True)


def _sound_table(path: Path) -> pa.Table:
    """Read an Arrow file, whose offsets must lie within its own bytes."""
    with reading(path, CheckpointError, FIX):
        table = read_arrow(path)
        table.validate(full=True)
        return table
