"""``@nandarray.program``: a Python function becomes a :class:`nandarray.Program`.

Options and their meaning are here; what a function becomes is :mod:`nandarray.programs.forms`
and :mod:`nandarray.programs.compile.functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Never, ParamSpec, Protocol, TypeVar, overload

from nandarray.errors import InvalidError
from nandarray.programs.forms import Form, block_form, map_form, reduce_form, sequence_form
from nandarray.programs.program import PythonProgram

__all__ = ["program"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
#: Classes of functions are no function: called, such a program raises.
_OfClass = Callable[[type], PythonProgram[..., Never]]


class _Decorated(Protocol):
    """A decorator; what it makes of a function is called as the function is."""

    def __call__(self, function: Callable[_P, _R], /) -> PythonProgram[_P, _R]: ...


class _ProgramDecorator:
    """Make a program of a Python function.

    Four ways, for functions over blocks, over single elements, for reductions, and for sequences. No result depends on
    where the engine cuts the input into tasks, unless a caller asks for tasks of a size:

    ``@nandarray.program``
        The function takes arrays whole, as blocks or streams, told by annotations: it is called once, unless a caller
        asks for tasks with ``task_bytes=``: then it sees one task, and ``First`` and ``Length`` say where that lies. It
        returns nothing if it fills its outputs, or how many records it wrote to each.
    ``@nandarray.program(inputs=..., output=...)``, ``@nandarray.program.filter(inputs=...)``
        The function takes one element of each input and returns one element, or whether to keep it.
    ``@nandarray.program.reduce(inputs=..., state=...)``
        A class with functions ``init(state)``, ``step(state, x)`` or ``block(state, x)``, ``merge(state, other)`` and
        ``result(state)``; ``init`` and ``result`` may be left out: a state starts as zeros, and is the result itself.

    ``@nandarray.program.sequence(inputs=..., state=...)``
        A class with functions ``init(state)`` and ``step(state, x)``, which returns one element, called for all
        elements in order on one core, with a state that goes from each to the next; or ``step(state, x, out)``, which
        returns how many records it wrote to ``out``, and ``end(state, out)``, which writes what is left at the end.
        With ``ahead=`` inputs have lengths of their own, as two arrays that are merged: a step sees of each input the
        next elements, as many as ``ahead`` says (fewer where it ends, none behind its end), and returns how many
        records it wrote and how many elements it took of each input: ``(wrote, took_a, took_b)``.

    A function may use all that Numba compiles without a heap: numbers, arrays that it is given, arrays of a constant
    shape that it makes with ``np.zeros``, ``np.ones``, ``np.empty`` or ``np.full``, tuples, ``math``, NumPy's functions
    of single numbers, ``sum``, ``min``, ``max`` of arrays, other functions under ``@numba.njit``. Global names are
    constants. It is compiled when the program is first used.

    Parameters
    ----------
    function : callable, optional
        The function, if the decorator has no arguments.
    inputs : dtype_like or list of dtype_like, optional
        A dtype for each parameter that is an element of an array.
    output : dtype_like, optional
        The dtype of the output; what the function returns, if left out.
    scalars : mapping, optional
        Names of parameters that are numbers, given when the program runs, with their dtypes.
    **settings
        ``ahead`` and ``room`` of sequences; ``name``; ``bound``: for outputs the room they get,
        ``{"out": {"per_record": 8, "fixed": 64}}`` in bytes; ``memory_bytes``; ``scratchpad_bytes``; ``fastmath``
        (False: sums keep their order), as Numba has it; ``boundscheck`` (True: an index out of range is an error;
        False: it is noticed only where it leaves the program's memory, and a trusted program reads and writes the
        process's); ``trusted`` (False): whether it may be executed as a part of this process, see
        :attr:`Program.trusted`.

    Returns
    -------
    Program
        Called, it is still the function.

    Raises
    ------
    InvalidError
        Annotations or options are wrong.

    Examples
    --------
    >>> import nandarray
    >>> @nandarray.program(inputs="float32")
    ... def twice(x):
    ...     return 2 * x
    >>> twice
    <nandarray.Program 'twice' from Python, not compiled yet>
    >>> twice(1.5)
    3.0
    >>> twice.outputs[0]["dtype"], twice.metadata["entries"]
    ('float32', ['nd_block'])
    """

    @overload
    def __call__(
        self,
        function: Callable[_P, _R],
        *,
        inputs: Any = None,
        output: Any = None,
        scalars: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> PythonProgram[_P, _R]: ...
    @overload
    def __call__(
        self,
        function: None = None,
        *,
        inputs: Any = None,
        output: Any = None,
        scalars: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> _Decorated: ...
    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        *,
        inputs: Any = None,
        output: Any = None,
        scalars: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Any:
        """Make a program of a function over blocks or streams, or, with ``inputs``, over single elements."""
        if inputs is None:
            if output is not None or scalars is not None:
                raise InvalidError("output and scalars belong to functions over elements: give inputs as well")
            return _decorate(function, lambda found: block_form(found, **settings))
        return _decorate(function, lambda found: map_form("map", found, inputs, output, scalars, **settings))

    def map(
        self, *, inputs: Any, output: Any = None, scalars: Mapping[str, Any] | None = None, **settings: Any
    ) -> _Decorated:
        """Make a program of a function that takes one element of each input and returns one.

        Parameters
        ----------
        inputs : dtype_like or list of dtype_like
            A dtype for each parameter that is an element of an array.
        output : dtype_like, optional
            The dtype of the output; what the function returns, if left out.
        scalars : mapping, optional
            As for :func:`nandarray.program`.
        **settings
            As for :func:`nandarray.program`.

        Returns
        -------
        callable
            Makes a program of the function.

        Examples
        --------
        >>> import nandarray
        >>> @nandarray.program.map(inputs=["float64", "float64"])
        ... def added(x, y):
        ...     return x + y
        >>> added(1.0, 2.0)
        3.0
        """
        return lambda found: PythonProgram(map_form("map", found, inputs, output, scalars, **settings))

    def filter(self, *, inputs: Any, scalars: Mapping[str, Any] | None = None, **settings: Any) -> _Decorated:
        """Make a program of a function that says of one element whether to keep it (that of the first input).

        Parameters
        ----------
        inputs : dtype_like or list of dtype_like
            A dtype for each parameter that is an element of an array.
        scalars : mapping, optional
            As for :func:`nandarray.program`.
        **settings
            As for :func:`nandarray.program`.

        Returns
        -------
        callable
            Makes a program of the function.

        Examples
        --------
        >>> import nandarray
        >>> @nandarray.program.filter(inputs="int64")
        ... def odd(x):
        ...     return x % 2 == 1
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(5)
        >>> store["a"].filter(odd)
        array([1, 3])
        """
        return lambda found: PythonProgram(map_form("filter", found, inputs, None, scalars, **settings))

    def reduce(
        self, *, inputs: Any, state: Any, output: Any = None, scalars: Mapping[str, Any] | None = None, **settings: Any
    ) -> _OfClass:
        """Make a program of a class with ``init``, ``step`` or ``block``, ``merge`` and ``result``.

        Parameters
        ----------
        inputs : dtype_like or list of dtype_like
            A dtype for each parameter that is an element of an array.
        state : dtype_like
            The dtype of the state; a mapping of names and dtypes for several.
        output : dtype_like, optional
            The dtype of the result; of a state's only number, if left out.
        scalars : mapping, optional
            As for :func:`nandarray.program`.
        **settings
            As for :func:`nandarray.program`.

        Returns
        -------
        callable
            Makes a program of the class.

        Examples
        --------
        >>> import nandarray
        >>> @nandarray.program.reduce(inputs="int64", state={"most": "int64"})
        ... class Most:
        ...     def step(state, x):
        ...         state.most = max(state.most, x)
        ...     def merge(state, other):
        ...         state.most = max(state.most, other.most)
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(5)
        >>> int(store["a"].reduce(Most)["most"])
        4
        """
        return lambda found: PythonProgram(reduce_form(found, inputs, state, output, scalars, **settings))

    def sequence(
        self,
        *,
        inputs: Any,
        state: Any,
        output: Any = None,
        scalars: Mapping[str, Any] | None = None,
        ahead: int | Mapping[str, int] | None = None,
        room: int | None = None,
        **settings: Any,
    ) -> _OfClass:
        """Make a program of a class with ``init``, ``step`` and ``end``, whose state goes from element to element.

        Parameters
        ----------
        inputs : dtype_like or list of dtype_like
            A dtype for each parameter that is an element of an array.
        state : dtype_like
            The dtype of the state; a mapping of names and dtypes for several.
        output : dtype_like, optional
            The dtype of the output; that of the first input, if left out.
        scalars : mapping, optional
            As for :func:`nandarray.program`.
        ahead : int or mapping, optional
            Elements of each input that a step sees. With it inputs have lengths of their own.
        room : int, optional
            Records that a step may write, with ``ahead``; 1 if left out.
        **settings
            As for :func:`nandarray.program`.

        Returns
        -------
        callable
            Makes a program of the class.

        Examples
        --------
        >>> import nandarray
        >>> @nandarray.program.sequence(inputs="int64", state={"total": "int64"}, output="int64")
        ... class Running:
        ...     def step(state, x):
        ...         state.total += x
        ...         return state.total
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(5)
        >>> store["a"].offload(Running)
        array([ 0,  1,  3,  6, 10])
        """
        given: dict[str, Any] = {"ahead": ahead, "room": room, **settings}
        return lambda found: PythonProgram(sequence_form(found, inputs, state, output, scalars, **given))


def _decorate(function: Callable[..., Any] | None, form: Callable[[Callable[..., Any]], Form]) -> Any:
    if function is None:
        return lambda found: PythonProgram(form(found))
    return PythonProgram(form(function))


program = _ProgramDecorator()
