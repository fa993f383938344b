"""Lines of delimited text, as far as they are looked at here: where they end, what a head line names, what is no text.

With quotes (RFC 4180) a field may be put between them, and has two for one of its own; delimiters and ends of lines
within are characters. A quote anywhere else is malformed, so that a place of a text is within quotes exactly if the
number of quotes before it is odd. All of this rests on that, and reads nothing but quotes and ends of lines.

Values are not here: the program ``psf`` reads them beside the data, and checks the quotes of each line that it reads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.interop.tables.schema import Column

__all__ = ["MARK", "cuts_of", "fields_of", "head_of", "line_ends", "unreadable"]

Bytes = np.ndarray[Any, Any]

#: The mark of UTF-8 that some programs put before a text.
MARK = b"\xef\xbb\xbf"
_END = ord("\n")
#: Begins of lines that a table with quoted ends of lines notes, at most, and bytes between two of them, at least.
_CUTS_MOST, _CUT_BYTES = 1024, 1 << 20
_AT_ONCE = 16 << 20


def line_ends(text: Bytes, quote: str | None, *, within: bool = False) -> tuple[Bytes, Bytes, bool]:
    """Find where lines end in a part of a text.

    The places behind ends of lines are returned, those behind ends of lines within quotes, and whether the part ends
    within quotes; ``within`` says whether it begins so.
    """
    places = np.flatnonzero(text == _END)
    if quote is None:
        return places + 1, places[:0], False
    marks = np.flatnonzero(text == ord(quote))
    are_quoted = (np.searchsorted(marks, places) + within) % 2 == 1
    return places[~are_quoted] + 1, places[are_quoted] + 1, (len(marks) + within) % 2 == 1


def cuts_of(text: Bytes, begin: int, quote: str) -> tuple[tuple[int, ...] | None, bool]:
    """Find where a text with quotes can be cut.

    Begins of some lines are returned if there are ends of lines within quotes, and None if every end of a line is one;
    and whether the text ends within quotes.
    """
    step = max(_CUT_BYTES, -(-len(text) // _CUTS_MOST))
    cuts, quoted, within = [begin], False, False
    for at in range(begin, len(text), _AT_ONCE):
        ends, inner, within = line_ends(text[at : at + _AT_ONCE], quote, within=within)
        quoted = quoted or inner.size > 0
        while (number := int(np.searchsorted(ends, cuts[-1] + step - at))) < len(ends):
            cuts.append(at + int(ends[number]))
    kept = tuple(cut for cut in cuts if cut < len(text)) or (begin,)
    return (kept if quoted else None), within


def fields_of(line: bytes, delimiter: str, quote: str | None) -> list[bytes]:
    """Take a line without its end apart; a line with a quote at a wrong place is an InvalidError."""
    if quote is None:
        return line.split(delimiter.encode())
    between, around = re.escape(delimiter.encode()), re.escape(quote.encode())
    part = re.compile(rb"(?:%b((?:[^%b]|%b%b)*)%b|([^%b%b]*))(%b|\Z)" % (*(around,) * 5, between, around, between))
    found, at = list[bytes](), 0
    while True:
        field = part.match(line, at)
        if field is None:
            raise InvalidError(f"field {len(found)} is malformed: a quote must begin or end it, or be doubled within")
        inner, plain, end = field.groups()
        found.append(plain if inner is None else inner.replace(quote.encode() * 2, quote.encode()))
        at = field.end()
        if not end:
            return found


def head_of(text: bytes, delimiter: str, quote: str | None, schema: Sequence[Column]) -> list[Column]:
    """Return the columns of a text with a head line, up to the last one that a schema names; others are passed over.

    ``text`` is the head line without its end. An InvalidError says what is wrong with it.
    """
    try:
        names = [field.decode() for field in fields_of(text, delimiter, quote)]
    except UnicodeDecodeError:
        raise InvalidError("the head line must be UTF-8") from None
    types = {column.name: column.type for column in schema}
    for name in types:
        if names.count(name) != 1:
            places = [str(number) for number, one in enumerate(names) if one == name]
            there = f"in fields {' and '.join(places)}" if places else f"it names {', '.join(map(repr, names))}"
            raise InvalidError(f"the head line must name column {name!r} once: {there}")
    last = max(names.index(name) for name in types)
    return [Column(name, types.get(name, "skip")) for name in names[: last + 1]]


def unreadable(
    text: bytes, delimiter: str, quote: str | None, columns: Sequence[Column], numbers: Sequence[int]
) -> tuple[int, int, str] | None:
    """Find the first text field of some lines that is no text: not UTF-8, or with the byte that fills a row's room.

    The text has whole lines, ``numbers`` are those of the columns to look at. The offset of the line, the number of the
    column, and what is wrong are returned.
    """
    numbers = [number for number in sorted(set(numbers)) if columns[number].type.startswith("text")]
    if not numbers or not _wrong(text):
        return None
    begin = 0
    for end in line_ends(np.frombuffer(text, np.uint8), quote)[0].tolist():
        line = text[begin : end - 1]
        fields = fields_of(line.removesuffix(b"\r"), delimiter, quote) if _wrong(line) else []
        for number in numbers:
            wrong = _wrong(fields[number]) if number < len(fields) else ""
            if wrong:
                return begin, number, wrong
        begin = end
    return None


def _wrong(text: bytes) -> str:
    """Say why bytes are no text of a table; nothing if they are one."""
    if b"\0" in text:
        return "has a NUL byte"
    try:
        if not text.isascii():
            text.decode()
    except UnicodeDecodeError:
        return "is not UTF-8"
    return ""
