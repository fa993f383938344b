"""Entries of the cache of programs, and the keys that they lie under: bits flipped, entries cut, values that differ.

An entry is believed or absent, never another one; a fingerprint changes exactly when what is compiled does.
"""

from __future__ import annotations

import enum
import errno
import json
import os
import random
import sys
import types
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nandarray
from nandarray.programs.compile import cache as cache_module
from nandarray.programs.compile.cache import Cache, digest, keep, kept, write_whole
from nandarray.programs.compile.fingerprint import fingerprint, names_of

ELF = bytes(range(256)) * 3
NOTE = {"metadata": '{"abi": 1, "inputs": [{"dtype": "int32"}]}', "entries": ["nd_block"], "end": 70_000}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    os.chmod(tmp_path, 0o700)
    return Cache(tmp_path)


def entry_of(cache: Cache, key: str = "key") -> Path:
    return cache.where / f"{key}.program"


# --- entries ----------------------------------------------------------------------------------------------------------


def test_no_flipped_bit_of_an_entry_is_believed(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "read.h").write_text("#define ROWS 4\n")
    cache.put("key", ELF[:24], files=[str(tmp_path / "read.h")], note=NOTE)
    raw = entry_of(cache).read_bytes()
    assert cache.get("key") == (ELF[:24], NOTE)
    for at in range(len(raw)):
        for bit in {0, at % 8}:
            changed = bytearray(raw)
            changed[at] ^= 1 << bit
            entry_of(cache).write_bytes(changed)
            # A space of JSON may become another one, which says the same.
            assert cache.get("key") in (None, (ELF[:24], NOTE)), f"bit {bit} of byte {at}"
    entry_of(cache).write_bytes(raw)
    assert cache.get("key") == (ELF[:24], NOTE)


def test_no_cut_entry_is_believed_and_none_that_is_longer(cache: Cache) -> None:
    cache.put("key", ELF[:40], note=NOTE)
    raw = entry_of(cache).read_bytes()
    for size in range(len(raw)):
        entry_of(cache).write_bytes(raw[:size])
        assert cache.get("key") is None, f"cut at byte {size}"
    for more in (b"\0", b"\n", raw):
        entry_of(cache).write_bytes(raw + more)
        assert cache.get("key") is None


HEADS = [
    b"", b"\n", b"{}\n", b"[]\n", b"null\n", b"7\n", b"[" * 100_000 + b"\n", b'{"sha256": 1}\n', b"\xff\n",
    b'{"sha256": "", "files": [], "note": {}}\n', b'{"sha256": "", "files": {"\\u0000": ""}, "note": {}}\n',
]  # fmt: skip


@pytest.mark.parametrize("head", HEADS, ids=range(len(HEADS)))
def test_a_head_of_another_form_is_no_entry(cache: Cache, head: bytes) -> None:
    cache.put("key", ELF)
    entry_of(cache).write_bytes(head + ELF)
    assert cache.get("key") is None


def test_a_note_of_another_form_is_no_entry_although_its_checksum_is_right(cache: Cache) -> None:
    for note in ([], "text", 5, None):
        checksum = cache_module._digest_entry({}, note, ELF)  # type: ignore[arg-type]
        facts = {"sha256": checksum, "files": {}, "note": note}
        write_whole(entry_of(cache), json.dumps(facts).encode() + b"\n" + ELF)
        assert cache.get("key") is None


def test_an_entry_lasts_while_the_files_that_were_read_stay_as_they_were(cache: Cache, tmp_path: Path) -> None:
    one, other = tmp_path / "one.h", tmp_path / "two.h"
    one.write_bytes(b"1")
    cache.put("key", ELF, files=[str(one), str(other)])
    assert cache.get("key") == (ELF, {})
    for path, content in ((one, b"2"), (one, b""), (other, b"new")):
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(content)
        assert cache.get("key") is None, f"{path.name} became {content!r}"
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)
    assert cache.get("key") == (ELF, {})
    one.unlink()
    assert cache.get("key") is None


@pytest.mark.parametrize("what", ["link", "folder", "pipe"])
def test_only_plain_files_are_read(cache: Cache, tmp_path: Path, what: str) -> None:
    cache.put("real", ELF)
    path = entry_of(cache)
    if what == "link":
        path.symlink_to(entry_of(cache, "real"))
    elif what == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)  # reading it would wait for a writer
    assert cache.get("key") is None
    assert cache.get("real") == (ELF, {})


