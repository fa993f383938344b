"""The loops around a user's functions: text of Python that is compiled with them.

Each style of :class:`~nandarray.programs.forms.Form` but those over blocks and streams has the loops of its entry
points here. A loop calls the functions by their names with an underscore in front; what a user named begins with
``in_``, all else is the loop's own. :mod:`nandarray.programs.compile.functions` chooses a loop's arguments.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.programs.forms import OPTIONS, parameters

if TYPE_CHECKING:
    from nandarray.programs.forms import Form

__all__ = ["calling", "closing", "ending", "folded", "folding", "loop", "options", "pacing", "places", "stepping"]


def options(form: Form) -> dict[str, Any]:
    """Return Numba's options for a form: indices are checked unless the form says otherwise."""
    given = {"boundscheck": True, **form.options}
    return {key: given[key] for key in OPTIONS if given.get(key)}


def _own(name: str) -> str:
    """Return a user's name as it stands in a loop, where it is none of the loop's names."""
    return f"in_{name}"


def _renamed(form: Form) -> Form:
    """Return a form whose inputs, outputs and numbers have their names in loops."""
    return replace(
        form,
        inputs=[(_own(name), dtype) for name, dtype in form.inputs],
        outputs=[(_own(name), dtype) for name, dtype in form.outputs],
        scalars=[(_own(name), dtype) for name, dtype in form.scalars],
        parameters=tuple(map(_own, form.parameters)),
        fields={_own(name): found for name, found in form.fields.items()},
        places={_own(name): found for name, found in form.places.items()},
    )


def _taken(function: Callable[..., Any], first: int) -> list[str]:
    """Return the names that a function takes behind its first parameters, as they stand in loops."""
    return list(map(_own, parameters(function)[first:]))


def _written(form: Form, text: str) -> Any:
    """Make a function of its text; the user's functions are there under their names, with an underscore."""
    from nandarray.programs.compile.riscv import jitted

    names = {f"_{key}": jitted(function, options(form)) for key, function in form.functions.items()}
    exec(compile(textwrap.dedent(text), f"<nandarray {form.name}>", "exec"), names)  # noqa: S102
    return names[text.partition("(")[0].split()[-1]]


def _given(form: Form, first: str, second: str) -> str:
    """Return the arguments of a function of two values, in its order."""
    values, scalars = iter((first, second)), {name for name, _ in form.scalars}
    return ", ".join(name if name in scalars else next(values) for name in form.parameters)


def loop(form: Form) -> Any:
    """Go through a block: an element, or a record, at a time."""
    form = _renamed(form)
    ins = [name for name, _ in form.inputs]
    numbers = "".join(f", {name}" for name, _ in form.scalars)
    at_i = {name: f"{name}[i_]" for name in ins} | {name: name for name, _ in form.scalars}
    taken = ", ".join(ins)
    if form.style == "reduce":
        return _reducing(form, taken, numbers, at_i)
    if form.style in ("columns", "slab"):
        return _rows(form)
    if form.style == "boxes":
        return _boxes(form, taken, numbers)
    if form.style == "fold":
        given = _given(form, "state.value", f"{ins[0]}[i_]")
        text = f"""
        def loop_(state, {taken}{numbers}):
            first = 0
            if state.n == 0 and len({ins[0]}) > 0:
                state.value = {ins[0]}[0]
                first = 1
            for i_ in range(first, len({ins[0]})):
                state.value = _function({given})
            state.n += len({ins[0]})
        """
        return _written(form, text)
    given = ", ".join(at_i[name] for name in form.parameters)
    if form.style == "map":
        text = f"""
        def loop_({taken}, out_{numbers}):
            for i_ in range(len({ins[0]})):
                out_[i_] = _function({given})
        """
        return _written(form, text)
    text = f"""
    def loop_({taken}, out_{numbers}):
        n_ = 0
        for i_ in range(len({ins[0]})):
            if _function({given}):
                out_[n_] = {ins[0]}[i_]
                n_ += 1
        return n_
    """
    return _written(form, text)


