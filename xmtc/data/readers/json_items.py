"""The documents of a file that is one JSON value, one after the other: only a piece of the text is in memory."""

import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from xmtc.data.readers.base import LENGTH_OPTIONS
from xmtc.files import RepeatedKeyError, without_repeated_keys

_PIECE = 1 << 16
"""Characters that are read at once, at first."""
_BLANKS = re.compile(r"[ \t\n\r]*")
_CUT = 16
"""Characters before the end of a piece in which a sign or number may be cut, as in `tru` or `\\u00`."""
_CUT_TEXT = "Unterminated string"
"""What Python says of a text whose end is in the next piece."""
_LISTS = ("data", "rows", "documents", "records", "items", "examples", "results")
"""Keys under which one object often holds the list of all documents."""
_ALL = object()
"""Says that the values of an object are the documents."""
_STREAM = object()
"""Says that the text has objects one after the other."""
_COLUMNS_OF_PANDAS = {"columns", "index"}
"""Keys before the rows of a table that pandas wrote with orient="split"."""
_FIRST_ROW = "0"
"""Key of the first cell of each column of a table that pandas wrote."""
_SHOWN = 4
"""Places of lists that a message names."""
_DAMAGED = "; the file is cut short or damaged, export it again"
_DECODER = json.JSONDecoder(object_pairs_hook=without_repeated_keys)


Opened = Callable[[], AbstractContextManager[io.TextIOBase]]
"""Opens a text at its beginning."""


class JsonItemsError(Exception):
    """Raised for a text that holds no documents, or malformed JSON; the message says so without showing any of it."""


class TableByColumnsError(JsonItemsError):
    """Raised for a table that pandas wrote column by column."""


class ListsWithinError(JsonItemsError):
    """Raised for an object with several lists of objects, or with lists within other objects."""


class JsonText:
    """Reads values and signs of a JSON text.

    Args:
        text: the text.
        longest: most characters of a value.
    """

    def __init__(self, text: io.TextIOBase, longest: int) -> None:
        self._file = text
        self._longest = longest
        self._text = ""
        self._place = 0

    def next_sign(self) -> str:
        """Return the next sign that is no blank without passing it; empty at the end."""
        while True:
            match = _BLANKS.match(self._text, self._place)
            assert match is not None
            self._place = match.end()
            if self._place < len(self._text):
                return self._text[self._place]
            if not self._read_on():
                return ""

    def take(self, signs: str) -> str:
        """Pass the next sign, which must be one of these, and return it.

        Raises:
            JsonItemsError: it is another one, or the text ends.
        """
        sign = self.next_sign()
        if not sign:
            raise JsonItemsError(f"the file ends before its value does{_DAMAGED}")
        if sign not in signs:
            raise JsonItemsError(
                f"malformed JSON: not {' or '.join(signs)} here{_DAMAGED}"
            )
        self._place += 1
        return sign

    def value(self) -> Any:
        """Pass the next value, and return it.

        Raises:
            JsonItemsError: it is malformed or too long, or a key of it occurs twice.
        """
        self.next_sign()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._place)
            except json.JSONDecodeError as error:
                is_cut = (
                    error.msg.startswith(_CUT_TEXT)
                    or error.pos >= len(self._text) - _CUT
                )
                if not is_cut:
                    raise JsonItemsError(
                        f"malformed JSON: {error.msg.removesuffix(' at')}{_DAMAGED}"
                    ) from None
                if len(self._text) - self._place > self._longest:
                    raise JsonItemsError(
                        f"more than {self._longest:,} characters, or malformed JSON: close the quote or bracket that "
                        f"is open there, or raise {LENGTH_OPTIONS}"
                    ) from None
                if not self._read_on():
                    raise JsonItemsError(
                        f"the file ends before its value does{_DAMAGED}"
                    ) from None
            except RepeatedKeyError as error:
                raise JsonItemsError(f"{error}, and one value would be lost") from None
            except RecursionError:
                raise JsonItemsError(
                    f"malformed JSON: too many lists in lists{_DAMAGED}"
                ) from None
            else:
                if end < len(self._text) or not self._read_on():
                    self._place = end
                    return value

    def items(self) -> Iterator[Any]:
        """Yield the items of the list that begins here.

        Raises:
            JsonItemsError: see `value` and `take`.
        """
        self.take("[")
        if self.next_sign() == "]":
            self.take("]")
            return
        sign = ","
        while sign == ",":
            yield self.value()
            sign = self.take(",]")

    def object_keys(self) -> Iterator[str]:
        """Yield the keys of the object that begins here; the caller passes the value of each.

        Raises:
            JsonItemsError: see `value` and `take`.
        """
        self.take("{")
        if self.next_sign() == "}":
            self.take("}")
            return
        sign = ","
        while sign == ",":
            key = self.value()
            if not isinstance(key, str):
                raise JsonItemsError(f"malformed JSON: a key that is no text{_DAMAGED}")
            self.take(":")
            yield key
            sign = self.take(",}")

    def _read_on(self) -> bool:
        """Read a piece as long as what is not passed yet, so that a long value is tried a few times only."""
        rest = self._text[self._place :]
        piece = self._file.read(max(_PIECE, len(rest)))
        self._text = rest + piece
        self._place = 0
        return bool(piece)