def test_a_cache_keeps_its_newest_entries_and_what_was_used_last(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_ENTRIES_MAX", 12)
    for number in range(12):
        cache.put(f"k{number}", ELF)
        os.utime(entry_of(cache, f"k{number}"), (number, number))
    assert cache.get("k3") is not None  # used now
    cache.put("new", ELF)
    left = {path.name.removesuffix(".program") for path in cache.where.iterdir()}
    assert left == {"k3", "new", *(f"k{number}" for number in range(5, 12))}
    assert len(left) == 9


@pytest.mark.parametrize("failing", ["mkstemp", "write", "replace"])
def test_a_write_that_fails_leaves_nothing_and_the_old_entry(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    cache.put("key", ELF)

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        if failing == "mkstemp":
            patch.setattr(cache_module.tempfile, "mkstemp", full)
        elif failing == "replace":
            patch.setattr(cache_module.os, "replace", full)
        else:
            real = os.fdopen
            patch.setattr(cache_module.os, "fdopen", lambda handle, mode: _Full(real(handle, mode)))
        cache.put("key", b"other")  # what cannot be written is not kept
        with pytest.raises(OSError, match="no room"):
            write_whole(entry_of(cache), b"other")
    assert [path.name for path in cache.where.iterdir()] == ["key.program"]
    assert cache.get("key") == (ELF, {})


class _Full:
    """A file that takes a byte and then has no room."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __enter__(self) -> _Full:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, data: bytes) -> None:
        self.file.write(data[:1])
        raise OSError(errno.ENOSPC, "no room")


def test_a_kept_object_is_whole_or_not_there(tmp_path: Path) -> None:
    path = keep(tmp_path / "objects" / "one.o", ELF[:40])
    raw = path.read_bytes()
    assert kept(path) == path
    assert raw[:40] == ELF[:40]
    for at in range(len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        assert kept(path) is None, f"byte {at}"
        path.write_bytes(raw[:at])
        assert kept(path) is None, f"cut at byte {at}"
    path.write_bytes(raw)
    os.chmod(path, 0o666)
    assert kept(path) is None
    assert kept(tmp_path / "objects" / "other.o") is None


@given(st.lists(st.binary(max_size=3) | st.text(max_size=3), max_size=5), st.data())
def test_a_digest_tells_where_a_part_ends(parts: list[Any], data: st.DataObject) -> None:
    other = data.draw(st.lists(st.binary(max_size=3) | st.text(max_size=3), max_size=5))

    def plain(listed: list[Any]) -> list[bytes]:
        return [one if isinstance(one, bytes) else one.encode() for one in listed]

    assert (digest(parts) == digest(other)) == (plain(parts) == plain(other))
    if parts:
        joined = [b"".join(plain(parts))]
        assert (digest(parts) == digest(joined)) == (plain(parts) == joined)


# --- fingerprints -----------------------------------------------------------------------------------------------------


def module(name: str, **members: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    vars(made).update(members)
    return made


def function(text: str, **names: Any) -> Callable[..., Any]:
    """A function with these globals; all of one text stand in the same lines."""
    exec(compile(text, "<fingerprint>", "exec"), names)
    found: Callable[..., Any] = names["f"]
    return found


def color(red: int, blue: int) -> type[enum.Enum]:
    return enum.IntEnum("Color", {"RED": red, "BLUE": blue}, module="colors", qualname="Color")


def point(*fields: str, defaults: tuple[Any, ...] = ()) -> type:
    made = namedtuple("Point", fields, defaults=defaults)  # type: ignore[misc]  # noqa: PYI024
    made.__module__, made.__qualname__ = "points", "Point"
    return made


def helper(value: int) -> Any:
    return function("def f(x):\n    return x + limit\n", limit=value)


# A text, and the names of its globals in pairs: those that compile to the same, and one that does not.
DIFFERENT: list[tuple[str, Callable[[int], dict[str, Any]]]] = [
    ("def f(x):\n    return x + limit\n", lambda n: {"limit": n}),
    ("def f(x):\n    return x + limit[0]\n", lambda n: {"limit": (n, 1)}),
    ("def f(x):\n    return x + limit[0]\n", lambda n: {"limit": np.array([n, 1.0])}),
    ("def f(x):\n    return x + limit\n", lambda n: {"limit": np.float32(n)}),
    ("def f(x):\n    return x + limit\n", lambda n: {"limit": [1, 2.0][n % 2]}),
    ("def f(x):\n    return x + c.limit\n", lambda n: {"c": module("c", limit=n)}),
    ("def f(x):\n    return x + c.limit\n", lambda n: {"c": module("c", limit=n, __version__="1")}),
    ("def f(x):\n    return x + p.c.limit\n", lambda n: {"p": module("p", c=module("p.c", limit=n))}),
    ("def f(x):\n    return x + p.c.limit\n",
     lambda n: {"p": module("p", c=module("p.c", limit=n), __version__="1")}),
    ("def f(x):\n    return x + c.limit[0]\n", lambda n: {"c": module("c", limit=(n, 1), __version__="1")}),
    ("def f(x):\n    return x + c.limit\n", lambda n: {"c": module("c", limit=np.float32(n), __version__="1")}),
    ("def f(x):\n    return x + c.limit[0]\n", lambda n: {"c": module("c", limit=np.array([n]), __version__="1")}),
    ("def f(x):\n    return x + p.q.c.limit\n",
     lambda n: {"p": module("p", q=module("p.q", c=module("p.q.c", limit=n)))}),
    ("def f(x):\n    return h(x)\n", lambda n: {"h": helper(n)}),
    ("def f(x):\n    return h(x)\n", lambda n: {"h": numba.njit(helper(n))}),
    ("def f(x):\n    return h(x)\n", lambda n: {"h": numba.njit(helper(1), fastmath=bool(n % 2))}),
    ("def f(x):\n    return c.h(x)\n", lambda n: {"c": module("c", h=helper(n))}),
    ("def f(x):\n    return (lambda y: y + limit)(x)\n", lambda n: {"limit": n}),
    ("def f(x):\n    def g(y):\n        return y * c.limit\n    return g(x)\n", lambda n: {"c": module("c", limit=n)}),
    ("def f(x):\n    return x + Color.RED\n", lambda n: {"Color": color(n, 9)}),
    ("def f(x):\n    return x + Color.RED\n", lambda n: {"Color": color(n - 4, 1)}),
    ("def f(x):\n    return x + c.Color.RED.value\n", lambda n: {"c": module("c", Color=color(n, 9))}),
    ("def f(x):\n    return Point(x, 2 * x).b\n", lambda n: {"Point": point(*[("a", "b"), ("b", "a")][n % 2])}),
    ("def f(x):\n    return Point(x).b\n", lambda n: {"Point": point("a", "b", defaults=(n,))}),
    ("def f(x):\n    return x + t.limit\n", lambda n: {"t": point("limit", "b")(n, 1)}),
    ("def f(x):\n    return x + d['limit']\n", lambda n: {"d": {"limit": n}}),
    ("def f(x):\n    return x in s\n", lambda n: {"s": frozenset([n, 100, 200])}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "names"), DIFFERENT, ids=range(len(DIFFERENT)))
def test_a_fingerprint_changes_with_every_value_that_is_compiled_in(
    text: str, names: Callable[[int], dict[str, Any]]
) -> None:
    found = [fingerprint(function(text, **names(number))) for number in (4, 4, 5)]
    assert None not in found
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_a_fingerprint_does_not_change_with_what_is_not_looked_up() -> None:
    text = "def f(x):\n    return x + c.limit\n"
    plain = fingerprint(function(text, c=module("c", limit=1), other=1))
    assert plain == fingerprint(function(text, c=module("c", limit=1, more=2), other=2, third=open))
    # Functions of a module with a version change with it alone.
    text = "def f(x):\n    return c.h(x)\n"
    versions = [
        fingerprint(function(text, c=module("c", h=helper(number), __version__=version)))
        for number, version in ((1, "1"), (2, "1"), (1, "2"))
    ]
    assert versions[0] == versions[1] != versions[2]


def test_modules_that_name_each_other_are_said_once() -> None:
    def made(limit: int) -> Any:
        modules = [module(f"m{i}", limit=limit) for i in range(30)]
        for one in modules:
            vars(one).update({other.__name__: other for other in modules})
        return function("def f(x):\n    return x + " + " + ".join(f"m{i}.limit" for i in range(30)), m0=modules[0])

    assert fingerprint(made(1)) == fingerprint(made(1)) != fingerprint(made(2))


def test_a_fingerprint_of_defaults_and_closures_is_theirs() -> None:
    def made(value: Any, text: str) -> Any:
        names: dict[str, Any] = {"value": value}
        exec(compile(text, "<fingerprint>", "exec"), names)
        return names["made"]()

    for text in (
        "def made():\n    inner = value\n    def f(x):\n        return x + inner\n    return f\n",
        "def made():\n    def f(x, y=value):\n        return x + y\n    return f\n",
        "def made():\n    def f(x, *, y=value):\n        return x + y\n    return f\n",
        "def made():\n    inner = value\n    def f(x):\n        def g(y):\n            return y + inner\n"
        "        return g(x)\n    return f\n",
    ):
        assert fingerprint(made(1, text)) == fingerprint(made(1, text)) != fingerprint(made(2, text)), text
        assert fingerprint(made(module("c", limit=1), text.replace("+ inner", "+ inner.limit"))) is not None
    text = "def made():\n    import_ = value\n    def f(x):\n        return x + import_.limit\n    return f\n"
    found = [fingerprint(made(module("c", limit=number), text)) for number in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_modules_and_values_that_contain_one_another_have_an_end() -> None:
    first, second = module("first", limit=1), module("second")
    first.second, second.first = second, first  # type: ignore[attr-defined]
    text = "def f(x):\n    return x + first.second.first.limit\n"
    assert fingerprint(function(text, first=first)) is not None
    circle: list[Any] = [1]
    circle.append(circle)
    assert fingerprint(circle) == fingerprint(circle)
    deep: Any = ()
    for _ in range(sys.getrecursionlimit()):
        deep = (deep,)
    assert fingerprint(deep) is None


def test_arrays_differ_by_type_shape_and_content() -> None:
    a = np.arange(6)
    every = [a, a.reshape(2, 3), a.reshape(3, 2), a.astype("i4"), a.astype("f8"), a + 1, a[::-1], a[:5], np.int64(0)]
    found = [fingerprint(one) for one in every]
    assert len(set(found)) == len(every)
    assert fingerprint(a[::2]) == fingerprint(a[::2].copy())
    for kind in ("<f4", ">f4", "(2,)f4", [("a", "f4")], [("b", "f4")]):
        assert fingerprint(np.dtype(kind)) == fingerprint(np.dtype(kind))
    kinds = [np.dtype(one) for one in ("<f4", ">f4", "(2,)f4", [("a", "f4")], [("b", "f4")], "u4", "f8")]
    kinds.append(np.dtype([("a", "u1"), ("b", "f8")], align=True))
    kinds.append(np.dtype([("a", "u1"), ("b", "f8")]))
    assert len({fingerprint(one) for one in kinds}) == len(kinds)


@pytest.mark.parametrize("seed", range(20))
def test_names_are_those_of_all_code_within(seed: int) -> None:
    rng = random.Random(seed)
    wanted, depth = set[str](), rng.randrange(4)
    lines = []
    for level in range(depth + 1):
        pad = "    " * level
        lines.append(f"{pad}def f{level}(x):")
        names = [f"g{level}_{number}" for number in range(rng.randrange(3))]
        attributes = [f"a{level}_{number}" for number in range(rng.randrange(3))]
        wanted.update(names, attributes)
        lines += [f"{pad}    x = x + {name}" for name in names]
        lines += [f"{pad}    x = x.{name}" for name in attributes]
        lines.append(f"{pad}    x = [y + inner{level} for y in x]")
        wanted.add(f"inner{level}")
    lines.append("    " * (depth + 1) + "return x")
    names_: dict[str, Any] = {}
    exec("\n".join(lines), names_)
    assert names_of(names_["f0"].__code__) == wanted, f"seed {seed}"


def test_a_changed_constant_of_a_module_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANDARRAY_CACHE", str(tmp_path / "cache"))
    with nandarray.open(tmp_path / "d.nand", mode="w") as store:
        store["x"] = np.arange(4.0)
        for factor in (2.0, 3.0):
            package = module("package", constants=module("package.constants", factor=factor))
            color_of = color(int(factor) + 4, 1)
            text = "def f(x):\n    return x * package.constants.factor + Color.RED.value\n"
            made = nandarray.program(function(text, package=package, Color=color_of), inputs="float64")
            np.testing.assert_array_equal(store["x"].offload(made), np.arange(4.0) * factor + factor + 4)
