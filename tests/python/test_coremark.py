"""CoreMark on the cores of Ibex, beside the figures that lowRISC publishes.

CoreMark comes from a wheel of 10 MB, which is fetched only with ``NANDARRAY_DEEP`` (``make test-deep``).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench import coremark


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not os.environ.get("NANDARRAY_DEEP"):
        pytest.skip(f"NANDARRAY_DEEP fetches {coremark.WHEEL}")
    try:
        wheel = coremark.fetch()
    except coremark.NoCoreMarkError as error:
        pytest.skip(str(error))
    return coremark.unpack(wheel, tmp_path_factory.mktemp("coremark"))


@pytest.mark.parametrize("compiler", [coremark.GCC, coremark.CLANG], ids=["gcc", "clang"])
def test_ibex_has_its_published_coremark(sources: Path, compiler: coremark.Compiler) -> None:
    """Promise: within 10 % of the published CoreMark/MHz of both configurations, with the known CRCs."""
    if compiler.program is not None and shutil.which(compiler.program) is None:
        pytest.skip(f"there is no {compiler.program}")
    program = coremark.build(sources, "rv32im", compiler)
    for name, core, published in coremark.ROWS:
        found = coremark.score(program, core, name=name, published=published)
        assert found.verdict == "kept", (found.per_mhz, found.instructions, found.reasons)
        # Every instruction is issued in one cycle, and waits add up to the rest.
        assert found.reasons["issue"] == found.instructions
        assert sum(found.reasons.values()) == pytest.approx(found.cycles)


def test_a_score_is_judged_by_its_distance() -> None:
    assert coremark.Score("near", 271_958, 402_195, {}, 2.47).verdict == "kept"
    assert coremark.Score("far", 293_038, 460_196, {}, 2.47).verdict == "MISSED: -12%"


def test_wrong_crcs_and_another_wheel_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="0x1234"):
        coremark.check([*coremark.KNOWN[:3], 0x1234, 0, 1])
    with pytest.raises(AssertionError, match="its own results"):
        coremark.check([*coremark.KNOWN, 0, 0])
    monkeypatch.setenv("NANDARRAY_CACHE", str(tmp_path))
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / coremark.wheel_name()).write_bytes(b"something else")
    with pytest.raises(coremark.NoCoreMarkError, match="digest"):
        coremark.fetch()


def test_without_the_wheel_the_command_says_why(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from bench import __main__ as cli

    def nowhere() -> Path:
        raise coremark.NoCoreMarkError("the index does not answer")

    monkeypatch.setattr(coremark, "fetch", nowhere)
    assert cli.main(["coremark"]) == 2
    assert "does not answer" in capsys.readouterr().err
