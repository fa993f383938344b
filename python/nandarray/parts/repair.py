"""Missing and damaged parts of a store are put back: from copies, or from parity and what is left of their groups.

First all is looked at: each file that guards name, and each part, by its SHA-256. If a part cannot be brought back,
nothing is written. A part that is rebuilt lies in ``tmp/`` until its SHA-256 is that of the part as it was sealed; then
it takes the part's name, and the damaged file, if there is one, stays in ``tmp/`` for a while. Copies and parities that
are missing are made again, where their folders are. A guard that is damaged is put aside in ``tmp/`` once all parts are
whole without it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nandarray.errors import PartError
from nandarray.parts import parity
from nandarray.parts.blobs.base import part_key
from nandarray.parts.blobs.files import Files, in_folder
from nandarray.parts.crew import part_file
from nandarray.parts.history import History
from nandarray.parts.protection import Guard, Member, copied, guards, kept, named_rows, place
from nandarray.parts.writer import OpenParts

__all__ = ["repair"]


@dataclass
class _Found:
    """The state of the parts and of the files that protect them."""

    good: set[str] = field(default_factory=set)
    bad: dict[str, Member] = field(default_factory=dict)
    #: Parts that no guard names and that are missing or damaged, with what is wrong.
    alone: dict[str, str] = field(default_factory=dict)
    #: Files of guards that are whole.
    whole: set[str] = field(default_factory=set)


def repair(history: History, parts: OpenParts, at: Sequence[str], *, partly: bool) -> dict[str, Any]:
    """Put back what is missing or damaged; return what was done.

    Raises
    ------
    PartError
        Parts cannot be brought back: all of them are named. Nothing was written; with ``partly`` the others are put
        back.
    """
    files = in_folder(history.files)
    damaged: dict[str, str] = {}
    every = guards(files, damaged)
    rows = named_rows(history)
    found = _look(files, parts, every, rows)
    # A part comes back from the path of a copy, or by a group.
    copies = {part: path for part in found.bad if (path := _copy_of(files, part, every, found, at)) is not None}
    known = found.good | set(copies)
    groups = _groups(files, every, found, known)
    hopeless = {part: _why(part, every, found, files) for part in found.bad if part not in known and part in rows}
    hopeless |= {part: "; ".join([why, *damaged.values()]) for part, why in found.alone.items()}
    if hopeless and not partly:
        raise _refused(files, hopeless, "nothing was written")
    done: dict[str, Any] = {"copied": [], "rebuilt": [], "files": [], "bytes": 0, "set_aside": []}
    for part, path in copies.items():
        done["bytes"] += _put(files, found.bad[part], path)
        done["copied"].append(part)
    for guard, lost in groups:
        done["bytes"] += _rebuild(files, guard, lost, found)
        done["rebuilt"].extend(one.part for one in lost)
    parts.forget()
    back = found.good | set(copies) | set(done["rebuilt"])
    for guard in every:
        done["files"].extend(_again(files, guard, found, back))
    if hopeless:
        raise _refused(files, hopeless, f"{len(done['copied']) + len(done['rebuilt'])} others were put back")
    for key in damaged:
        with contextlib.suppress(FileNotFoundError):  # another repair was earlier
            _set_aside(files, key)
            files.delete(key)
            done["set_aside"].append(files.path(key))
    return done


def _set_aside(files: Files, key: str) -> None:
    """Keep a damaged file in ``tmp/``, too, as young as one that was made now: reclaiming leaves it for a while."""
    name = os.path.basename(key).partition(".")[0]
    aside = f"tmp/{name}-damaged-{secrets.token_hex(4)}"
    files.name(files.path(key), aside, durably=False)
    files.touch(aside)


def _groups(files: Files, every: Sequence[Guard], found: _Found, known: set[str]) -> list[tuple[Guard, list[Member]]]:
    """Return groups in an order in which they can be rebuilt, each with what it lacks then; ``known`` gets that, too.

    A part may be in several groups: what one of them brings back may be what another lacks.
    """
    done: list[tuple[Guard, list[Member]]] = []
    left = [guard for guard in every if guard.kind == "parity"]
    while True:
        for guard in left:
            lost = [one for one in guard.members if one.part not in known]
            gone = sum(place(files, path) not in found.whole for path, _ in guard.files)
            if any(one.part in found.bad for one in lost) and len(lost) + gone <= len(guard.files):
                done.append((guard, lost))
                known |= {one.part for one in lost}
                break
        else:
            return done


def _refused(files: Files, hopeless: dict[str, str], rest: str) -> PartError:
    told = "; ".join(f"part {part}: {why}" for part, why in sorted(hopeless.items()))
    return PartError(f"{files.root}: {len(hopeless)} parts cannot be brought back: {told}. {rest[0].upper()}{rest[1:]}")


def _is(path: str, sha: str) -> bool:
    try:
        return parity.sha256_of(path) == sha
    except OSError:
        return False


def _look(files: Files, parts: OpenParts, every: Sequence[Guard], rows: Any) -> _Found:
    found = _Found()
    members = {one.part: one for guard in every for one in guard.members}
    needed = set(rows) | kept(every, rows)
    for part in sorted(needed):
        if part in members:
            if _is(files.path(part_key(part)), members[part].sha256):
                found.good.add(part)
            else:
                found.bad[part] = members[part]
            continue
        try:
            errors = [str(one) for one in parts.engine(rows[part]).check()["errors"]]
        except (PartError, OSError) as error:
            errors = [str(error)]
        if errors:
            found.alone[part] = f"no copy and no parity protects it, and {errors[0]}"
    for guard in every:
        for path, sha in guard.files:
            if _is(place(files, path), sha):
                found.whole.add(place(files, path))
    return found


def _copy_of(files: Files, part: str, every: Iterable[Guard], found: _Found, at: Sequence[str]) -> str | None:
    """Return a copy of a part that is whole, if there is one."""
    for guard in every:
        if guard.kind == "copies" and guard.members[0].part == part:
            for path, _ in guard.files:
                if place(files, path) in found.whole:
                    return place(files, path)
    return next((one for folder in at if _is(one := part_file(folder, part), found.bad[part].sha256)), None)


def _why(part: str, every: Iterable[Guard], found: _Found, files: Files) -> str:
    """Say why a part cannot be brought back."""
    told = []
    for guard in every:
        if all(one.part != part for one in guard.members):
            continue
        if guard.kind == "copies":
            told.append(f"its copies {', '.join(path for path, _ in guard.files)} are missing or damaged")
            continue
        lost = [one.part for one in guard.members if one.part in found.bad]
        gone = [path for path, _ in guard.files if place(files, path) not in found.whole]
        told.append(
            f"of its group {guard.id} with {len(guard.files)} parities there are {len(lost) + len(gone)} missing or "
            f"damaged: {', '.join([*lost, *gone])}"
        )
    return ", and ".join(told)


# --- Writing ----------------------------------------------------------------------------------------------------------


def _put(files: Files, member: Member, source: str) -> int:
    """Put a part back from a file, which stays."""
    made = files.path(f"tmp/{secrets.token_hex(16)}")
    with open(source, "rb") as read, open(made, "xb") as written:
        while data := read.read(8 << 20):
            written.write(data)
        written.flush()
        os.fsync(written.fileno())
    return _take(files, member, made)


def _take(files: Files, member: Member, made: str) -> int:
    """Give a file in ``tmp/`` the name of a part, if it is that part."""
    target = files.path(part_key(member.part))
    try:
        if not _is(made, member.sha256):
            raise PartError(
                f"part {member.part} was rebuilt with another SHA-256 than {member.sha256}; it was not put back"
            )
        if os.path.lexists(target):
            _set_aside(files, part_key(member.part))
        os.replace(made, target)
        files.sync("parts")
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made)
    return member.bytes


def _taken(files: Files, guard: Guard) -> list[str | None]:
    """Return the files of a group's parts, as many as parity is made of."""
    found: list[str | None] = [files.path(part_key(one.part)) for one in guard.members]
    return found + [None] * (guard.data - len(guard.members))


