"""What a model remembers of the texts that it was trained and calibrated on: numbers of a bounded size, no texts.

V token ids.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter
from safetensors import safe_open

from xmtc.data.array_contract import FIX, Array, Arrays
from xmtc.data.tensor_files import read_tensors, write_tensors
from xmtc.errors import CheckpointError
from xmtc.files import reading

FILE = "profile.safetensors"
_KINDS_OF = TypeAdapter(dict[str, dict[str, int]])
MOST_LABELS = 200
"""Labels whose predictions on dev are remembered, the most frequent ones."""
_KINDS, _TOKENS = "kinds", "token_bits"
_FREQUENT = 100


@dataclass(frozen=True)
class Profile:
    """Statistics of training and dev.

    Attributes:
        bits_V: float16, −log₂ of the share of each token in training; tokens that never occurred have the most.
        sample: for each statistic its values on at most 1,000 dev documents.
        kinds: what dev documents are, such as the number of each label predicted on all of them, by kind.
    """

    bits_V: NDArray[np.float16]
    sample: dict[str, NDArray[np.float32]]
    kinds: dict[str, dict[str, int]]

    @cached_property
    def most_bits(self) -> tuple[np.float16, np.float16]:
        """The most bits of one of the hundred most frequent tokens, and of any token: both once, not for each text."""
        bits_V = np.sort(self.bits_V)
        return bits_V[min(_FREQUENT, len(bits_V)) - 1], bits_V[-1]

    def save(self, folder: Path) -> None:
        """Write the profile into a model's folder."""
        kinds = np.frombuffer(json.dumps(self.kinds).encode(), np.uint8)
        write_tensors(
            folder / FILE, {_TOKENS: self.bits_V, _KINDS: kinds, **self.sample}
        )

    @classmethod
    def load(cls, folder: Path) -> "Profile | None":
        """Read the profile of a model, if it has one.

        Raises:
            CheckpointError: it is damaged.
        """
        if not (folder / FILE).is_file():
            return None
        found = read_tensors(folder / FILE, (_TOKENS, _KINDS))
        with reading(folder / FILE, CheckpointError, FIX):
            kinds = _KINDS_OF.validate_json(found.pop(_KINDS).tobytes())
        return cls(found.pop(_TOKENS), found, kinds)


def arrays_of_profile(path: Path) -> Arrays:
    """Return what the arrays of a profile must be; a sample has its statistic's name, and any number of values."""
    with (
        reading(path, CheckpointError, FIX),
        safe_open(path, framework="numpy") as file,
    ):
        samples = sorted(set(file.keys()) - {_TOKENS, _KINDS})
    arrays: dict[str, Array] = {
        _TOKENS: Array("F16", "Z", least=0),
        _KINDS: Array("U8", "J"),
    }
    for number, name in enumerate(samples):
        arrays[name] = Array("F32 F64", chr(ord("α") + number % 1000))
    return arrays
