"""The result of one of the doctor's checks."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        name: name of the check.
        status: `ok`; `note` for a limitation; `missing` for a requirement that is not met.
        detail: what was found.
        fix: what to do, if anything.
    """

    name: str
    status: Status
    detail: str
    fix: str = ""
