"""Device descriptions: which SSD the modelled clock models.

A description is a text in TOML, in which every number has a unit and a source, and the changes to it. The native module
reads and checks it; this file makes a Python object of it: keys, changes, HTML. The page ``docs/reference/devices.md``
and :func:`keys` list the keys.

It opens no store and simulates nothing.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from functools import cache, cached_property
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from nandarray import _nandarray
from nandarray.errors import DescriptionError, InvalidError
from nandarray.inputs import read_text
from nandarray.present.html import folded, table
from nandarray.units import format_size

__all__ = ["Description", "Imported", "Key", "devices", "effective_rows", "import_mqsim", "keys", "load", "names"]


class Key(NamedTuple):
    """A key of a description."""

    key: str
    meaning: str
    allowed: str
    bound: str
    number: bool


class Description:
    """A device, described.

    Made by :func:`load`, :func:`devices` or :meth:`parse`; it never changes. Two are equal if they say the same.

    Parameters
    ----------
    text : str
        The description in TOML.
    overrides : mapping, optional
        Values by dotted keys, to stand in place of those in the text.

    Raises
    ------
    DescriptionError
        If anything is wrong; its text lists everything that is.

    Examples
    --------
    >>> import nandarray
    >>> drive = nandarray.devices()["mqsim-ideal"]
    >>> drive["nand.t_read"], drive.source("nand.t_read").split(",")[-1]
    ('75 us', ' ssdconfig.xml')
    >>> faster = drive.with_({"nand.t_read": "25 us"}, geometry__channels=16)
    >>> faster.effective["dies"], faster.effective["read_4k_ps"] // 1_000_000
    (128, 38)
    """

    def __init__(self, text: str, overrides: Mapping[str, Any] | None = None) -> None:
        self._text = text
        self._overrides = {key: _plain(key, value) for key, value in (overrides or {}).items()}
        self._data: dict[str, Any] = json.loads(_nandarray.device_json(text, json.dumps(self._overrides)))
        for old, new in self._data.pop("renamed", []):
            if old not in _told:
                _told.add(old)
                warnings.warn(f"{old} is now {new}; the old spelling goes after 0.2", FutureWarning, stacklevel=2)

    @classmethod
    def parse(cls, text: str) -> Description:
        """Read a description from its text.

        Parameters
        ----------
        text : str
            TOML.

        Returns
        -------
        Description
            The description.

        Examples
        --------
        >>> import nandarray
        >>> from nandarray import device
        >>> text = device.load("samsung-970-pro").texts()[0]
        >>> nandarray.Description.parse(text).name
        'samsung-970-pro'
        """
        return cls(text)

    @property
    def name(self) -> str:
        """The device's name."""
        return str(self._data["name"])

    @property
    def summary(self) -> str:
        """One sentence."""
        return str(self._data["summary"])

    @property
    def bases(self) -> list[str]:
        """The presets that it builds on, the nearest first."""
        return list(self._data["bases"])

    @property
    def overrides(self) -> dict[str, Any]:
        """Values that replace those of the text, by dotted keys."""
        return dict(self._overrides)

    @cached_property
    def values(self) -> dict[str, Any]:
        """Every value as it is written, by dotted keys, in order."""
        return {key: entry["value"] for key, entry in self._entries.items()}

    @cached_property
    def _entries(self) -> dict[str, dict[str, Any]]:
        sections = self._data["values"].items()
        # The order of the table of keys, which JSON objects do not keep.
        found = {f"{section}.{name}": entry for section, inner in sections for name, entry in inner.items()}
        return {key.key: found[key.key] for key in _keys() if key.key in found}

    def _entry(self, key: str) -> dict[str, Any]:
        try:
            return self._entries[key]
        except KeyError:
            raise InvalidError(f"{key!r} is not a key of descriptions; nandarray.device.keys() lists them") from None

    def __getitem__(self, key: str) -> Any:
        """Return the value of a dotted key, as it is written."""
        return self._entry(key)["value"]

    def source(self, key: str) -> str:
        """Return the source of a value.

        Parameters
        ----------
        key : str
            Dotted, such as ``"nand.t_read"``.

        Returns
        -------
        str
            A data sheet, a paper, a measurement, an assumption.

        Examples
        --------
        >>> from nandarray import device
        >>> bool(device.load("samsung-970-pro").source("nand.t_read"))
        True
        """
        return str(self._entry(key)["source"])

    @property
    def resolved(self) -> dict[str, Any]:
        """Every number in the simulation's units: times in ps, sizes in bytes, energies in pJ, powers in uW."""
        return dict(self._data["resolved"])

    @property
    def effective(self) -> dict[str, Any]:
        """Figures that need no simulation: capacity, bandwidths of the parts, latency of a lone request."""
        return dict(self._data["effective"])

    def with_(self, changes: Mapping[str, Any] | None = None, /, **overrides: Any) -> Description:
        """Return the same device with some values changed.

        Parameters
        ----------
        changes : mapping, optional
            Values by dotted keys. A value is what TOML would hold: ``"25 us"``, ``8``, ``["25 us", "50 us"]``, True;
            None is "none".
        **overrides
            The same by keyword, with two underscores for a dot, or a whole section as a mapping.

        Returns
        -------
        Description
            Another description.

        Examples
        --------
        >>> from nandarray.device import load
        >>> load("tiny").with_(nand={"t_erase": "2 ms"}, ftl__hot_cold=True)["nand.t_erase"]
        '2 ms'
        """
        flat = _flat({**(changes or {}), **overrides})
        return Description(self._text, {**self._overrides, **flat})

    def texts(self) -> tuple[str, str]:
        """Return its text, and its changes as JSON, for the native module.

        Returns
        -------
        tuple of str
            TOML, and a JSON object.
        """
        return self._text, json.dumps(self._overrides)

    def to_toml(self) -> str:
        """Write all of it, with every source, as one text that needs no other.

        Returns
        -------
        str
            TOML.
        """
        return _nandarray.device_toml(self._text, json.dumps(self._overrides))

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain dictionaries: values with sources, resolved numbers, what follows.

        Returns
        -------
        dict
            The keys and values that :program:`nandarray device show --json` prints.
        """
        return json.loads(json.dumps(self._data))  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        """Whether both say the same, wherever it is from."""
        return self.resolved == other.resolved if isinstance(other, Description) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return Description, (self._text, self._overrides)

    def __repr__(self) -> str:
        changed = f", {len(self._overrides)} changed" if self._overrides else ""
        return f"<nandarray.Description {self.name!r}: {format_size(self.effective['user_bytes'])}{changed}>"

    def _repr_html_(self) -> str:
        sections: dict[str, list[tuple[str, str, str]]] = {}
        for key, value in self.values.items():
            section, _, name = key.partition(".")
            sections.setdefault(section, []).append((name, str(value), self.source(key)))
        title = f"<strong>{escape(self.name)}</strong>: {escape(self.summary)}"
        values = "".join(folded(section, table(rows)) for section, rows in sections.items())
        return f"<div>{title}{table(effective_rows(self))}{values}</div>"


#: Spellings of keys that go away, each once told.
_told: set[str] = set()


def _flat(changes: Mapping[Any, Any]) -> dict[str, Any]:
    """Return changes by dotted keys, those of sections and tables as those of their keys."""
    flat: dict[str, Any] = {}
    for key, value in changes.items():
        if not isinstance(key, str):
            raise DescriptionError(f"{key!r} is no key of a description: a key is a text")
        dotted = key.replace("__", ".")
        if isinstance(value, Mapping):
            flat |= {f"{dotted}.{name}": inner for name, inner in _flat(value).items()}
        else:
            flat[dotted] = value
    return flat


def _plain(key: str, value: Any) -> Any:
    """Return a value as JSON has it: numbers of NumPy are Python's, and what is no number is a word."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(key, one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float | Mapping):
        return value
    raise DescriptionError(f"{key} = {value!r} is no value of a description")