#: Numbers that say where a box lies, with the letter that they have in a loop.
_LETTERS = {"extent": "n", "inner": "m", "first": "f", "total": "t"}


def places(form: Form) -> list[str]:
    """Return which numbers on its place the loop over a box takes, each for every dimension."""
    found = ["extent"] if form.ndim else []
    if any(deep for deep, _ in form.halo):
        found.append("inner")
    if "first" in form.places.values() or any(deep and cut for deep, cut in form.halo):
        found.append("first")
    return [*found, "total"] if "total" in form.places.values() else found


def _boxes(form: Form, taken: str, numbers: str) -> Any:
    """Call a function for a box; with a halo, keep of what it wrote the box without that.

    An output's box of another shape is in proportion to the box without its halo, and all of it is kept.
    """
    axes = range(form.ndim)
    ((last, _),) = form.outputs
    told = {role: "".join(f"{letter}{axis}_, " for axis in axes) for role, letter in _LETTERS.items()}
    sizes, made = told["extent"], "o" if form.proportion else "n"
    deep = any(deep for deep, _ in form.halo)
    fields = {name: f"[{found!r}]" for name, found in form.fields.items()}
    values = {name: f"{name}.reshape(({sizes})){fields.get(name, '')}" for name, _ in form.inputs} | {last: "box_"}
    values |= {name: f"({told[role]})" for name, role in form.places.items()}
    lines = [f"def loop_({taken}, out_{numbers}, {''.join(told[role] for role in places(form))}):"]
    for axis, (one, of) in enumerate(form.proportion):
        lines.append(f"    o{axis}_ = ({'m' if deep else 'n'}{axis}_ * {one} + {of - 1}) // {of}")
    extents = " * ".join(f"{made}{axis}_" for axis in axes)
    lines += [
        f"    box_ = out_[:{extents}].reshape(({''.join(f'{made}{axis}_, ' for axis in axes)}))",
        f"    _function({', '.join(values.get(name, name) for name in form.parameters)})",
    ]
    if form.proportion:
        lines.append(f"    return {extents}")
    elif deep:
        before = [f"min({deep}, f{axis}_)" if deep and cut else str(deep) for axis, (deep, cut) in enumerate(form.halo)]
        lines.append("    k_ = 0")
        lines += [f"    {'    ' * axis}for i{axis}_ in range(m{axis}_):" for axis in axes]
        at = ", ".join(f"i{axis}_ + {before[axis]}" for axis in axes)
        inner = "    " * (form.ndim + 1)
        lines += [f"{inner}out_[k_] = box_[{at}]", f"{inner}k_ += 1", "    return k_"]
    return _written(form, "\n".join(lines))


def stepping(form: Form) -> Any:
    """Step the functions of a sequence over a block: one record for each, or as many as a step writes."""
    form = _renamed(form)
    ins = ", ".join(name for name, _ in form.inputs)
    numbers = "".join(f", {name}" for name, _ in form.scalars)
    values = {name: f"{name}[i_]" for name, _ in form.inputs} | {_own("out"): "out_[n_:]"}
    given = "".join(f", {values.get(name, name)}" for name in _taken(form.functions["step"], 1))
    first = form.inputs[0][0]
    if not form.parameters:
        text = f"""
        def loop_(state, {ins}, out_{numbers}):
            for i_ in range(len({first})):
                out_[i_] = _step(state{given})
        """
        return _written(form, text)
    text = f"""
    def loop_(state, {ins}, out_{numbers}):
        n_ = 0
        for i_ in range(len({first})):
            n_ += _step(state{given})
        return n_
    """
    return _written(form, text)


