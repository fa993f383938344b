"""Python functions as programs: what each form becomes, looked up in the cache or compiled.

Around a function over single elements the loop is written here, in Python, and compiled with it. This module makes
entry points and metadata of a form, has :mod:`.riscv` and :mod:`.zig` compile them, and turns Numba's messages into
errors that name the user's line. It imports no compiler before one is needed.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import math
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray import dtypes
from nandarray.errors import CompileError, InvalidError, NandarrayError
from nandarray.optional import require
from nandarray.programs import abi, elf
from nandarray.programs.compile import loops, mathematics, scratch, zig
from nandarray.programs.compile.cache import Cache, digest, installed
from nandarray.programs.compile.fingerprint import fingerprint, names_of
from nandarray.programs.compile.linking import link
from nandarray.programs.forms import SIZES, Form, parameters

if TYPE_CHECKING:
    from nandarray.programs.compile.riscv import Entry

__all__ = ["build", "typed"]

_TARGET = "rv64"
_LAST: dict[str, str] = {}
# Styles with a function of two values.
_FOLDS = frozenset({"fold", "columns", "slab"})
_FILE_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_AT_LINE = re.compile(r"^During: .* at (\S.*) \((\d+)\)$", re.MULTILINE)
_NO_HEAP = "it makes an array or another object that needs memory"
_CLOSED = re.compile(r"it closes over [^,]*, (an array of .* of shape \(.*?\))")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def build(form: Form, processor: str = _TARGET) -> tuple[bytes, dict[str, Any]]:
    """Compile a program in Python for a target of 64 bits, or find it in the cache.

    The ELF comes with what :attr:`nandarray.programs.elf.Image.essentials` says of it. A CompileError says that a
    function cannot be typed or needs what there is not beside the data, an ImportError that the compilers are not
    installed.
    """
    key, cache = _key(form), Cache()
    if key and processor != _TARGET:
        key = digest([key, zig.TARGETS[processor]])
    found = cache.get(key) if key else None
    if found is not None:
        return found
    target = zig.TARGETS[processor]
    ahead = threading.Thread(target=_ahead, args=(form, target), name="nandarray-compile", daemon=True)
    ahead.start()
    require("numba", "programs")
    from nandarray.programs.compile.streams import definitions

    zig.version()
    text = definitions(typed(form)[1]())
    try:
        with scratch.folder() as made:
            (made / "program.ll").write_text(text)
            zig.compile_ir(made / "program.ll", made / "program.o", target)
            ahead.join()
            link([made / "program.o", zig.runtime(target)], made / "program.elf", target)
            raw = (made / "program.elf").read_bytes()
    except CompileError as error:
        function = next(iter(form.functions.values())).__code__
        where = f"{Path(function.co_filename).name}:{function.co_firstlineno}: {form.name}"
        says = f"{where}: {_unlinked(error)}"
        raise CompileError(says, diagnostics=error.diagnostics, output=error.output) from None
    known = elf.read(raw).essentials
    if key:
        cache.put(key, raw, note=known)
    return raw, known


def _ahead(form: Form, target: zig.Target) -> None:
    """Compile what the function will be linked with while Numba is imported and types it."""
    # An error here is raised again by the build that needs the result.
    with contextlib.suppress(CompileError, ImportError, OSError):
        zig.runtime(target)
        names = set[str]()
        for function in form.functions.values():
            names |= names_of(getattr(function, "py_func", function).__code__)
        mathematics.needed(names, target)


def typed(form: Form) -> tuple[str | None, Callable[[], str]]:
    """Return a program's key, if it has one, and how to make LLVM's intermediate representation of it.

    Typing takes most of the time of compiling; the last result is kept for the next call.
    """
    key = _key(form)

    def text() -> str:
        if key is None or key not in _LAST:
            made = _typed(form)
            _LAST.clear()
            _LAST[key or ""] = made
        return _LAST[key or ""]

    return key, text


def _key(form: Form) -> str | None:
    described: list[Any] = [
        form.style,
        form.name,
        form.summary,
        list(form.inputs),
        list(form.outputs),
        list(form.scalars),
    ]
    described += [list(form.parameters), form.state, dict(form.bound), dict(form.options), form.ndim]
    described += [dict(form.fields), dict(form.places), list(form.wholes), [list(one) for one in form.halo]]
    described += [list(form.ahead), form.room, [list(one) for one in form.proportion]]
    found = fingerprint(described, dict(form.functions))
    if found is None:
        return None
    here = Path(__file__).parent
    names = ("functions", "local_arrays", "loops", "promotion", "riscv", "stored", "streams")
    ours = [(here / f"{name}.py").read_bytes() for name in ("../forms", *names)]
    ours += [file.read_bytes() for file in sorted(zig.INCLUDE.iterdir())]
    compilers = [*map(installed, ("ziglang", "numba", "llvmlite")), sys.version_info[:2], np.__version__]
    return digest(["python", abi.ABI, zig.OPTIONS, *compilers, *ours, found])


def _typed(form: Form) -> str:
    from numba.core.errors import NumbaError

    from nandarray.programs.compile import riscv

    try:
        outputs = _outputs(form)
        entries = _entries(form, outputs)
        made: str = riscv.compile_program(
            entries,
            lambda codes, scratchpad: _metadata(form, outputs, codes, scratchpad),
            loops.options(form),
            0 if form.state is None else form.state.itemsize,
        )
    except NumbaError as error:
        raise _explained(form, error) from error
    except NandarrayError:
        raise
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        # What Numba meets in a function and does not foresee.
        raise _explained(form, error) from error
    return made


def _outputs(form: Form) -> list[tuple[str, np.dtype[Any]]]:
    """Type the functions by themselves, for their errors, and find the dtypes of outputs that were left to them."""
    from nandarray.programs.compile.riscv import Parameter, element_type, result_type

    options = loops.options(form)
    numbers = {name: element_type(dtype) for name, dtype in form.scalars}
    if form.style in {"map", "filter"}:
        values = numbers | {name: element_type(dtype) for name, dtype in form.inputs}
        function = form.functions["function"]
        found = result_type(function, [values[name] for name in form.parameters], options)
        return [(name, _decided(form, dtype, found)) for name, dtype in form.outputs]
    if form.style in _FOLDS:
        assert form.outputs[0][1] is not None
        value = element_type(form.outputs[0][1].base)
        for second in (element_type(form.inputs[0][1].base), value):
            pair = iter((value, second))
            result_type(
                form.functions["function"], [numbers.get(name) or next(pair) for name in form.parameters], options
            )
        return [(name, dtype) for name, dtype in form.outputs if dtype is not None]
    if form.style == "sequence":
        return [(name, _sequence_output(form, dtype, numbers, options)) for name, dtype in form.outputs]
    if form.style == "reduce":
        assert form.state is not None
        kinds = {"state": Parameter("state", 0, form.state).type, "other": Parameter("other", 0, form.state).type}
        last: Any = None
        for name, function in form.functions.items():
            first = 2 if name == "merge" else 1
            arguments = [kinds["state"], kinds["other"]][:first]
            given = numbers | {
                one: Parameter("block", 0, dtype).type if name == "block" else element_type(dtype)
                for one, dtype in form.inputs
            }
            names = parameters(function)[first:]
            stray = [one for one in names if one not in given]
            if stray:
                raise InvalidError(f"{function.__qualname__}(): {stray[0]!r} is neither an input nor among scalars")
            try:
                last = result_type(function, [*arguments, *(given[one] for one in names)], options)
            except Exception as error:
                error.__notes__ = [function.__name__]  # whose error it is
                raise
        found = [(name, _decided(form, dtype, last)) for name, dtype in form.outputs]
        made = found[0][1].shape
        if isinstance(last, list) and "result" in form.functions and len(last) != math.prod(made):
            raise InvalidError(
                f"{form.name}: result() returns {len(last)} values; an output of {found[0][1]} has others"
            )
        return found
    return [(name, dtype) for name, dtype in form.outputs if dtype is not None]


def _sequence_output(
    form: Form, dtype: np.dtype[Any] | None, numbers: Mapping[str, Any], options: Mapping[str, Any]
) -> np.dtype[Any]:
    """Type the functions of a sequence, and find the dtype of what a step returns if it is not given."""
    from nandarray.programs.compile.riscv import Parameter, element_type, result_type

    assert form.state is not None
    given = dict(numbers) | {name: element_type(kind) for name, kind in form.inputs}
    if dtype is not None and form.parameters:
        given["out"] = Parameter("out", 0, dtype).type
    # A step that sees ahead gets the next elements of each input, an array.
    windows = {name: Parameter("block", 0, kind).type for name, kind in form.inputs} if form.ahead else {}
    last: Any = None
    for name in ("init", "end", "step"):
        function = form.functions.get(name)
        if function is not None:
            seen = given | (windows if name == "step" else {})
            values = [seen[one] for one in parameters(function)[1:]]
            try:
                last = result_type(function, [Parameter("state", 0, form.state).type, *values], options)
            except Exception as error:
                error.__notes__ = [name]
                raise
            if name == "step" and form.ahead:
                counts = last if isinstance(last, list) else [last]
                whole = all(isinstance(one, np.dtype) and one.kind in "biu" for one in counts)
                if not whole or len(counts) != 1 + len(form.inputs):
                    took = ", ".join(f"took of {name}" for name, _ in form.inputs)
                    raise _refused(form, f"step() must return {1 + len(form.inputs)} integers: wrote, {took}")
            elif name != "init" and form.parameters and not (isinstance(last, np.dtype) and last.kind in "biu"):
                raise _refused(form, f"{name}() must return how many records it wrote to out")
    if dtype is None and isinstance(last, np.dtype):
        return last
    return _decided(form, dtype, last)


def _decided(form: Form, dtype: np.dtype[Any] | None, found: Any) -> np.dtype[Any]:
    """Choose the dtype of an output: the requested one, or the function's."""
    if dtype is not None:
        return dtype
    if isinstance(found, list) and form.style == "map":
        raise _refused(
            form,
            f"the function returns {len(found)} values, and a result has one element for each one: return one number, "
            "or write a function over blocks (nandarray.Block), which has several outputs",
        )
    if isinstance(found, list) and found and all(isinstance(one, np.dtype) for one in found):
        return np.dtype((np.result_type(*found), (len(found),)))
    if isinstance(found, np.dtype):
        return found
    if form.style == "reduce" and str(found).startswith("array("):
        state = form.state
        if state is not None and len(state.shape) == 1 and str(found).startswith(f"array({state.base.name}, 1d,"):
            return state
        raise _refused(
            form,
            f"result() returns {found}: return numbers, or an array of one dimension like the state's, or leave result "
            "out, and the state is given",
        )
    what = "nothing" if found is None else str(found)
    raise InvalidError(f"{_place(form)}: the function must return a number, or have output=, and returns {what}")


