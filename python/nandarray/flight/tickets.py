"""Commands and tickets of the Flight door: JSON, read strictly, written the same way each time.

A command says what is wanted; :func:`get_flight_info` cuts it into tickets, one for each endpoint, which say besides
which part it is and where its batches begin and end. A ticket proves nothing: all that it says is checked again by the
call that brings it. ``docs/guides/flight.md`` has the keys. Reading itself is :mod:`nandarray.flight.plans`.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any, TypeVar

from nandarray.errors import InvalidError

__all__ = ["VERSION", "Command", "Program", "Ticket", "resumed", "tree_of"]

#: Version of commands and tickets.
VERSION = 1
#: Bytes of a command, and of a ticket, at most: a command, written anew, is longer, and has pieces behind it.
_COMMAND_MAX, _TICKET_MAX = 1 << 20, 8 << 20
_JOINS = ("and", "or", "not")
_COMPARED = ("<", "<=", "==", "!=", ">=", ">")
_CHARACTERS = ("begins", "ends", "holds")
_ALONE = ("is", "null", "valid")
#: Values that are computed of others, with the number of those.
_COMPUTED = {"negative": 1, "+": 2, "-": 2, "*": 2, "/": 2}
#: Places of a decimal before and behind the point, at most: those of Arrow's widest.
_PLACES_MAX = 76
_WHOLE_MAX = 10**_PLACES_MAX - 1
#: Lists within lists of a filter, at most.
_DEPTH_MAX = 200


def _decimal(text: str) -> Decimal:
    """Read a decimal; one with an exponent of its own choice would be written out with all its zeros."""
    found = Decimal(text)
    exponent = found.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -_PLACES_MAX or found.adjusted() > _PLACES_MAX:
        raise InvalidError(
            f"a decimal must be finite, with at most {_PLACES_MAX} places before and behind its point, not {text!r:.60}"
        )
    return found


_TYPED: dict[str, Callable[[str], Any]] = {
    "decimal": _decimal,
    "date": datetime.date.fromisoformat,
    "timestamp": datetime.datetime.fromisoformat,
}
_T = TypeVar("_T")


@dataclass(frozen=True)
class Program:
    """A ready-made program over an array: its name, parameters that shape it, scalars, the output to send."""

    name: str
    parameters: Mapping[str, Any]
    scalars: Mapping[str, Any]
    output: str | None


@dataclass(frozen=True)
class Command:
    """A request for a table or an array.

    Parameters
    ----------
    kind : {"table", "array"}
        The kind of what is read or written.
    name : str
        Its full name.
    columns : tuple of str, optional
        Columns of a table, in this order; all if left out.
    filter : list or bytes, optional
        The test of a table's rows: the JSON of a tree of :class:`nandarray.interop.tables.Test` (:func:`tree_of`), or
        an extended expression of Substrait.
    box : tuple of (int, int), optional
        Begin and end along each axis of an array; the whole if left out.
    program : Program, optional
        A program that runs over the box.
    """

    kind: str
    name: str
    columns: tuple[str, ...] | None = None
    filter: list[Any] | bytes | None = None
    box: tuple[tuple[int, int], ...] | None = None
    program: Program | None = None

    @classmethod
    def parse(cls, text: bytes) -> Command:
        """Read a command.

        Raises
        ------
        InvalidError
            It is no JSON, of another version, or has a key or a value that no command has.
        """
        fields = _Fields("a command", text, _COMMAND_MAX)
        command = cls._of(fields)
        fields.end()
        return command

    @classmethod
    def _of(cls, fields: _Fields) -> Command:
        fields.version()
        table, array = fields.take("table", _text), fields.take("array", _text)
        if (table is None) == (array is None):
            raise fields.wrong("must name either a table or an array")
        columns = fields.take("columns", _list_of(_text))
        tree = fields.take("filter", _filter)
        box = fields.take("box", _list_of(_pair))
        program = fields.take("program", _program)
        if array is None and (box is not None or program is not None):
            raise fields.wrong("box and program must be of an array, not of a table")
        if table is None and (columns is not None or tree is not None):
            raise fields.wrong("columns and filter must be of a table, not of an array")
        if columns is not None and (not columns or len(set(columns)) < len(columns)):
            raise fields.wrong("columns must have at least one name, and each once")
        kind, name = ("array", array) if table is None else ("table", table)
        return cls(kind, str(name), columns, tree, box, program)

    def encode(self) -> bytes:
        """Return the text."""
        return _encoded(self._said())

    def _said(self) -> dict[str, Any]:
        said: dict[str, Any] = {"version": VERSION, self.kind: self.name}
        said |= {"columns": self.columns, "box": self.box}
        if self.filter is not None:
            text = "" if isinstance(self.filter, list) else base64.b64encode(self.filter).decode()
            said["filter"] = self.filter if isinstance(self.filter, list) else {"substrait": text}
        if self.program is not None:
            said["program"] = asdict(self.program)
        return said


@dataclass(frozen=True)
class Ticket:
    """One endpoint of a command: a run of numbered batches, whose borders are fixed here.

    Parameters
    ----------
    command : Command
        The command; its box is the endpoint's own.
    schema : str
        Digest of the schema that the client has.
    at : int, optional
        Version of a store of parts.
    pieces : tuple of (int, int)
        Pieces of a table, a batch each.
    rows : int, optional
        Rows of a batch of an array.
    from_batch : int
        Number of the first batch to send.
    """

    command: Command
    schema: str
    at: int | None = None
    pieces: tuple[tuple[int, int], ...] = ()
    rows: int | None = None
    from_batch: int = 0

    @classmethod
    def parse(cls, text: bytes) -> Ticket:
        """Read a ticket.

        Raises
        ------
        InvalidError
            It is no JSON, of another version, or has a key or a value that no ticket has.
        """
        fields = _Fields("a ticket", text, _TICKET_MAX)
        command = Command._of(fields)
        schema = fields.take("schema", _text)
        if schema is None:
            raise fields.wrong("must have a schema's digest: it comes from get_flight_info")
        at, rows = fields.take("at", _count), fields.take("rows", _positive)
        pieces = fields.take("pieces", _list_of(_pair)) or ()
        from_batch = fields.take("from_batch", _count) or 0
        fields.end()
        return cls(command, schema, at, pieces, rows, from_batch)

    def encode(self) -> bytes:
        """Return the text."""
        said = {"schema": self.schema, "at": self.at, "rows": self.rows, "from_batch": self.from_batch}
        return _encoded(self.command._said() | said | ({"pieces": self.pieces} if self.pieces else {}))


def resumed(ticket: bytes, from_batch: int) -> bytes:
    """Return a ticket for the rest of a stream.

    Parameters
    ----------
    ticket : bytes
        The ticket of the stream.
    from_batch : int
        Number of the first batch to send: that behind the last one that arrived.

    Returns
    -------
    bytes
        The ticket. Its batches are those of the first one, to the bit.

    Raises
    ------
    InvalidError
        It is no ticket, or the number is negative.

    Examples
    --------
    >>> from nandarray import flight
    >>> flight.resumed(b'{"version": 1, "array": "a", "schema": "", "rows": 2}', 7)
    b'{"version":1,"array":"a","schema":"","rows":2,"from_batch":7}'
    """
    if isinstance(from_batch, bool) or not isinstance(from_batch, int) or from_batch < 0:
        raise InvalidError(f"from_batch must be a number from 0 on, not {from_batch!r}")
    return replace(Ticket.parse(ticket), from_batch=from_batch).encode()


class _Fields:
    """The keys of a JSON object, each taken once."""

    def __init__(self, noun: str, text: bytes, most: int) -> None:
        self._noun = noun
        if len(text) > most:
            raise self.wrong(f"must have at most {most} bytes, not {len(text)}")
        try:
            found = json.loads(text)
            json.dumps(found, ensure_ascii=False).encode()  # half a pair of surrogates is no text
        except (ValueError, RecursionError):
            raise self.wrong(f"must be JSON, not {text[:40]!r}") from None
        if not isinstance(found, dict):
            raise self.wrong(f"must be an object of JSON, not {type(found).__name__}")
        self._left: dict[str, Any] = found

    def wrong(self, what: str) -> InvalidError:
        return InvalidError(f"{self._noun} {what}")

    def version(self) -> None:
        found = self._left.pop("version", None)
        if found is not VERSION and found != VERSION or isinstance(found, bool):
            raise self.wrong(f"must have version {VERSION}, which this server has, not {found!r}")

    def take(self, key: str, read: Callable[[Any], _T]) -> _T | None:
        value = self._left.pop(key, None)
        if value is None:
            return None
        try:
            return read(value)
        except InvalidError as error:
            raise self.wrong(f"has a wrong {key}: {error}") from None
        except RecursionError:
            raise self.wrong(f"has a wrong {key}: it is nested too deeply") from None

    def end(self) -> None:
        if self._left:
            raise self.wrong(f"must not have the key {sorted(self._left)[0]!r}")


def _encoded(said: Mapping[str, Any]) -> bytes:
    return json.dumps({key: value for key, value in said.items() if value is not None}, separators=(",", ":")).encode()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidError(f"must be a text, not {value!r}")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise InvalidError(f"must be a number from 0 on, below 2^63, not {value!r}")
    return value


def _positive(value: Any) -> int:
    if not _count(value):
        raise InvalidError("must be at least 1, not 0")
    return _count(value)


def _pair(value: Any) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004
        raise InvalidError(f"must be a pair, begin and end, not {value!r}")
    begin, end = map(_count, value)
    if begin > end:
        raise InvalidError(f"must begin before it ends, not {value!r}")
    return begin, end


def _list_of(read: Callable[[Any], _T]) -> Callable[[Any], tuple[_T, ...]]:
    def all_of(value: Any) -> tuple[_T, ...]:
        if not isinstance(value, list):
            raise InvalidError(f"must be a list, not {value!r}")
        return tuple(map(read, value))

    return all_of


def _filter(value: Any) -> list[Any] | bytes:
    if isinstance(value, dict):
        if set(value) != {"substrait"} or not isinstance(value["substrait"], str):
            raise InvalidError("must be a test's tree, or an object with the key 'substrait' and base64")
        try:
            return base64.b64decode(value["substrait"], validate=True)
        except binascii.Error as error:
            raise InvalidError(f"substrait must be base64: {error}") from None
    level = value
    for _ in range(_DEPTH_MAX):
        level = [part for one in level if isinstance(one, list) for part in one] if isinstance(level, list) else []
    if level:
        raise InvalidError(f"must have at most {_DEPTH_MAX} lists within one another")
    tree_of(value)
    found: list[Any] = value
    return found


def tree_of(value: Any) -> tuple[Any, ...]:
    """Return the tree of a test, as :class:`nandarray.interop.tables.Test` has it, that JSON says.

    Raises
    ------
    InvalidError
        It says none.
    """
    if not isinstance(value, list) or not value or not isinstance(value[0], str):
        raise InvalidError(f"must be a list that begins with a word, not {value!r:.60}")
    op, *rest = value
    if op in _JOINS and rest and (op != "not" or len(rest) == 1):
        return (op, *map(tree_of, rest))
    if op == "true" and not rest:
        return ("true",)
    if op in _ALONE and len(rest) == 1:
        return op, _operand(rest[0])
    if op in _CHARACTERS and len(rest) == 2 and isinstance(rest[1], str):  # noqa: PLR2004
        return op, _operand(rest[0]), rest[1]
    if op == "in" and len(rest) == 2 and isinstance(rest[1], list):  # noqa: PLR2004
        return op, _operand(rest[0]), tuple(map(_constant, rest[1]))
    if op in _COMPARED and len(rest) == 2:  # noqa: PLR2004
        return op, _operand(rest[0]), _operand(rest[1]) if isinstance(rest[1], list) else _constant(rest[1])
    words = (*_JOINS, *_ALONE, *_CHARACTERS, "in", *_COMPARED, "true")
    if op not in words:
        raise InvalidError(f"must be one of {', '.join(words)}, not {op!r}")
    raise InvalidError(f"{op!r} must have what belongs to it behind it, not {rest!r:.60}")


def _operand(value: Any) -> Any:
    """Return a column's name, or a tree of values, of a test."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and isinstance(value[0], str):
        op, *rest = value
        if op == "col" and len(rest) == 1 and isinstance(rest[0], str):
            return "col", rest[0]
        if op == "value" and len(rest) == 1:
            return "value", _constant(rest[0])
        if _COMPUTED.get(op) == len(rest):
            return (op, *(("col", one) if isinstance(one, str) else _operand(one) for one in rest))
    raise InvalidError(
        f"a value must be a column's name, or a list with col, value, negative, +, -, * or /: {value!r:.60}"
    )


