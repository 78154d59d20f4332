"""The fields of documents, such as title and body. A document is one text, which its fields are joined to."""

from collections.abc import Sequence

from xmtc.errors import DataError

ONE_FIELD = ("text",)
"""Fields of a source that has only one."""


class FieldText(str):
    """A text that consists of fields. It is a string for whoever does not ask for them.

    Attributes:
        ends: the position after each field. A line break between two fields belongs to the first one.
    """

    __slots__ = ("ends",)
    ends: tuple[int, ...]

    @classmethod
    def join(cls, parts: Sequence[str]) -> "FieldText":
        """Join fields by line breaks. An empty one takes no line, but is still a field."""
        text, ends = "", []
        for part in parts:
            if part.strip():
                if text:
                    text += "\n"
                    ends[-1] += 1
                text += part
            ends.append(len(text))
        return cls.of(text, ends)

    @classmethod
    def of(cls, text: str, ends: Sequence[int]) -> "FieldText":
        """Make a text from the ends of its fields."""
        made = cls(text)
        made.ends = tuple(ends)
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return FieldText.of, (str(self), self.ends)


def field_ends(text: str, fields: int) -> tuple[int, ...]:
    """Return the ends of the fields of a text; a text without fields is the last one.

    Raises:
        DataError: it has another number of fields.
    """
    ends = text.ends if isinstance(text, FieldText) else (len(text),)
    if len(ends) not in (1, fields):
        raise DataError(f"a document has {len(ends)} fields, but the model has {fields}: give these")
    return (0,) * (fields - len(ends)) + ends


def field_parts(text: str, fields: int) -> list[str]:
    """Split a text into its fields; see `field_ends`."""
    ends = field_ends(text, fields)
    return [text[start:end] for start, end in zip((0, *ends), ends, strict=False)]