def _place(form: Form) -> str:
    """Return where a form's last function begins, and the form's name, as errors say it."""
    last = list(form.functions.values())[-1]
    code = getattr(last, "py_func", last).__code__
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}: {form.name}"


def _refused(form: Form, why: str) -> CompileError:
    last = list(form.functions.values())[-1]
    code = getattr(last, "py_func", last).__code__
    one = {"file": code.co_filename, "line": code.co_firstlineno, "column": 0, "severity": "error", "text": why}
    return CompileError(f"{_place(form)}: {why}", diagnostics=[one], output=why)


def _entries(form: Form, outputs: Sequence[tuple[str, np.dtype[Any]]]) -> list[Entry]:
    from nandarray.programs.compile.riscv import Entry, Parameter

    ins = [Parameter("block", index, dtype) for index, (_, dtype) in enumerate(form.inputs)]
    numbers = [Parameter("scalar", index, dtype) for index, (_, dtype) in enumerate(form.scalars)]
    if form.style in {"block", "stream"}:
        prefix = "stream" if form.style == "stream" else "block"
        made = {name: Parameter(prefix, i, dtype) for i, (name, dtype) in enumerate(form.inputs)}
        role = "out-stream" if form.style == "stream" else "out"
        made |= {name: Parameter(role, i, dtype) for i, (name, dtype) in enumerate(outputs)}
        made |= {name: one for (name, _), one in zip(form.scalars, numbers, strict=True)}
        made |= {name: Parameter(role, 0, np.dtype("i8")) for name, role in form.places.items()}
        arguments = [made[name] for name in form.parameters]
        return [Entry(f"nd_{form.style}", form.functions["function"], arguments)]
    ((_, dtype),) = outputs
    if form.style in {"map", "filter", "slab", "boxes"}:
        out = [Parameter("out", 0, dtype)]
        for role in loops.places(form):
            numbers += [Parameter(role, axis, np.dtype("i8")) for axis in range(form.ndim)]
        return [Entry("nd_block", loops.loop(form), [*ins, *out, *numbers], ours=True)]
    assert form.state is not None
    state, other = Parameter("state", 0, form.state), Parameter("other", 0, form.state)
    if form.style == "sequence":
        room = Parameter("out", 0, dtype)
        body, paces = loops.stepping(form), []
        if form.ahead:
            words = [(role, index) for role in ("ended", "taken") for index in range(len(ins))]
            body, paces = loops.pacing(form), [Parameter(role, index, np.dtype("i8")) for role, index in words]
        found = [Entry("nd_block", body, [state, *ins, room, *paces, *numbers], ours=True)]
        if "init" in form.functions:
            found.append(Entry("nd_begin", loops.calling(form, "init", "state"), [state, *numbers], ours=True))
        if "end" in form.functions:
            found.append(Entry("nd_end", loops.closing(form), [state, room, *numbers], ours=True))
        return found
    found = [Entry("nd_block", loops.loop(form), [state, *ins, *numbers], ours=True)]
    if form.style in _FOLDS:
        found.append(Entry("nd_merge", loops.folding(form), [state, other, *numbers], ours=True))
        found.append(Entry("nd_end", loops.folded(form), [state, Parameter("out", 0, dtype)], ours=True))
        return found
    if "init" in form.functions:
        found.append(Entry("nd_begin", loops.calling(form, "init", "state"), [state, *numbers], ours=True))
    merging, ending = loops.calling(form, "merge", "state, other"), loops.ending(form, dtype)
    found.append(Entry("nd_merge", merging, [state, other, *numbers], ours=True))
    found.append(Entry("nd_end", ending, [state, Parameter("out", 0, dtype), *numbers], ours=True))
    return found