def documents_in(opened: Opened, longest: int) -> Iterator[Any]:
    """Yield the documents of one array, of the list that one object holds, or of an object with one for each key; or
    objects one after the other.

    Args:
        opened: opens the text.
        longest: most characters of a document.

    Raises:
        JsonItemsError: it is something else, or malformed.
    """
    with opened() as file:
        text = JsonText(file, longest)
        if text.next_sign() == "[":
            yield from text.items()
            if text.next_sign():
                raise JsonItemsError(
                    f"malformed JSON: something follows the array{_DAMAGED}"
                )
            return
        list_key = _list_key(text)
    with opened() as file:
        text = JsonText(file, longest)
        if list_key is _STREAM:
            while text.next_sign():
                yield text.value()
            return
        for key in text.object_keys():
            if list_key is _ALL:
                yield {"id": key, **text.value()}
            elif key == list_key:
                yield from text.items()
                return
            else:
                text.value()


def _list_key(text: JsonText) -> object:
    """Return the key of the list of documents in an object, `_ALL`, or `_STREAM`.

    Raises:
        JsonItemsError: it holds something else, or is malformed.
        ListsWithinError: it holds several lists of objects, or they are in other objects.
        TableByColumnsError: it holds columns.
    """
    keys: list[str] = []
    lists: list[str] = []
    within: list[str] = []
    are_objects = True
    are_columns = True
    for key in text.object_keys():
        keys.append(key)
        if text.next_sign() == "[":
            if key in _LISTS:
                if keys[:-1] and _COLUMNS_OF_PANDAS.issuperset(keys[:-1]):
                    raise _by_columns()
                return key
            if _are_documents(text):
                lists.append(key)
            are_objects = False
            are_columns = False
            continue
        value = text.value()
        are_objects = are_objects and isinstance(value, dict)
        are_columns = are_columns and isinstance(value, dict) and _FIRST_ROW in value
        within += [f".{key}.{inner}[]" for inner in _lists_in(value)]
    if text.next_sign() == "{":
        return _STREAM
    if keys and are_columns:
        raise _by_columns()
    if len(lists) == 1:
        return lists[0]
    if len(keys) > 1 and are_objects and not within:
        return _ALL
    refusal = "one JSON object, not a list of documents; write one object on each line, or an array"
    places = [f".{key}[]" for key in lists] or within
    if not places:
        raise JsonItemsError(refusal)
    others = f" (its lists: {', '.join(places[:_SHOWN])})" if len(places) > 1 else ""
    raise ListsWithinError(
        f"{refusal}: jq -c {places[0]!r} FILE > documents.jsonl{others}"
    )


def _are_documents(text: JsonText) -> bool:
    """Pass a list, and say whether it has several objects and nothing else."""
    number = 0
    are_objects = True
    for item in text.items():
        number += 1
        are_objects = are_objects and isinstance(item, dict)
    return are_objects and number > 1


def _lists_in(value: Any) -> list[str]:
    """List the keys of an object with lists of several objects."""
    if not isinstance(value, dict):
        return []
    return [
        key
        for key, items in value.items()
        if isinstance(items, list)
        and len(items) > 1
        and all(isinstance(item, dict) for item in items)
    ]


def _by_columns() -> TableByColumnsError:
    return TableByColumnsError(
        "a table by columns, as pandas writes it; write it with df.to_json(path, orient='records', lines=True)"
    )
