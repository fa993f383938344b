"""Devices and files that a run depends on, beyond the text of its parameters.

A parameter such as ``device=mine.toml`` names a file, and the file can change while its name stays. So a run's name
hashes each description that the parameters name as it resolves, with every value and source, and the bytes of every
other file that they name; the folder keeps the descriptions. A text counts as naming a device if it is a preset's name
or a file with a description, wherever in the parameters it stands: no experiment has to declare it.

Not here: the engine and the presets' own history, which the version in the name stands for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from nandarray import device
from nandarray.device import Description
from nandarray.errors import InvalidError
from nandarray.lab.experiment import Experiment

__all__ = ["FOLDER", "Inputs", "inputs_of"]

#: The folder of descriptions within a run's folder.
FOLDER = "devices"


@dataclass(frozen=True)
class Inputs:
    """The devices and files that the parameters of a run name, by the text of the parameter.

    Devices are resolved descriptions as texts that need no other, files have their SHA-256.
    """

    devices: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def names(self) -> dict[str, str]:
        """Choose the name of each device's file in the run's folder."""
        found: dict[str, str] = {}
        for text in self.devices:
            stem = PurePath(text).name.removesuffix(".toml") or "device"
            name, number = f"{stem}.toml", 2
            while name in found.values():
                name, number = f"{stem}-{number}.toml", number + 1
            found[text] = name
        return found

    def write(self, folder: Path) -> dict[str, str]:
        """Write the descriptions into a run's folder; return where each lies in it, by the text of the parameter."""
        if self.devices:
            (folder / FOLDER).mkdir()
        for text, name in self.names().items():
            (folder / FOLDER / name).write_text(self.devices[text], encoding="utf-8")
        return {text: f"{FOLDER}/{name}" for text, name in self.names().items()}


def inputs_of(experiment: Experiment, parameters: Mapping[str, Any]) -> Inputs:
    """Resolve what an experiment's resolved parameters name, and the presets that it uses without a parameter.

    Descriptions have the parameter ``changes`` applied where the parameter ``device`` names them. A file that is no
    valid description is among the files: to refuse it is the experiment's part.
    """
    found = Inputs()
    for text in dict.fromkeys([*_texts(parameters), *experiment.devices]):
        described = _description(text)
        if described is not None:
            changes = parameters.get("changes")
            if text == parameters.get("device") and isinstance(changes, Mapping):
                described = _changed(described, changes)
            found.devices[text] = described.to_toml()
        elif device.exists(text):
            with Path(text).open("rb") as file:
                found.files[text] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _texts(value: Any) -> Iterator[str]:
    """Yield every text among values, at any depth, without the names of values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts(inner)


def _description(text: str) -> Description | None:
    if text not in device.names() and not (text.endswith(".toml") and device.exists(text)):
        return None
    try:
        return device.load(text)
    except InvalidError:
        return None


def _changed(described: Description, changes: Mapping[str, Any]) -> Description:
    try:
        return described.with_(changes)
    except InvalidError:  # the experiment says what is wrong with them
        return described