def pacing(form: Form) -> Any:
    """Step the functions of a sequence whose inputs have their own lengths, as long as it sees what a step may see.

    A step gets the next elements of each input, and of the output the room of one step, so that it sees the same
    wherever the blocks end. The loop ends where one of its blocks has too little left, or the output's room is used.
    """
    form = _renamed(form)
    ins, size = [name for name, _ in form.inputs], range(len(form.inputs))
    numbers = "".join(f", {name}" for name, _ in form.scalars)
    values = {name: f"{name}[p{i}_:p{i}_ + {form.ahead[i]}]" for i, name in enumerate(ins)}
    values[_own("out")] = f"out_[n_:n_ + {form.room}]"
    given = "".join(f", {values.get(name, name)}" for name in _taken(form.functions["step"], 1))
    paces = ", ".join([f"e{i}_" for i in size] + [f"t{i}_" for i in size])
    nothing_left = " and ".join(f"p{i}_ == len({name})" for i, name in enumerate(ins))
    lines = [
        f"def loop_(state, {', '.join(ins)}, out_, {paces}{numbers}):",
        "    n_ = 0",
        *(f"    p{i}_ = 0" for i in size),
        # Positions up to which a block has what a step may see; an input that ends here is seen to its end.
        *(f"    l{i}_ = len({name}) if e{i}_ else len({name}) - {form.ahead[i]}" for i, name in enumerate(ins)),
        f"    while n_ <= len(out_) - {form.room}" + "".join(f" and p{i}_ <= l{i}_" for i in size) + ":",
        f"        if {nothing_left}:",
        "            break",
        f"        w_, {', '.join(f'k{i}_' for i in size)} = _step(state{given})",
        f"        if w_ < 0 or w_ > {form.room}:",
        f"            raise ValueError('step() says that it wrote more than its room, {form.room}, or less than 0')",
    ]
    for i, name in enumerate(ins):
        says = f"step() says that it took more of {form.inputs[i][0][3:]} than it saw, or less than 0"
        lines.append(f"        if k{i}_ < 0 or k{i}_ > {form.ahead[i]} or k{i}_ > len({name}) - p{i}_:")
        lines.append(f"            raise ValueError({says!r})")
    lines.append(f"        if w_ == 0 and {' and '.join(f'k{i}_ == 0' for i in size)}:")
    lines.append("            raise ValueError('step() took nothing and wrote nothing: it would be called for ever')")
    lines.append("        n_ += w_")
    lines += [f"        p{i}_ += k{i}_" for i in size]
    lines += [f"    t{i}_[0] = p{i}_ * {dtype.itemsize}" for i, (_, dtype) in enumerate(form.inputs)]
    lines.append("    return n_")
    return _written(form, "\n".join(lines))


def closing(form: Form) -> Any:
    """Call what a sequence does behind its last element."""
    numbers = "".join(f", {_own(name)}" for name, _ in form.scalars)
    values = {_own("out"): "out_"}
    given = "".join(f", {values.get(name, name)}" for name in _taken(form.functions["end"], 1))
    return _written(form, f"def end_(state, out_{numbers}):\n    return _end(state{given})")


def _reducing(form: Form, taken: str, numbers: str, at_i: dict[str, str]) -> Any:
    """Step a class of functions over a block, or give it the whole block."""
    if "block" in form.functions:
        given = ", ".join(_taken(form.functions["block"], 1))
        return _written(form, f"def loop_(state, {taken}{numbers}):\n    _block(state, {given})")
    given = ", ".join(at_i[name] for name in _taken(form.functions["step"], 1))
    text = f"""
    def loop_(state, {taken}{numbers}):
        for i_ in range(len({form.inputs[0][0]})):
            _step(state, {given})
    """
    return _written(form, text)


