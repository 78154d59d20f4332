"""spaCy: texts with `cats`, marks by label; a label without a mark was not judged."""

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from xmtc.data.readers.exports.base import LABELS, REJECTED, JsonExport, UnjudgedError
from xmtc.data.readers.wrappings import marks_in


class SpacyCats(JsonExport):
    """Texts: `{"text": …, "cats": {"A": 1.0, "B": 0.0}}`, `["…", {"cats": {…}}]`, or documents with `paragraphs`."""

    identity = "spacy"
    what = "spaCy"

    @override
    @classmethod
    def is_document(cls, item: Mapping[str, Any]) -> bool:
        return isinstance(item.get("cats"), Mapping) or _paragraph(item) is not None

    @override
    def document(self, item: Mapping[str, Any]) -> Mapping[str, Any]:
        paragraph = _paragraph(item)
        if paragraph is not None:
            cats = {cat["label"]: cat["value"] for cat in paragraph["cats"]}
            cells: dict[str, Any] = {
                "id": str(item.get("id", "")) or None,
                "text": paragraph["raw"],
            }
        else:
            cats = item["cats"]
            cells = {
                key: value
                for key, value in item.items()
                if key not in ("cats", "tokens", "spans", "ents")
            }
        marks = marks_in(cats)
        if marks is None:
            raise UnjudgedError("no label has a mark")
        cells[LABELS] = [label for label, fits in marks.items() if fits]
        cells[REJECTED] = [label for label, fits in marks.items() if not fits]
        return cells


def _paragraph(item: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the only paragraph of a document as spaCy 2 writes it, if there are marks in it."""
    paragraphs = item.get("paragraphs")
    if (
        not isinstance(paragraphs, list)
        or len(paragraphs) != 1
        or not isinstance(paragraphs[0], Mapping)
    ):
        return None
    return (
        paragraphs[0]
        if "raw" in paragraphs[0] and isinstance(paragraphs[0].get("cats"), list)
        else None
    )
