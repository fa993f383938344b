"""Protection of sealed parts: copies in other folders, and parity of groups; written down as objects of the store.

A guard, ``protection/<id>.json``, is never changed. It names parts with their lengths and SHA-256s, and the files that
bring them back: copies of one part, or the parity of several (:mod:`nandarray.parts.parity`). Files come first, then
the guard: what a killed process leaves is a file that no guard names. A part of a group is kept as long as the group
protects another that a version names. Putting back is :mod:`nandarray.parts.repair`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nandarray.errors import CorruptError, InvalidError, PartError, UnsupportedVersionError
from nandarray.parts import parity
from nandarray.parts.blobs.base import Blobs, part_key
from nandarray.parts.blobs.files import Files, in_folder
from nandarray.parts.crew import part_file
from nandarray.parts.history import History
from nandarray.parts.leaves import Row
from nandarray.parts.writer import OpenParts

__all__ = ["Guard", "Member", "copied", "copy_parts", "drop", "group_parts", "guards", "kept", "named_rows", "place"]

_FORMAT = 1
_FOLDER = "protection"
_ID = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Member:
    """A part as it was sealed."""

    part: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Guard:
    """Files that bring parts back: copies of one part, or the parities of up to ``data`` of them."""

    id: str
    kind: str
    data: int
    members: tuple[Member, ...]
    #: Path and SHA-256 of each; a path that is not absolute is of the store's folder.
    files: tuple[tuple[str, str], ...]

    @property
    def length(self) -> int:
        """Bytes of the longest part."""
        return max(one.bytes for one in self.members)


def _key(name: str) -> str:
    return f"{_FOLDER}/{name}.json"


def _text(guard: Guard) -> bytes:
    said = {"format": _FORMAT, **asdict(guard)}
    said["checksum"] = _checksum(said)
    return json.dumps(said, indent=1).encode()


def _checksum(said: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _parse(data: bytes, where: str, name: str) -> Guard:
    try:
        said = json.loads(data)
        if said["format"] > _FORMAT:
            raise UnsupportedVersionError(
                f"{where} has format {said['format']}; this program knows formats up to {_FORMAT}"
            )
        if said.pop("checksum") != _checksum(said):
            raise ValueError("its checksum is not that of its content")
        members = tuple(Member(str(one["part"]), int(one["bytes"]), str(one["sha256"])) for one in said["members"])
        files = tuple((str(path), str(sha)) for path, sha in said["files"])
        made = Guard(str(said["id"]), str(said["kind"]), int(said["data"]), members, files)
        _check(made, name)
        return made
    except UnsupportedVersionError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptError(f"{where}: what protects parts is not known: {error}") from None


def _check(guard: Guard, name: str) -> None:
    """Refuse what no guard has: reclaiming deletes what it names, and repairing writes there, so only files of its own.

    Raises
    ------
    ValueError
        Says what is wrong.
    """
    if guard.id != name or not _ID.fullmatch(name):
        raise ValueError(f"its id must be 32 hexadecimal digits, those of its name, not {guard.id!r:.80}")
    for one in guard.members:
        if not _ID.fullmatch(one.part) or one.bytes < 1:
            raise ValueError(f"a member must be a part with its bytes, not {one.part!r:.80} with {one.bytes}")
    if guard.kind == "copies":
        fits = guard.data == len(guard.members) == 1 and bool(guard.files)
        own = {f"{one.part}.nand" for one in guard.members}
    else:
        fits = guard.kind == "parity" and 2 <= guard.data <= parity.DATA_MAX  # noqa: PLR2004
        fits = fits and 1 <= len(guard.members) <= guard.data and len(guard.files) in (1, 2)
        own = {f"{guard.id}.p", f"{guard.id}.q"}
    if not fits:
        counts = f"{len(guard.members)} members and {len(guard.files)} files"
        raise ValueError(f"{guard.kind!r:.80} of {guard.data} must not have {counts}")
    for path, _ in guard.files:
        folder, file = os.path.split(path)
        if file not in own or not (os.path.isabs(path) or folder == _FOLDER):
            raise ValueError(f"a file must be {' or '.join(sorted(own))}, not {path!r:.200}")


def guards(files: Blobs, damaged: dict[str, str] | None = None) -> list[Guard]:
    """Return all guards of a store; the keys of damaged ones go into ``damaged``, with what is wrong.

    Raises
    ------
    CorruptError
        One is damaged, and there is no ``damaged``.
    """
    found = []
    for name in files.names(_FOLDER):
        if name.endswith(".json"):
            key = f"{_FOLDER}/{name}"
            try:
                found.append(_parse(files.get(key), files.path(key), name.removesuffix(".json")))
            except FileNotFoundError:
                continue
            except CorruptError as error:
                if damaged is None:
                    raise CorruptError(f"{error}; repair() puts it aside once all parts are whole") from None
                damaged[key] = str(error)
    return found


def place(files: Blobs, path: str) -> str:
    """Return where a file of a guard lies."""
    return files.path(path)  # an absolute path stays


def _parity_path(files: Blobs, name: str, number: int, folders: Sequence[str]) -> str:
    """Return the path of a parity that is to be written, as a guard has it."""
    file = f"{name}.{'pq'[number]}"
    return os.path.join(os.path.abspath(folders[number % len(folders)]), file) if folders else f"{_FOLDER}/{file}"


def named_rows(history: History) -> dict[str, Row]:
    """Return the parts that versions name, each with a row that has it."""
    found: dict[str, Row] = {}
    shas: set[str] = set()
    for number in history.numbers():
        for entry in history.at(number).arrays.values():
            for leaf in entry.leaves:
                if leaf.sha in shas:
                    continue
                shas.add(leaf.sha)
                table = history.load(leaf)
                for at in range(len(table)):
                    part = table["part"][at].tobytes().hex()
                    if part not in found:
                        found[part] = Row(0, part, int(table["bytes"][at]), int(table["head"][at]))
    return found


def kept(all_guards: Iterable[Guard], named: Iterable[str]) -> set[str]:
    """Return the parts that must stay since parts that versions name need them."""
    live = set(named)
    groups = [one for one in all_guards if one.kind == "parity"]
    return {member.part for one in groups if any(m.part in live for m in one.members) for member in one.members}


def drop(files: Blobs, all_guards: Iterable[Guard], named: Iterable[str], older_than: float) -> None:
    """Delete guards that protect no part that a version names, with their files; and parities that no guard names."""
    live, now = set(named), files.now()
    left = []
    for guard in all_guards:
        if any(one.part in live for one in guard.members) or files.age(_key(guard.id), now) < older_than:
            left.append(guard)
            continue
        files.delete(_key(guard.id))
        for path, _ in guard.files:
            with contextlib.suppress(OSError):  # a folder that is not there now
                os.unlink(place(files, path))
    used = {path for guard in left for path, _ in guard.files}
    for name in files.names(_FOLDER):
        key = f"{_FOLDER}/{name}"
        if not name.endswith(".json") and key not in used and files.age(key, now) >= older_than:
            files.delete(key)


# --- Protecting -------------------------------------------------------------------------------------------------------


def _member(files: Blobs, parts: OpenParts, row: Row) -> Member:
    """Return a part's length and digest, if it is intact."""
    found = parts.engine(row).check()
    if errors := [str(one) for one in found["errors"]]:
        raise PartError(f"part {row.part} of {files.root} cannot be protected, since it is damaged: {errors[0]}")
    return Member(row.part, row.bytes, parity.sha256_of(files.path(part_key(row.part))))


