"""Vector instructions beside QEMU and Spike: a short run of ``arch_vector``, and digests of what agreed with Spike.

Spike is not part of ``make test``, so digests of signatures that it agreed with are kept in ``arch_vector.json``; the
programs follow from a seed alone. ``make arch-tests`` runs Spike itself on many more cases; ``python
tests/python/test_arch_vector.py SPIKE`` writes the digests anew.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

import arch_run
import pytest
from arch_cases import rows
from arch_vector import ALONE, vector_groups
from click.testing import Result
from typer.testing import CliRunner

from nandarray.cli import app

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


@pytest.mark.parametrize(("bits", "vlen"), [(64, 128), (64, 256), (32, 512)])
def test_signatures_are_those_of_qemu(bits: int, vlen: int, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    if shutil.which(f"qemu-system-riscv{bits}") is None:
        pytest.skip("Debian's qemu-system-misc is not installed")
    for group in vector_groups(bits, vlen, 3, seed=8):
        if group.name.endswith(ALONE):
            continue
        elf = arch_run.build(group, tmp_path)
        found = arch_run.differences(group, arch_run.ours(elf, bits, vlen), arch_run.qemu(elf, bits, vlen), "QEMU")
        assert not found, "\n".join(found[:10])


def test_the_command_line_runs_a_bare_program_with_vectors(tmp_path: Path) -> None:
    """As ELFs of others are run: ``program test-bare --vlen``, whose signature is that of the length."""
    pytest.importorskip("ziglang")
    group = next(vector_groups(64, 256, 1, seed=7))
    elf, out = arch_run.build(group, tmp_path), tmp_path / "signature"
    words = ["--isa", "rv64gcv_zba_zbb_zbs", "--signature", str(out), "--signature-granularity", "8"]

    def run(*more: str) -> Result:
        return CliRunner().invoke(app, ["program", "test-bare", str(elf), *words, *more])

    for vlen in (256, 1024):
        assert run("--vlen", str(vlen)).exit_code == 0
        assert (arch_run.from_lines(out.read_text()) == arch_run.ours(elf, 64, 256)) == (vlen == 256)
    refused = run("--vlen", "96")
    assert refused.exit_code != 0
    assert "128 to 1024 bits" in refused.output + str(refused.exception)
    # Without a vector unit there is no lane to set: its first instruction traps, and the program fails.
    none = CliRunner().invoke(app, ["program", "test-bare", str(elf), "--isa", "rv64gc_zba_zbb_zbs"])
    assert none.exit_code != 0


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
