"""Registers and spills of every kernel: the recorded table (``python tools/cuda.py --record``) and its budget.

``make cuda`` compiles and compares with the same table.
"""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_kernel_is_within_its_budget() -> None:
    spec = importlib.util.spec_from_file_location("cuda_tool", ROOT / "tools" / "cuda.py")
    assert spec
    assert spec.loader
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    recorded = json.loads(tool.RECORDED.read_text())
    kernels = {name for source in tool.SOURCES for name in re.findall(r"__global__ void (\w+)", source.read_text())}
    assert recorded["registers"].keys() == kernels, "python tools/cuda.py --record"
    for kernel, by_architecture in recorded["registers"].items():
        assert by_architecture.keys() == set(tool.ARCHITECTURES), kernel
        assert max(by_architecture.values()) <= tool.REGISTERS_MAX, kernel
    assert recorded["spilled_bytes"] == 0