def _metadata(
    form: Form, outputs: Sequence[tuple[str, np.dtype[Any]]], codes: Mapping[int, str], scratchpad: int
) -> bytes:
    phase = {"phase": "end"} if form.style in {"reduce", "fold", "columns"} else {}
    if "end" in form.functions and form.style == "sequence":
        phase = {"phase": "both"}
    writes_some = form.style == "sequence" and form.parameters
    resized = bool(form.proportion) or any(deep for deep, _ in form.halo)
    exact = {"exact": False} if form.style == "filter" or writes_some or resized else {}
    # A function over blocks or streams sees what it is called for, so that it is called for all at once.
    tasks = {"tasks": "one"} if form.style in {"block", "stream"} else {}
    if form.inputs[0][0] in form.wholes:
        tasks = {"tasks": "whole"}
    elif form.style == "sequence":
        tasks = {"tasks": "ordered"}
    wholes = {name for name, _ in form.inputs[1:] if name in form.wholes}
    said: dict[str, Any] = {
        "abi": abi.ABI,
        "name": form.name,
        "summary": form.summary,
        "kind": "stream" if form.style == "stream" else "block",
        "inputs": [
            {
                "name": name,
                **_described(dtype),
                **({"whole": True} if name in wholes else {}),
                **({"ahead": form.ahead[number]} if form.ahead else {}),
            }
            for number, (name, dtype) in enumerate(form.inputs)
        ],
        "outputs": [
            {
                "name": name,
                **_described(dtype),
                **phase,
                **exact,
                **({"bound": form.bound[name]} if name in form.bound else {}),
            }
            for name, dtype in outputs
        ],
        "scalars": [{"name": name, "dtype": dtype.name} for name, dtype in form.scalars],
        "errors": {str(code): says for code, says in codes.items()},
        **tasks,
    }
    if form.state is not None:
        said["state_bytes"] = form.state.itemsize
    said |= {key: form.options[key] for key in SIZES if key in form.options}
    if scratchpad:
        said["scratchpad_bytes"] = max(scratchpad, said.get("scratchpad_bytes", 0))
    return json.dumps(said).encode()


