"""Settings of the sources. Importing them imports no library that reads: each `build` imports its reader."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import override

from xmtc.config.base import config
from xmtc.config.members import Members
from xmtc.data.readers.base import Reader, ReaderSettings
from xmtc.data.readers.columns import Name
from xmtc.data.readers.export_config import EXPORT_SETTINGS
from xmtc.data.readers.table_config import (
    ArrowConfig,
    CsvConfig,
    JsonlConfig,
    ParquetConfig,
)

_Share = Annotated[float, Field(ge=0, lt=1)]


@config
class XcRepositoryConfig(ReaderSettings):
    """A folder in a layout of the Extreme Classification Repository, with raw text."""

    kind: Literal["xc_repository"] = "xc_repository"
    directory: Name
    """The data set's folder."""
    form: Literal["json", "sparse", "texts"] | None = None
    """`json` (trn.json.gz), `sparse` (trn_X_Y.txt), `texts` (train_labels.txt); null: the one that the folder holds."""

    @override
    def build(self) -> Reader:
        from xmtc.data.readers.xc_repository import XcRepositoryReader

        return XcRepositoryReader(self)


@config
class SplitConfig:
    """Shares of dev and test in documents that a source doesn't divide."""

    dev: _Share = 0.1
    """Share that becomes dev; `data.split` ignores it if the source has dev documents."""
    test: _Share = 0.1
    """Share that becomes test; `data.split` ignores it if the source has dev or test documents."""
    seed: Annotated[int, Field(ge=0)] = 13
    """Seed of the split."""

    def __post_init__(self) -> None:
        if self.dev + self.test >= 1:
            raise ValueError(
                f"dev {self.dev} and test {self.test} leave no training documents; lower them"
            )


@config
class MimicConfig(ReaderSettings):
    """MIMIC-IV (with MIMIC-IV-Note) or MIMIC-III: discharge summaries with the ICD codes of their admission."""

    kind: Literal["mimic"] = "mimic"
    directory: Name
    """MIMIC-IV: the folder with `hosp/`; MIMIC-III: the one with `DIAGNOSES_ICD.csv.gz`. Unpacked .csv is read too."""
    notes: str | None = None
    """The folder with `note/discharge.csv.gz` (MIMIC-III: `NOTEEVENTS.csv.gz`), if it is not `directory`."""
    release: Literal["iv", "iii"] = "iv"
    """MIMIC-IV or MIMIC-III."""
    icd_version: Literal[9, 10] = 10
    """Read admissions with codes of this version, and only these codes. MIMIC-III has only version 9."""
    procedures: bool = True
    """If false, only diagnoses are labels."""
    min_code_documents: Annotated[int, Field(ge=1)] = 10
    """Codes with fewer documents, over all splits, are dropped. `data.min_label_documents` counts training
    documents."""
    split_file: str | None = None
    """Table with columns `hadm_id` (or `_id`) and `split` (train, val or dev, test); other admissions are left out.
    null: `stratify`."""
    stratify: SplitConfig = SplitConfig()
    """How to split patients without a `split_file`: each code in these shares, and no patient in two splits."""

    def __post_init__(self) -> None:
        if self.release == "iii" and self.icd_version != 9:
            raise ValueError(
                "release iii (MIMIC-III) has ICD-9 codes only: set icd_version: 9"
            )

    @override
    def build(self) -> Reader:
        from xmtc.data.readers.mimic import MimicReader

        return MimicReader(self)


@config
class PydocsConfig(ReaderSettings):
    """Docstrings of installed Python packages."""

    kind: Literal["pydocs"] = "pydocs"
    packages: Annotated[tuple[str, ...], Field(min_length=1)] = (
        "torch",
        "transformers",
        "sklearn",
        "scipy",
        "numpy",
        "pandas",
        "ray",
        "peft",
        "deepspeed",
        "tokenizers",
        "pydantic",
        "pyarrow",
        "networkx",
        "sympy",
        "jinja2",
        "rich",
        "typer",
        "requests",
        "fsspec",
        "joblib",
        "psutil",
        "setuptools",
        "huggingface_hub",
    )
    """Import names of the packages to read. All must be installed."""
    min_words: Annotated[int, Field(ge=1)] = 20
    """Shorter docstrings are left out."""

    @override
    def build(self) -> Reader:
        from xmtc.data.readers.pydocs import PydocsReader

        return PydocsReader(self)


ReaderConfig = Annotated[
    ReaderSettings,
    Members(
        "xmtc.readers",
        JsonlConfig,
        CsvConfig,
        ParquetConfig,
        ArrowConfig,
        *EXPORT_SETTINGS,
        XcRepositoryConfig,
        MimicConfig,
        PydocsConfig,
    ),
]
"""The `data.source` section: one of these or of those that installed packages add."""