def _rebuild(files: Files, guard: Guard, lost: Sequence[Member], found: _Found) -> int:
    """Rebuild parts of a group from the others and its parities."""
    gone = [at for at, (path, _) in enumerate(guard.files) if place(files, path) not in found.whole]
    paths = [*_taken(files, guard), *(place(files, path) for path, _ in guard.files)]
    places = [guard.members.index(one) for one in lost] + [guard.data + at for at in gone]
    made = [files.path(f"tmp/{secrets.token_hex(16)}") for _ in places]
    try:
        parity.rebuild(paths, places, guard.data, guard.length, made)
        for member, file in zip(lost, made, strict=False):
            os.truncate(file, member.bytes)
        return sum(_take(files, member, file) for member, file in zip(lost, made, strict=False))
    finally:
        for file in made:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file)


def _again(files: Files, guard: Guard, found: _Found, back: set[str]) -> list[str]:
    """Make copies and parities again that are missing or damaged; return their paths."""
    lost = [(path, sha) for path, sha in guard.files if place(files, path) not in found.whole]
    if not lost or any(one.part not in back for one in guard.members):
        return []
    done = []
    made = [files.path(f"tmp/{secrets.token_hex(16)}") for _ in guard.files]
    try:
        if guard.kind == "parity":
            parity.encode(_taken(files, guard), guard.length, made)
        for (path, sha), file in zip(guard.files, made, strict=True):
            target = place(files, path)
            if (path, sha) not in lost or not os.path.isdir(os.path.dirname(target)):
                continue
            source = file if guard.kind == "parity" else files.path(part_key(guard.members[0].part))
            copied(source, target, sha)
            done.append(target)
    finally:
        for file in made:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file)
    return done