def _folders(given: Sequence[str], store: str) -> list[str]:
    for folder in given:
        if not os.path.isdir(folder):
            raise InvalidError(f"at must be folders that are there; {folder} is none")
        inside = os.path.realpath(store)
        if os.path.commonpath([inside, os.path.realpath(folder)]) == inside:  # reclaiming tidies up there
            raise InvalidError(f"at must be folders outside the store {store}, not {folder}")
    return [os.path.abspath(folder) for folder in given]


def _keep(files: Blobs, guard: Guard) -> None:
    os.makedirs(files.path(_FOLDER), exist_ok=True)
    files.put_if_absent(_key(guard.id), _text(guard))


def copied(source: str, target: str, sha: str) -> int:
    """Copy a file durably, if the copy is not there; return the bytes written."""
    if os.path.exists(target) and parity.sha256_of(target) == sha:
        return 0
    made = f"{target}.{secrets.token_hex(4)}"
    try:
        shutil.copyfile(source, made)
        with open(made, "rb+") as file:
            os.fsync(file.fileno())
        if parity.sha256_of(made) != sha:
            raise PartError(f"{source} is not what it was when it was sealed: its copy has another SHA-256 than {sha}")
        os.replace(made, target)
        Files(os.path.dirname(target)).sync("")
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made)
    return os.path.getsize(target)