def _rows(form: Form) -> Any:
    """Fold along an axis: within records, or over them."""
    ((taken, record),) = form.inputs
    numbers = "".join(f", {name}" for name, _ in form.scalars)
    if form.style == "slab":
        given = _given(form, "out_[r_, j_]", f"{taken}[r_, i_, j_]")
        length, inner = record.shape
        text = f"""
        def loop_({taken}, out_{numbers}):
            for r_ in range(len({taken})):
                for j_ in range({inner}):
                    out_[r_, j_] = {taken}[r_, 0, j_]
                for i_ in range(1, {length}):
                    for j_ in range({inner}):
                        out_[r_, j_] = _function({given})
        """
        return _written(form, text)
    given = _given(form, "state.value[j_]", f"{taken}[i_, j_]")
    (inner,) = record.shape
    text = f"""
    def loop_(state, {taken}{numbers}):
        first = 0
        if state.n == 0 and len({taken}) > 0:
            first = 1
            for j_ in range({inner}):
                state.value[j_] = {taken}[0, j_]
        for i_ in range(first, len({taken})):
            for j_ in range({inner}):
                state.value[j_] = _function({given})
        state.n += len({taken})
    """
    return _written(form, text)


def folding(form: Form) -> Any:
    """Fold the value of later pieces into that of earlier ones, if both have any."""
    form = _renamed(form)
    numbers = "".join(f", {one}" for one, _ in form.scalars)
    if form.style == "columns":
        inner, step = form.inputs[0][1].shape[0], _given(form, "state.value[j_]", "other.value[j_]")
        text = f"""
        def merge_(state, other{numbers}):
            if other.n > 0:
                for j_ in range({inner}):
                    if state.n > 0:
                        state.value[j_] = _function({step})
                    else:
                        state.value[j_] = other.value[j_]
                state.n += other.n
        """
        return _written(form, text)
    text = f"""
    def merge_(state, other{numbers}):
        if other.n > 0:
            if state.n > 0:
                state.value = _function({_given(form, "state.value", "other.value")})
            else:
                state.value = other.value
            state.n += other.n
    """
    return _written(form, text)


def folded(form: Form) -> Any:
    """Return the value, if there was an element."""
    if form.style == "columns":
        inner = form.inputs[0][1].shape[0]
        text = f"""
        def end_(state, out_):
            for j_ in range({inner}):
                out_[0, j_] = state.value[j_]
            return 1
        """
        return _written(form, text)
    text = """
    def end_(state, out_):
        if state.n == 0:
            return 0
        out_[0] = state.value
        return 1
    """
    return _written(form, text)


def calling(form: Form, name: str, first: str) -> Any:
    """Call one of the user's functions with those scalars that it wants."""
    numbers = "".join(f", {_own(one)}" for one, _ in form.scalars)
    wanted = "".join(f", {one}" for one in _taken(form.functions[name], len(first.split(","))))
    return _written(form, f"def call_({first}{numbers}):\n    _{name}({first}{wanted})")


def ending(form: Form, dtype: np.dtype[Any]) -> Any:
    """Write the result of a reduction."""
    numbers = "".join(f", {_own(one)}" for one, _ in form.scalars)
    if "result" not in form.functions:
        assert form.state is not None
        if form.state.names:
            return _written(form, f"def end_(state, out_{numbers}):\n    out_[0] = state")
        shape = form.state.shape
        # Element by element: an assignment of whole arrays looks first whether both sides overlap.
        parts = "".join(f"\n    out_[{', '.join(map(str, (0, *at)))}] = state{list(at)}" for at in np.ndindex(shape))
        return _written(form, f"def end_(state, out_{numbers}):{parts}")
    wanted = "".join(f", {one}" for one in _taken(form.functions["result"], 1))
    if dtype.subdtype is None:
        return _written(form, f"def end_(state, out_{numbers}):\n    out_[0] = _result(state{wanted})")
    places = enumerate(np.ndindex(dtype.shape))
    parts = "".join(f"\n    out_[{', '.join(map(str, (0, *at)))}] = r_[{i}]" for i, at in places)
    known = ""
    if form.state is not None and form.state.shape == dtype.shape:  # an array has its length when it runs
        known = f"\n    if len(r_) != {dtype.shape[0]}:\n        raise ValueError('result() returns another length')"
    return _written(form, f"def end_(state, out_{numbers}):\n    r_ = _result(state{wanted}){known}{parts}")
