"""Computing beside the data in one call: ``offload``, ``map_blocks``, ``reduce``, ``filter`` and ``select``.

:class:`Compute` is a base of arrays, views and fields; it turns calls into :func:`nandarray.offload`. Programs and
compilers are in :mod:`nandarray.programs`, which is loaded at the first call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from numpy.typing import DTypeLike

from nandarray.errors import InvalidError
from nandarray.index.buffers import Elements
from nandarray.programs.operand import Operand

if TYPE_CHECKING:
    from nandarray.array.array import Array
    from nandarray.programs.calls.groups import GroupBy
    from nandarray.programs.program import Program
    from nandarray.programs.run import Box


__all__ = ["Compute"]

_Progress = Callable[[int, int, int], object]
#: Reductions that give one value, or one for each place that is left.
_Values = Literal[
    "sum", "prod", "mean", "min", "max", "any", "all", "count", "argmin", "argmax", "var", "std", "median", "quantile",
    "percentile",
]  # fmt: skip

_OPTIONS = ("form", "threads", "task_bytes", "instructions", "seconds", "progress", "client", "trusted", "boundscheck")


class Compute(Operand):
    """Computing beside the data, for an N-dimensional array in a store."""

    @overload
    def offload(
        self,
        program: Program,
        *others: Any,
        key: Any = ...,
        out: None = None,
        form: str | None = None,
        threads: int | None = None,
        task_bytes: int | None = None,
        instructions: int | None = None,
        seconds: float | None = None,
        progress: _Progress | None = None,
        client: Any = None,
        **scalars: Any,
    ) -> Elements | dict[str, Elements] | None: ...
    @overload
    def offload(
        self,
        program: Program,
        *others: Any,
        key: Any = ...,
        out: object,
        form: str | None = None,
        threads: int | None = None,
        task_bytes: int | None = None,
        instructions: int | None = None,
        seconds: float | None = None,
        progress: _Progress | None = None,
        client: Any = None,
        **scalars: Any,
    ) -> Elements | int | dict[str, Elements | int] | None: ...
    def offload(
        self,
        program: Program,
        *others: Any,
        key: Any = ...,
        out: Any = None,
        form: str | None = None,
        threads: int | None = None,
        task_bytes: int | None = None,
        instructions: int | None = None,
        seconds: float | None = None,
        progress: _Progress | None = None,
        client: Any = None,
        **scalars: Any,
    ) -> Any:
        """Run a program beside the data, and get what it gives.

        The array is fetched piece by piece into the cores' windows; what comes back is the output. A Python function
        over blocks or streams gets the array whole, unless ``task_bytes`` says otherwise.

        Parameters
        ----------
        program : Program
            The program; this array is its first input.
        *others : Array, View, nandarray.Box or array_like
            Its other inputs.
        key : index expression, optional
            Part of this: integers and forward slices.
        out : Array, View, nandarray.Box or mapping, optional
            Destination of the outputs instead of memory.
        form : {"interpreted", "translated", "native"}, optional
            Form in which it is executed: :func:`nandarray.offload` says more.
        threads : int, optional
            Cores; all of the machine if left out.
        task_bytes : int, optional
            Bytes of this that a task should have: :func:`nandarray.offload` says more.
        instructions : int, optional
            The most of them in one call of the program.
        seconds : float, optional
            The most time of this machine that the run may take.
        progress : callable, optional
            Called now and then, and once at the end, with tasks done, tasks there are, and bytes read.
        client : distributed.Client or concurrent.futures.Executor, optional
            Workers that run it, each beside the parts of a store of parts: :func:`nandarray.offload` says more.
        **scalars
            The program's numbers, by name.

        Returns
        -------
        array, scalar or dict
            The output; a dictionary by name if there are several. :func:`nandarray.offload` tells what it took, too.

        Raises
        ------
        InvalidError
            Inputs or scalars do not fit the program.
        ProgramFailedError
            The program did what it may not do, or returned an error.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6).reshape(2, 3)
        >>> from nandarray import programs
        >>> int(store["a"].offload(programs.get("sum", dtype="int64"), key=1))
        12
        """
        from nandarray.programs import run

        inputs = [run.Box(self, key), *others]
        limits = {"task_bytes": task_bytes, "instructions": instructions, "seconds": seconds}
        options = {"out": out, "form": form, "threads": threads, "progress": progress, "client": client, **limits}
        return run.offload(program, inputs, scalars, **options).result

    async def offload_async(
        self, program: Program, *others: Any, **options: Any
    ) -> Elements | int | dict[str, Elements | int] | None:
        """Run a program beside the data without blocking the event loop; many may be in flight.

        Parameters
        ----------
        program : Program
            As for :meth:`offload`.
        *others : Array, View, nandarray.Box or array_like
            As for :meth:`offload`.
        **options
            As for :meth:`offload`; ``progress`` is called in another thread.

        Returns
        -------
        array, scalar or dict
            As :meth:`offload` gives it. When the task is cancelled, the run is ended.

        Examples
        --------
        >>> import asyncio, nandarray
        >>> from nandarray import programs
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(100).reshape(10, 10)
        >>> total = programs.get("sum", dtype="int64")
        >>> async def sums():
        ...     rows = await asyncio.gather(*(store["a"].offload_async(total, key=i) for i in range(10)))
        ...     return [int(row) for row in rows]
        >>> asyncio.run(sums())[:3]
        [45, 145, 245]
        """
        ended = threading.Event()
        told = options.pop("progress", None)

        def tell(done: int, tasks: int, bytes_in: int) -> None:
            if ended.is_set():
                raise InterruptedError("the task that waits for this program was cancelled")
            if told is not None:
                told(done, tasks, bytes_in)

        try:
            call = partial(self.offload, program, *others, progress=tell, **options)
            found: Elements | int | dict[str, Elements | int] | None = await self._origin().array.store._in_thread(call)
            return found
        except BaseException:
            ended.set()
            raise

    @overload
    def map_blocks(
        self,
        function: Callable[..., Any] | Program | str,
        *others: Any,
        block: bool | Sequence[int] | None = None,
        chunks: Sequence[int] | Mapping[int, int] | None = None,
        depth: int | Sequence[int] | Mapping[int, int] | None = None,
        boundary: Any = None,
        key: Any = ...,
        out: None = None,
        dtype: DTypeLike | None = None,
        **scalars: Any,
    ) -> Elements: ...
    @overload
    def map_blocks(
        self,
        function: Callable[..., Any] | Program | str,
        *others: Any,
        block: bool | Sequence[int] | None = None,
        chunks: Sequence[int] | Mapping[int, int] | None = None,
        depth: int | Sequence[int] | Mapping[int, int] | None = None,
        boundary: Any = None,
        key: Any = ...,
        out: str,
        dtype: DTypeLike | None = None,
        **scalars: Any,
    ) -> Array: ...
    @overload
    def map_blocks(
        self,
        function: Callable[..., Any] | Program | str,
        *others: Any,
        block: bool | Sequence[int] | None = None,
        chunks: Sequence[int] | Mapping[int, int] | None = None,
        depth: int | Sequence[int] | Mapping[int, int] | None = None,
        boundary: Any = None,
        key: Any = ...,
        out: Operand | Box,
        dtype: DTypeLike | None = None,
        **scalars: Any,
    ) -> int: ...
    def map_blocks(
        self,
        function: Callable[..., Any] | Program | str,
        *others: Any,
        block: bool | Sequence[int] | None = None,
        chunks: Sequence[int] | Mapping[int, int] | None = None,
        depth: int | Sequence[int] | Mapping[int, int] | None = None,
        boundary: Any = None,
        key: Any = ...,
        out: Any = None,
        dtype: DTypeLike | None = None,
        **scalars: Any,
    ) -> Any:
        """Compute elements from elements, block by block on all cores.

        A function takes one element of each input and returns one; it is compiled (Numba's subset), and the loop over a
        block is compiled with it. With ``block``, it takes boxes instead: of each input one, and last the output's,
        which it fills. It sees nothing beyond a box; at the edges boxes are smaller. With ``depth``, boxes come with
        their neighbourhood, as those of ``dask.array.map_overlap`` do.

        Parameters
        ----------
        function : callable, Program or str
            A function of single elements, or of boxes; a program; or the name of a ready-made one (``"sqrt"``).
        *others : Array, View, nandarray.Box or array_like
            Further inputs, of this shape.
        block : bool or sequence of int, optional
            The shape of boxes, of 1 to 4 dimensions; True for the array's building block, as is None with ``depth`` or
            ``chunks``.
        chunks : sequence of int or mapping, optional
            The shape of the result of a box, if it is not the box's; a mapping is by axis, and others stay. At the
            edges results are smaller as boxes are, in proportion, rounded up. With ``depth``, they have no
            neighbourhood.
        depth : int, sequence of int or mapping, optional
            Number of elements that a box has more on each side, along all dimensions or each; a mapping is by axis.
            The box of the output has them, too; what is written there is left out.
        boundary : str, number, sequence or mapping, optional
            Elements beyond the array: ``"none"``, boxes end with it (the default); ``"reflect"``, the array mirrored,
            its last element twice; ``"periodic"``, the array again; ``"nearest"``, the last element; a number.
        key : index expression, optional
            Part of this: integers and forward slices.
        out : Array, View, nandarray.Box or str, optional
            Destination of the result instead of memory; text makes a new array of this name, stored as this one is.
        dtype : dtype_like, optional
            Dtype of the result; what the function returns, if left out; of a function of boxes, the first input's.
        **scalars
            Numbers that the function takes by name; and ``form``, ``threads``, ``task_bytes``, ``instructions``,
            ``seconds``, ``progress``, ``client`` as for :meth:`offload`, ``trusted`` and ``boundscheck`` as for
            :func:`nandarray.program`.

        Returns
        -------
        numpy.ndarray, Array or int
            The result, of the box's shape unless ``chunks`` says otherwise; the new array; or how many elements went
            into ``out``.

        Raises
        ------
        CompileError
            The function cannot be compiled; names its line.
        InvalidError
            Inputs do not fit each other or the program.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6.0).reshape(2, 3)
        >>> store["a"].map_blocks(lambda x, by: x * by + 1, by=2.0)
        array([[ 1.,  3.,  5.],
               [ 7.,  9., 11.]])
        >>> store["a"].map_blocks("sqrt", out="root")[1]
        array([1.73205081, 2.        , 2.23606798])
        >>> def turned(x, out):
        ...     for i in range(x.shape[0]):
        ...         for j in range(x.shape[1]):
        ...             out[i, j] = x[i, x.shape[1] - 1 - j]
        >>> store["a"].map_blocks(turned, block=(1, 2))
        array([[1., 0., 2.],
               [4., 3., 5.]])
        >>> def greatest(x, out):
        ...     for i in range(x.shape[0]):
        ...         out[i, 0] = x[i].max()
        >>> store["a"].map_blocks(greatest, block=(1, 2), chunks=(1, 1))
        array([[1., 2.],
               [4., 5.]])
        """
        from nandarray.programs.calls import wrappers

        options = _taken(scalars)
        return wrappers.map_blocks(
            self, function, others, block=block, chunks=chunks, depth=depth, boundary=boundary, key=key, out=out,
            dtype=dtype, options=options, scalars=scalars,
        )  # fmt: skip

    @overload
    def filter(
        self,
        predicate: Callable[..., Any] | Program | str = "filter",
        *others: Any,
        key: Any = ...,
        out: None = None,
        **scalars: Any,
    ) -> Elements: ...
    @overload
    def filter(
        self,
        predicate: Callable[..., Any] | Program | str = "filter",
        *others: Any,
        key: Any = ...,
        out: Operand | Box,
        **scalars: Any,
    ) -> int: ...
    def filter(
        self,
        predicate: Callable[..., Any] | Program | str = "filter",
        *others: Any,
        key: Any = ...,
        out: Any = None,
        **scalars: Any,
    ) -> Any:
        """Keep the elements for which a function is true: ``a[mask]`` without the mask.

        Parameters
        ----------
        predicate : callable, Program or str
            A function of one element of each input; a program; or ``"filter"``, the elements from ``low=`` to
            ``high=`` (one of them may be left out), or ``"filter_index"``, their places in the flat box.
        *others : Array, View, nandarray.Box or array_like
            Further inputs of the function, of this shape.
        key : index expression, optional
            Part of this: integers and forward slices.
        out : Array, View or nandarray.Box, optional
            Destination of the elements instead of memory.
        **scalars
            As for :meth:`map_blocks`.

        Returns
        -------
        numpy.ndarray or int
            The elements, flat, in C order; or how many went into ``out``.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6).reshape(2, 3)
        >>> store["a"].filter(lambda x: x % 2 == 1)
        array([1, 3, 5])
        >>> store["a"].filter(low=2, high=3)
        array([2, 3])
        """
        from nandarray.programs.calls import wrappers

        options = _taken(scalars)
        return wrappers.filter_(self, predicate, others, key=key, out=out, options=options, scalars=scalars)

    @overload
    def reduce(
        self,
        function: _Values,
        axis: int | Sequence[int] | None = None,
        *,
        keepdims: bool = False,
        key: Any = ...,
        initial: Any = None,
        dtype: DTypeLike | None = None,
        state: Any = None,
        **scalars: Any,
    ) -> Elements: ...
    @overload
    def reduce(
        self,
        function: str | type | Program,
        axis: int | Sequence[int] | None = None,
        *,
        keepdims: bool = False,
        key: Any = ...,
        initial: Any = None,
        dtype: DTypeLike | None = None,
        state: Any = None,
        **scalars: Any,
    ) -> Elements | dict[str, Elements]: ...
    @overload
    def reduce(
        self,
        function: Callable[..., Any],
        axis: int | Sequence[int] | None = None,
        *,
        keepdims: bool = False,
        key: Any = ...,
        initial: Any = None,
        dtype: DTypeLike | None = None,
        state: Any = None,
        **scalars: Any,
    ) -> Elements: ...
    def reduce(
        self,
        function: Callable[..., Any] | Program | str | type,
        axis: int | Sequence[int] | None = None,
        *,
        keepdims: bool = False,
        key: Any = ...,
        initial: Any = None,
        dtype: DTypeLike | None = None,
        state: Any = None,
        **scalars: Any,
    ) -> Any:
        """Fold all elements of a box into one value, or those along an axis.

        Parameters
        ----------
        function : str, callable, type or Program
            ``"sum"``, ``"prod"``, ``"mean"``, ``"min"``, ``"max"``, ``"any"``, ``"all"``, ``"count"`` (of elements that
            are not zero), ``"argmin"``, ``"argmax"``, ``"var"``, ``"std"``, ``"median"``, ``"quantile"`` and
            ``"percentile"`` (with ``q=``, and ``method=`` as NumPy's ``"linear"``, ``"lower"``, ``"higher"``,
            ``"midpoint"`` or ``"nearest"``), ``"top"`` (with ``k=``; ``largest=False`` for the least), ``"minmax"``,
            ``"histogram"``; a function of two values that is associative, of which the first is what was folded so far;
            a class of functions as for ``nandarray.program.reduce``, with ``state=``; or a program.
        axis : int or sequence of int, optional
            The axis to fold, by one of the first ten names or a function of two values; several by the names without
            ``"argmin"`` and ``"argmax"``.
        keepdims : bool
            Whether axes that are folded stay in the result, with one place each, so that it broadcasts against the box.
        key : index expression, optional
            Part of this: integers and forward slices.
        initial : number, optional
            First value of the fold; without it an empty box has no least element, and nothing to call a function with.
        dtype : dtype_like, optional
            Dtype that a function folds into; if left out 64 bits for integers and truth values, as NumPy's sums have,
            else the array's. Of a class, of its result.
        state : dtype_like, optional
            Dtype of the state that a class keeps.
        **scalars
            As for :meth:`map_blocks`.

        Returns
        -------
        scalar, array or dict
            The value; with an axis, the box without it. Sums and products of integers are 64 bits wide, those of floats
            are float64. ``"argmin"`` and ``"argmax"`` give the first place, without an axis in the flat box.

        Raises
        ------
        InvalidError
            There is no element, and no initial value; an option that the reduction has not.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6.0).reshape(2, 3)
        >>> float(store["a"].reduce("sum")), float(store["a"].reduce("max", key=0))
        (15.0, 2.0)
        >>> float(store["a"].reduce(lambda x, y: x + y * y))
        55.0
        >>> store["a"].reduce("sum", axis=0)
        array([3., 5., 7.])
        >>> float(store["a"].reduce("median")), store["a"].reduce("percentile", q=[10, 90])
        (2.5, array([0.5, 4.5]))
        >>> store["a"].reduce("top", k=2)
        {'values': array([5., 4.]), 'places': array([5, 4])}
        >>> store["a"].reduce("argmax", axis=1, keepdims=True)
        array([[2],
               [2]])
        """
        from nandarray.programs.calls import wrappers

        options = _taken(scalars)
        return wrappers.reduce(
            self,
            function,
            axis,
            keepdims=keepdims,
            key=key,
            initial=initial,
            dtype=dtype,
            state=state,
            options=options,
            scalars=scalars,
        )

    def group_by(self, keys: Any, *, key: Any = ..., dropna: bool = True, budget: int | None = None) -> GroupBy:
        """Group the elements by keys, for statistics of each group.

        Tables of groups are filled beside the data; what comes back is one entry for each group.

        Parameters
        ----------
        keys : Array, View, Field, nandarray.Box or array_like
            A key for each element, or for each place along the first dimensions: integers, truth values, floats, dates,
            durations, text or bytes of a fixed length, records of such.
        key : index expression, optional
            Part of this: integers and forward slices. Keys have the shape of the part, or the beginning of it.
        dropna : bool
            Whether elements whose key is NaN or NaT are left out. If not, all of these are one group, the last one.
        budget : int, optional
            Bytes of memory that tables of groups may have, beside the results; 256 MiB if left out. An array with more
            groups than have room is read several times.

        Returns
        -------
        GroupBy
            The groups: its ``reduce("sum", "mean", ...)`` gives statistics.

        Raises
        ------
        InvalidError
            Keys of this dtype cannot be compared, or shapes do not fit each other.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["sales"] = np.array([("b", 2.0), ("a", 1.0), ("b", 4.0)], [("shop", "S1"), ("price", "f8")])
        >>> store["sales"]["price"].group_by(store["sales"]["shop"]).reduce("sum", "size")
        {'keys': array([b'a', b'b'], dtype='|S1'), 'sum': array([1., 6.]), 'size': array([1, 2])}
        """
        from nandarray.programs import run
        from nandarray.programs.calls import groups

        return groups.group_by(
            keys, run.Box(self, key), dropna=dropna, budget=groups.BUDGET if budget is None else budget
        )

    def select(self, *columns: str | int, key: Any = ..., **options: Any) -> Elements:
        """Take some columns of each row; the others do not leave the store.

        Parameters
        ----------
        *columns : str or int
            Fields of structured elements; or numbers along the last axis.
        key : index expression, optional
            Part of this: integers and forward slices.
        **options
            ``form``, ``threads``, ``task_bytes``, ``instructions``, ``seconds``, ``progress``, ``client`` as for
            :meth:`offload`.

        Returns
        -------
        numpy.ndarray
            Structured, with these fields; or with this many elements along the last axis.

        Raises
        ------
        InvalidError
            There is no such column, or a row is longer than 16 KiB.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(8).reshape(2, 4)
        >>> store["a"].select(3, 0)
        array([[3, 0],
               [7, 4]])
        """
        from nandarray.programs.calls import wrappers

        taken = _taken(options)
        if options:
            raise InvalidError(f"select has no option {min(options)!r}; there is key, {', '.join(_OPTIONS)}")
        found: Elements = wrappers.select(self, columns, key=key, options=taken)
        return found


def _taken(named: dict[str, Any]) -> dict[str, Any]:
    """Take the options of a run out of what was given by name."""
    return {name: named.pop(name) for name in _OPTIONS if name in named}