def copy_parts(history: History, parts: OpenParts, replicas: int, at: Sequence[str]) -> dict[str, int]:
    """Copy each part that versions name to as many folders as it lacks; return counts."""
    files = in_folder(history.files)
    folders = _folders(at, files.root)
    if len(set(folders)) < replicas - 1:
        raise InvalidError(
            f"at must be at least {replicas - 1} folders for {replicas} replicas, not {len(set(folders))}"
        )
    done = {"parts": 0, "files": 0, "bytes": 0}
    there: dict[str, set[str]] = {}
    for guard in guards(files):
        if guard.kind == "copies":
            has = {path for path, _ in guard.files if os.path.exists(place(files, path))}
            there.setdefault(guard.members[0].part, set()).update(has)
    for turn, (part, row) in enumerate(sorted(named_rows(history).items())):
        has = there.get(part, set())
        turned = [folders[(turn + number) % len(folders)] for number in range(len(folders))]
        targets = [path for folder in turned if (path := part_file(folder, part)) not in has]
        targets = targets[: max(0, replicas - 1 - len(has))]
        if not targets:
            continue
        member = _member(files, parts, row)
        for target in targets:
            done["bytes"] += copied(files.path(part_key(part)), target, member.sha256)
        copies = tuple((target, member.sha256) for target in targets)
        _keep(files, Guard(secrets.token_hex(16), "copies", 1, (member,), copies))
        done["parts"] += 1
        done["files"] += len(targets)
    return done


def group_parts(history: History, parts: OpenParts, data: int, parities: int, at: Sequence[str]) -> dict[str, int]:
    """Write the parity of those parts that have less of it, in groups of parts of like length; return counts."""
    files = in_folder(history.files)
    folders = _folders(at, files.root)
    protected = {
        one.part
        for guard in guards(files)
        if guard.kind == "parity" and len(guard.files) >= parities
        for one in guard.members
    }
    rows = [row for part, row in named_rows(history).items() if part not in protected]
    rows.sort(key=lambda row: (-row.bytes, row.part))  # little is padded
    done = {"parts": 0, "files": 0, "bytes": 0}
    os.makedirs(files.path(_FOLDER), exist_ok=True)
    for first in range(0, len(rows), data):
        members = tuple(_member(files, parts, row) for row in rows[first : first + data])
        name = secrets.token_hex(16)
        paths = [_parity_path(files, name, number, folders) for number in range(parities)]
        targets = [place(files, path) for path in paths]
        taken: list[str | None] = [files.path(part_key(one.part)) for one in members]
        taken += [None] * (data - len(members))
        parity.encode(taken, members[0].bytes, targets)
        for target in targets:
            Files(os.path.dirname(target)).sync("")
        shas = [parity.sha256_of(target) for target in targets]
        _keep(files, Guard(name, "parity", data, members, tuple(zip(paths, shas, strict=True))))
        done["parts"] += len(members)
        done["files"] += len(targets)
        done["bytes"] += sum(os.path.getsize(target) for target in targets)
    return done
