"""Text of strangers (names, dtypes, attributes, paths) as a terminal may have it: what it would obey is escaped."""

from __future__ import annotations

import re

__all__ = ["plain"]

#: C0, DEL and C1; marks that change a text's direction; separators of lines; surrogates, which no stream takes.
#: The rule of names (``is_unprintable`` in the engine's ``device/names.rs``) has the same list.
_OBEYED = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_OBEYED_IN_LINES = re.compile(_OBEYED.pattern.replace(r"\x00-\x1f", r"\x00-\x09\x0b-\x1f"))


def plain(text: str, *, lines: bool = False) -> str:
    r"""Return a text with each character that a terminal would obey written as Python writes it.

    Parameters
    ----------
    text : str
        Any text.
    lines : bool
        Whether the text has lines of its own, whose ends stay.

    Returns
    -------
    str
        The text without control characters, marks of direction and surrogates.

    >>> from nandarray.present.plain import plain
    >>> print(plain("a\x1b[31m\nb\u202e"))
    a\x1b[31m\nb\u202e
    """
    pattern = _OBEYED_IN_LINES if lines else _OBEYED
    return pattern.sub(lambda found: found.group(0).encode("unicode_escape").decode(), text)