def _constant(value: Any) -> Any:
    """Return a constant of a test: a number, a text, a truth value, or an object that says its type."""
    if isinstance(value, int) and not -_WHOLE_MAX <= value <= _WHOLE_MAX:
        raise InvalidError(f"a whole number must have at most {_PLACES_MAX} digits")
    if isinstance(value, int | float | str):
        return value
    try:
        ((kind, text),) = value.items()
        return _TYPED[kind](text)
    except InvalidError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError):
        kinds = ", ".join(_TYPED)
        raise InvalidError(
            f"a constant must be a number, a text, true or false, or an object with {kinds} and a text: {value!r:.60}"
        ) from None


def _program(value: Any) -> Program:
    if not isinstance(value, dict) or not set(value) <= {"name", "parameters", "scalars", "output"}:
        raise InvalidError(f"must be an object with name, parameters, scalars and output, not {value!r}")
    name, output = value.get("name"), value.get("output")
    parts: Sequence[Any] = [value.get(key) or {} for key in ("parameters", "scalars")]
    if not isinstance(name, str) or not isinstance(output, str | None):
        raise InvalidError(f"must have a text as name, and as output if there is one, not {name!r} and {output!r}")
    for one in parts:
        if not isinstance(one, dict) or not all(isinstance(got, int | float | str) for got in one.values()):
            raise InvalidError(f"parameters and scalars must be numbers or texts by name, not {one!r}")
    return Program(name, parts[0], parts[1], output)
