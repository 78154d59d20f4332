"""ICD codes as billing tables store them, without the dot, and as people write them."""

from typing import Literal

from xmtc.data.readers.config import IcdVersion

CodeKind = Literal["diagnosis", "procedure"]


def dotted(code: str, version: IcdVersion, kind: CodeKind) -> str:
    """Put the dot of a code in its standard place.

    ICD-10-CM and ICD-9-CM diagnoses have it after the third character, ICD-9-CM external causes (E codes) after the
    fourth, ICD-9-CM procedures after the second; ICD-10-PCS has none.

    Args:
        code: with or without the dot; blanks around it are left out.
        version: version of the classification.
        kind: diagnosis or procedure.
    """
    bare = code.strip().upper().replace(".", "")
    if kind == "procedure":
        place = 2 if version == 9 else len(bare)
    else:
        place = 4 if version == 9 and bare.startswith("E") else 3
    return f"{bare[:place]}.{bare[place:]}" if len(bare) > place else bare
