"""Errors of xarray's coders, with the variable or the attribute that they are about: they say no name themselves.

The variable is looked for only after an error, by encoding or decoding each one alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from xarray import Variable, conventions

from nandarray.errors import InvalidError, NandarrayError
from nandarray.interop.convert.attributes import encode
from nandarray.interop.xarray.encoding import check_values

__all__ = ["attributes", "decoding", "encoding"]

#: Errors of coders. One of a user's own, of a lazy variable that is computed, is of no variable that fails alone.
_CODERS = (ValueError, TypeError, KeyError, NotImplementedError, OverflowError, AttributeError)


def attributes(of: str, attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """Encode attributes as they are stored; an InvalidError names one that cannot be."""
    try:
        return encode(attrs)
    except TypeError as error:
        for name, value in attrs.items():
            try:
                encode({name: value})
            except TypeError as own:
                raise InvalidError(f"attribute {name!r} of {of} cannot be stored: {own}") from error
        raise


@contextlib.contextmanager
def encoding(variables: Mapping[Hashable, Variable], where: str) -> Iterator[None]:
    """Name the variable that cannot be encoded, by an InvalidError."""

    def coded(name: str, one: Variable) -> Any:
        return conventions.encode_cf_variable(check_values(one, name), name=name)

    with _named(lambda: variables, where, "encoded", coded):
        yield


@contextlib.contextmanager
def decoding(variables: Callable[[], Mapping[Any, Variable]], where: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Name the variable that cannot be decoded with ``options`` of ``open_dataset``, by an InvalidError."""

    def decoded(name: str, one: Variable) -> Any:
        return conventions.decode_cf_variable(name, one, **options)

    with _named(variables, where, "decoded", decoded):
        yield


@contextlib.contextmanager
def _named(
    variables: Callable[[], Mapping[Any, Variable]], where: str, what: str, code: Callable[[Any, Variable], Any]
) -> Iterator[None]:
    try:
        yield
    except _CODERS as error:
        if isinstance(error, NandarrayError):
            raise
        for name, one in variables().items():
            try:
                code(name, one)
            except _CODERS as own:
                said = f"{type(own).__name__}: {own}" if isinstance(own, KeyError) else str(own)
                raise InvalidError(f"variable {name!r} of {where} cannot be {what} by xarray: {said}") from error
        raise