def effective_rows(description: Description) -> list[tuple[str, str]]:
    """Return the figures that follow from a device's description, as rows of a table.

    Parameters
    ----------
    description : Description
        The device.

    Returns
    -------
    list of (str, str)
        Name and value.
    """
    facts = description.effective
    geometry = description.resolved["geometry"]
    spread = " x ".join(f"{geometry[part]} {part}" for part in ("channels", "ways", "dies", "planes"))

    def rate(key: str) -> str:
        return f"{facts[key] / 1e9:.3g} GB/s"

    def time(key: str) -> str:
        return f"{facts[key] / 1e6:.4g} us"

    return [
        ("capacity", f"{format_size(facts['user_bytes'])} of {format_size(facts['raw_bytes'])}"),
        ("flash", f"{spread}, {facts['cell'].upper()}"),
        ("channels together", rate("bus_bytes_per_s")),
        ("pages read, at most", rate("read_bytes_per_s")),
        ("pages programmed, at most", rate("program_bytes_per_s")),
        ("link, data", rate("link_bytes_per_s")),
        ("a lone read of 4 KiB", time("read_4k_ps")),
        ("a lone page programmed", time("write_page_ps")),
        ("a lone page written, as the host sees it", time("write_page_seen_ps")),
    ]


class Imported(NamedTuple):
    """A description from another program's configuration, and what of that is not in it."""

    description: Description
    notes: list[dict[str, str]]


