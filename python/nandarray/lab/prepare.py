"""All that a run depends on, worked out once: what is measured, with which values, on what, and the run's name.

Everything after this takes a :class:`Prepared` and looks nothing up again. Nothing is measured or written here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import nandarray
from nandarray.errors import InvalidError
from nandarray.lab._files import digest, plain
from nandarray.lab._inputs import Inputs, inputs_of
from nandarray.lab.claims import Claim, claims_of
from nandarray.lab.experiment import Experiment
from nandarray.lab.parameters import LARGEST, resolve
from nandarray.lab.source import source_hash

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True)
class Prepared:
    """An experiment with all that its result depends on; equal ones give the same result.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    profile : str
        Profile that chooses the sizes.
    seed : int
        Seed of every random generator.
    parameters : mapping
        Values of all parameters.
    usual : mapping
        Values of all parameters where none is given: the profile's own.
    inputs : Inputs
        Devices and files that the parameters name.
    claims : mapping
        Known claims that the experiment answers, by id.
    source : str
        Hash of the experiment's source.
    id : str
        Name of the run, ``ID@HASH``: the hash is of all the others.
    """

    experiment: Experiment
    profile: str
    seed: int
    parameters: Mapping[str, Any]
    usual: Mapping[str, Any]
    inputs: Inputs
    claims: Mapping[str, Claim]
    source: str
    id: str

    @property
    def given(self) -> dict[str, Any]:
        """Values that are not the profile's own."""
        return {name: value for name, value in self.parameters.items() if value != self.usual[name]}

    @property
    def full_size(self) -> bool:
        """Whether the sizes are those that claims are of: not the small profile's, or none of them is smaller."""
        own = {name: one.default for name, one in self.experiment.parameters.items() if one.small is not None}
        return self.profile != "small" or all(self.parameters[name] == plain(value) for name, value in own.items())


def prepare(
    experiment: Experiment, *, profile: str = "full", seed: int = 0, parameters: Mapping[str, Any] | None = None
) -> Prepared:
    """Work out a run. An InvalidError says that the profile, the seed or a parameter is wrong."""
    if not 0 <= seed <= LARGEST:
        raise InvalidError(f"seed must be a whole number from 0 to {LARGEST:,}, not {seed!r}")
    resolved = plain(resolve(experiment, profile, dict(parameters or {})))
    usual = plain(resolve(experiment, profile))
    inputs = inputs_of(experiment, resolved)
    claims = claims_of(experiment)
    source = source_hash(experiment)
    of = {
        "experiment": experiment.id,
        "parameters": resolved,
        "profile": profile,
        "seed": seed,
        "version": nandarray.__version__,
        "source": source,
        "devices": inputs.devices,
        "files": inputs.files,
        "claims": [dataclasses.asdict(claim) for claim in claims.values()],
    }
    return Prepared(experiment, profile, seed, resolved, usual, inputs, claims, source, f"{experiment.id}@{digest(of)}")
