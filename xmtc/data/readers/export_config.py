"""Settings of the sources that other tools write. `columns.labels` is `labels`, `columns.rejected` is `rejected`."""

from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from xmtc.config.base import config
from xmtc.data.readers.table_config import TableConfig

if TYPE_CHECKING:
    from xmtc.data.readers.table import TableFormat


@config
class LabelStudioConfig(TableConfig):
    """Tasks and annotations of Label Studio, exported as JSON. Its JSON-MIN and CSV exports are `jsonl` and `csv`."""

    kind: Literal["label_studio"] = "label_studio"

    @override
    def format(self) -> "TableFormat":
        from xmtc.data.readers.exports import LabelStudio

        return LabelStudio()


@config
class ProdigyConfig(TableConfig):
    """JSON lines of Prodigy, with an answer to each question. Answers about the same text are one document."""

    kind: Literal["prodigy"] = "prodigy"

    @override
    def format(self) -> "TableFormat":
        from xmtc.data.readers.exports import Prodigy

        return Prodigy()


@config
class ArgillaConfig(TableConfig):
    """Records of Argilla with submitted responses."""

    kind: Literal["argilla"] = "argilla"

    @override
    def format(self) -> "TableFormat":
        from xmtc.data.readers.exports import Argilla

        return Argilla()


@config
class SpacyCatsConfig(TableConfig):
    """Texts with spaCy's `cats`. Labels without a mark were not judged."""

    kind: Literal["spacy"] = "spacy"

    @override
    def format(self) -> "TableFormat":
        from xmtc.data.readers.exports import SpacyCats

        return SpacyCats()


@config
class FastTextConfig(TableConfig):
    """Lines of fastText, such as `__label__sport __label__art A text`."""

    kind: Literal["fasttext"] = "fasttext"

    @override
    def format(self) -> "TableFormat":
        from xmtc.data.readers.exports import FastText

        return FastText()


@config
class AnnifTsvConfig(TableConfig):
    """Lines of Annif: a text, a tab, subjects as IRIs in angle brackets."""

    kind: Literal["annif_tsv"] = "annif_tsv"

    @override
    def format(self) -> "TableFormat":
        from xmtc.data.readers.exports import AnnifTsv

        return AnnifTsv()


@config
class AnnifFolderConfig(TableConfig):
    """Folders of Annif: `a.txt` with a document, `a.key` or `a.tsv` with its subjects."""

    kind: Literal["annif_folder"] = "annif_folder"

    @override
    def format(self) -> "TableFormat":
        from xmtc.data.readers.exports import AnnifFolder

        return AnnifFolder()


@config
class SvmlightConfig(TableConfig):
    """Lines of svmlight or libsvm: labels, then `feature:value`. Features are words: those of `Xf.txt` beside it, or
    `f5`.
    """

    kind: Literal["svmlight"] = "svmlight"

    @override
    def format(self) -> "TableFormat":
        from xmtc.data.readers.exports import Svmlight

        return Svmlight()


@config
class LabelFoldersConfig(TableConfig):
    """A folder for each label, with a file for each text: `sport/001.txt`, `law/002.txt`."""

    kind: Literal["label_folders"] = "label_folders"

    @override
    def format(self) -> "TableFormat":
        from xmtc.data.readers.exports import LabelFolders

        return LabelFolders()


ExportSettings = (
    type[LabelStudioConfig]
    | type[ProdigyConfig]
    | type[ArgillaConfig]
    | type[SpacyCatsConfig]
    | type[FastTextConfig]
    | type[AnnifTsvConfig]
    | type[AnnifFolderConfig]
    | type[SvmlightConfig]
    | type[LabelFoldersConfig]
)
EXPORT_SETTINGS: tuple[ExportSettings, ...] = (
    LabelStudioConfig,
    ProdigyConfig,
    ArgillaConfig,
    SpacyCatsConfig,
    FastTextConfig,
    AnnifTsvConfig,
    AnnifFolderConfig,
    SvmlightConfig,
    LabelFoldersConfig,
)
"""The settings of all formats of other tools."""
