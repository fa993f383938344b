"""The demo at a small size: it ends well, checks every byte, leaves nothing behind, and would notice a wrong byte."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("zarr")
pytest.importorskip("nilearn")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    """The demo as a module."""
    path = Path(__file__).resolve().parents[2] / "examples" / "demo.py"
    spec = importlib.util.spec_from_file_location("nandarray_demo", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_demo_runs_and_cleans_up(demo: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--size", "4MiB", "--folder", str(tmp_path / "data")]) == 0
    shown = capsys.readouterr().out
    for word in ("MNI152", "functional scan", "generated", "view ", "cold", "Zarr 3", "row-major file"):
        assert word in shown
    assert "WRONG" not in shown
    assert not (tmp_path / "data").exists()


def test_a_wrong_byte_is_noticed(demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = demo.RowMajor.read

    def wrong(self: Any, tile: Any, out: Any) -> None:
        real(self, tile, out)
        out.flat[0] += 1

    monkeypatch.setattr(demo.RowMajor, "read", wrong)
    monkeypatch.setattr(demo, "scans", lambda: [])
    assert demo.main(["--size", "1MiB", "--folder", str(tmp_path / "data")]) == 1


def test_any_box_of_the_generated_array_is_the_same_however_it_is_made(demo: ModuleType) -> None:
    data = demo.generated(1 << 20)
    assert data.nbytes >= 1 << 20
    whole = data.expected(data.shape, tuple(slice(0, n) for n in data.shape))
    box = tuple(slice(n // 3, n // 2) for n in data.shape)
    assert np.array_equal(data.expected(data.shape, box), whole[box])
    flat = whole.reshape(data.view)
    box = (slice(17, 90), slice(3, 11))
    assert np.array_equal(data.expected(data.view, box), flat[box])
    assert len(np.unique(whole)) > 0.9 * whole.size


def test_a_partition_covers_every_element_once(demo: ModuleType) -> None:
    count = np.zeros((7, 10, 3), int)
    for tile in demo.partition(count.shape, (3, 4, 2)):
        count[tile.box] += 1
        assert tile.counts == count[tile.box].shape
    assert (count == 1).all()
    assert demo.parse_size("2GiB") == 2 << 30
    assert demo.parse_size("64MiB") == 64 << 20
    assert demo.parse_size("123") == 123
