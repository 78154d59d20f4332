"""What the doctor says of one thing that was looked at."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        name: what was looked at.
        status: `ok`; `note`, which limits but does not prevent; `missing`, which is needed and not there.
        detail: what was found.
        fix: what to do, where there is something to do.
    """

    name: str
    status: Status
    detail: str
    fix: str = ""