def names() -> list[str]:
    """List the presets.

    Returns
    -------
    list of str
        Their names.

    Examples
    --------
    >>> from nandarray.device import names
    >>> "samsung-970-pro" in names()
    True
    """
    return _nandarray.device_presets()


def devices() -> dict[str, Description]:
    """Return all presets.

    Returns
    -------
    dict
        Descriptions by name.

    Examples
    --------
    >>> import nandarray
    >>> nandarray.devices()["tiny"]
    <nandarray.Description 'tiny': 24 MiB>
    """
    return {name: Description(_nandarray.device_preset(name)) for name in names()}


def keys() -> list[Key]:
    """List all keys of a description.

    Returns
    -------
    list of Key
        Each with its meaning, what it takes, and why its range ends there.

    Examples
    --------
    >>> from nandarray.device import keys
    >>> keys()[0].key, keys()[0].allowed
    ('geometry.channels', 'a whole number from 1 to 256')
    """
    return list(_keys())


@cache
def _keys() -> tuple[Key, ...]:
    return tuple(Key(**key) for key in json.loads(_nandarray.device_keys()))


def load(device: str | Path | Description) -> Description:
    """Find a device: a preset by its name, a description by its file.

    Parameters
    ----------
    device : str, path or Description
        Name of an existing file, text that ends in ``.toml``, or else the name of a preset.

    Returns
    -------
    Description
        The description.

    Raises
    ------
    DescriptionError
        If there is no such preset, or the file describes no device.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> from nandarray.device import load
    >>> load("nds-prototype").effective["dies"]
    256
    """
    if isinstance(device, Description):
        return device
    if is_file(device):
        return Description(read(Path(device)))
    return Description(_nandarray.device_preset(str(device)))


def is_file(device: str | Path) -> bool:
    """Whether a device is named by a file."""
    text = str(device)
    return isinstance(device, Path) or text.endswith(".toml") or "/" in text or (text not in names() and exists(text))


def exists(text: str) -> bool:
    """Whether there is a file of this name."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def read(path: Path) -> str:
    """Read the text of a file; what is none is a DescriptionError."""
    try:
        return read_text(path, "a description in TOML, or a configuration of MQSim")
    except InvalidError as error:
        raise DescriptionError(str(error)) from None


def import_mqsim(path: str | Path, name: str | None = None) -> Imported:
    """Take a device from a configuration of MQSim.

    Parameters
    ----------
    path : str or path
        An ``ssdconfig.xml``.
    name : str, optional
        Name of the device; the file's name if left out.

    Returns
    -------
    Imported
        The description, and notes on what it could not take over.

    Raises
    ------
    DescriptionError
        If the file is no such configuration, or describes a device that cannot be.
    """
    path = Path(path)
    found = json.loads(_nandarray.device_import_mqsim(read(path), name or path.stem))
    return Imported(Description(found["toml"]), found["notes"])