def _described(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Write a dtype into metadata: a name where it has one, else NumPy's other forms."""
    base, _ = dtype.subdtype or (dtype, ())
    if dtypes.is_ml(base) or (base.kind in "biuf" and base.isnative):
        text: Any = base.name
    else:
        text = base.str if base.names is None else base.descr
    return {"dtype": text, "record_bytes": dtype.itemsize}


def _explained(form: Form, error: Exception) -> CompileError:
    """Make an error that names the user's line out of what Numba says."""
    text = _ANSI.sub("", str(error)).strip() or type(error).__name__
    codes = {name: getattr(one, "py_func", one).__code__ for name, one in form.functions.items()}
    where: tuple[str, int] | None = None
    told = _FILE_LINE.findall(text) + _AT_LINE.findall(text)
    place = getattr(error, "loc", None)
    told += [(place.filename, place.line)] if place is not None else []
    for file, line in told:
        for code in codes.values():
            lines = [number for _, _, number in code.co_lines() if number is not None]
            if Path(file).name == Path(code.co_filename).name and min(lines) <= int(line) <= max(lines):
                where = where or (code.co_filename, int(line))
    if where is None:
        named = next(iter(getattr(error, "__notes__", [])), "")
        code = codes.get(named) or next(iter(codes.values()))
        where = (code.co_filename, code.co_firstlineno)
    reason, shown = _named(_reason(text), codes, form.functions), _line(*where)
    message = f"{Path(where[0]).name}:{where[1]}: {form.name} does not compile: {reason}"
    one = {"file": where[0], "line": where[1], "column": 0, "severity": "error", "text": reason}
    return CompileError(message + (f"\n    {shown}" if shown else ""), diagnostics=[one], output=text)


def _named(reason: str, codes: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> str:
    """Name the array that a reason speaks of, if one of a function's globals or closures is of its dtype and shape."""
    told = _CLOSED.search(reason)
    if told is None:
        return reason
    for name, code in codes.items():
        function: Any = getattr(functions[name], "py_func", functions[name])
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        seen = {one: function.__globals__.get(one) for one in sorted(names_of(code))}
        for variable, cell in cells:
            with contextlib.suppress(ValueError):  # an empty cell
                seen[variable] = cell.cell_contents
        for variable, value in seen.items():
            if isinstance(value, np.ndarray) and told[1] == f"an array of {value.dtype} of shape {value.shape}":
                return reason.replace(told[1], f"{variable!r}, {told[1]}", 1)
    return reason


def _unlinked(error: CompileError) -> str:
    """Explain why a function of Python's or Numba's own is missing."""
    names = set(re.findall(r"undefined (?:\w+ )?symbol: (\S+)", error.output))
    python = sorted(name for name in names if name.startswith(("Py", "_Py", "numba_gil", "numba_unpickle")))
    if python:
        return f"it needs Python itself while it runs ({', '.join(python[:3])}); there is none beside the data"
    return f"{_NO_HEAP} while it runs" if any(name.startswith("NRT_") for name in names) else str(error)


def _reason(text: str) -> str:
    if (at := text.find(_NO_HEAP)) >= 0:
        return text[at:].partition("\n")[0]
    lines = [line.strip() for line in text.splitlines()]
    for line, following in zip(lines, lines[1:], strict=False):
        # That of sets is raised whatever the operands are, once something else in the process has used sets.
        if line.endswith("raised a specific error:") and "must be Sets" not in following:
            return following.partition(": ")[2] or following
    lines = [line for line in lines if line and not line.startswith(("Failed in", "-", "During:", "File ", "^"))]
    kept = lines[:2] if lines and lines[0].endswith(":") else lines[:1]
    return " ".join(kept) or "it is refused without a reason"


def _line(file: str, number: int) -> str:
    return linecache.getline(file, number).strip()
