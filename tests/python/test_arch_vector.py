"""Vector instructions beside Spike: a short run of ``arch_vector``, against digests of what agreed with it.

Spike is not part of ``make test``, so digests of signatures that it agreed with are kept in ``arch_vector.json``; the
programs follow from a seed alone. ``make arch-tests`` runs Spike itself on many more cases; ``python
tests/python/test_arch_vector.py SPIKE`` writes the digests anew.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import arch_run
import pytest
from arch_cases import rows
from arch_vector import vector_groups

DIGESTS = Path(__file__).with_name("arch_vector.json")
# Register width, bits of a vector register, blocks of each instruction.
CHOSEN = ((64, 128, 4), (64, 512, 3), (32, 256, 3))


def digest(signature: bytes) -> str:
    """A short digest of a signature."""
    return hashlib.sha256(signature).hexdigest()[:24]


def test_every_vector_instruction_has_a_case() -> None:
    wanted = {row.name for row in rows(64, "vector_rows")}
    found = {block.name for group in vector_groups(64, 128, 1) for block in group.blocks}
    assert wanted - found == {"vsetvli", "vsetivli", "vsetvl"}  # together in blocks of the name `vset`
    assert len(wanted) == 375


@pytest.mark.parametrize(("bits", "vlen", "blocks"), CHOSEN)
def test_signatures_are_those_of_spike(bits: int, vlen: int, blocks: int, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    wanted = json.loads(DIGESTS.read_text())
    found = {}
    for group in vector_groups(bits, vlen, blocks, seed=7):
        found[group.name] = digest(arch_run.ours(arch_run.build(group, tmp_path), bits, vlen))
    assert found == {name: one for name, one in wanted.items() if name in found}


if __name__ == "__main__":
    made = {}
    with tempfile.TemporaryDirectory() as scratch:
        for bits, vlen, blocks in CHOSEN:
            for group in vector_groups(bits, vlen, blocks, seed=7):
                elf = arch_run.build(group, Path(scratch))
                mine, theirs = arch_run.ours(elf, bits, vlen), arch_run.spike(elf, bits, sys.argv[1], vlen)
                differs = arch_run.differences(group, mine, theirs, "Spike")
                assert not differs, "\n".join(differs)
                made[group.name] = digest(mine)
    DIGESTS.write_text(json.dumps(made, indent=1) + "\n")
