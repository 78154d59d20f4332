"""The fields of documents, such as title and body, and their categories, such as type or language.

A document is one text, which its fields are joined to. Its categories are not part of the text: each value is a term,
such as `type=Directive`. No word is such a term, because words have no `=`. Encoders read the values before the text.
"""

from collections.abc import Sequence

from xmtc.errors import DataError

ONE_FIELD = ("text",)
"""Fields of a source that has only one."""


class FieldText(str):
    """A text that consists of fields. It is a string for whoever does not ask for them.

    Attributes:
        ends: the position after each field. A line break between two fields belongs to the first one.
        categories: terms of the values of its categories.
    """

    __slots__ = ("categories", "ends")
    ends: tuple[int, ...]
    categories: tuple[str, ...]

    @classmethod
    def join(cls, parts: Sequence[str], categories: Sequence[str] = ()) -> "FieldText":
        """Join fields by line breaks. An empty one takes no line, but is still a field."""
        text = ""
        ends: list[int] = []
        for part in parts:
            if part.strip():
                if text:
                    text += "\n"
                    ends[-1] += 1
                text += part
            ends.append(len(text))
        return cls.of(text, ends, categories)

    @classmethod
    def of(
        cls, text: str, ends: Sequence[int], categories: Sequence[str]
    ) -> "FieldText":
        """Make a text from the ends of its fields and the terms of its categories."""
        field_text = cls(text)
        field_text.ends = tuple(ends)
        field_text.categories = tuple(categories)
        return field_text

    def __reduce__(self) -> tuple[object, ...]:
        return FieldText.of, (str(self), self.ends, self.categories)


def field_ends(text: str, fields: int) -> tuple[int, ...]:
    """Return the ends of the fields of a text; a text without fields is the last one, and one field takes all.

    Raises:
        DataError: it has another number of fields.
    """
    ends = (len(text),)
    if isinstance(text, FieldText) and fields > 1:
        ends = text.ends
    if len(ends) not in (1, fields):
        raise DataError(
            f"a document has {len(ends)} fields, but the model has {fields}; give as many as the model has"
        )
    empty_fields = (0,) * (fields - len(ends))
    return empty_fields + ends


def field_parts(text: str, fields: int) -> list[str]:
    """Split a text into its fields; see `field_ends`."""
    ends = field_ends(text, fields)
    starts = (0, *ends[:-1])
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def categories_of(text: str) -> tuple[str, ...]:
    """Return the terms of a text's categories; a plain text has none."""
    return text.categories if isinstance(text, FieldText) else ()


def category_lines(text: str) -> str:
    """Return what encoders read before a text: the values of its categories, each on a line."""
    values = [term.partition("=")[2] for term in categories_of(text)]
    return "".join(f"{value}\n" for value in values)
