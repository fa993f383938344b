"""Promise: programs of one run may have cores of their own, whose pages go from core to core and not through DRAM.

Results are those of the same programs one after the other, whatever cores, buffers and task sizes are; a page for which
a core has no room goes through DRAM.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray import programs
from nandarray.device import Description
from nandarray.errors import InvalidError
from nandarray_papers.assasin import pipelines
from nandarray_papers.assasin.pipelines import PAGE_BYTES, Mapping

DATA = np.random.default_rng(3).integers(0, 256, 16 * PAGE_BYTES, np.uint8)


def device(**changes: Any) -> Description:
    return nandarray.devices()["assasin-sb"].with_({"compute." + key: value for key, value in changes.items()})


def run(
    described: Description, build: Any, data: np.ndarray[Any, Any] = DATA, **options: Any
) -> tuple[Any, dict[str, Any]]:
    with nandarray.open(device=described, mode="w", seed=1) as store:
        store["x"] = data
        store.flush()
        result = nandarray.offload(build(store["x"]), **options).result
        return result, dict(store.report()["programs"]["timed_cores"])


@cache
def steps() -> dict[str, nandarray.Program]:
    text = """
    #include <nandarray.h>
    ND_PROGRAM("name": "add", "kind": "stream", "scalars": [{"name": "by", "dtype": "uint32"}],
               "inputs": [{"name": "x", "dtype": "uint8", "record_bytes": 4}],
               "outputs": [{"name": "y", "dtype": "uint8", "record_bytes": 4, "bound": {"per_record": 4}}])
    int64_t nd_stream(nd_args *args) {
        uint32_t by = (uint32_t)nd_scalar_u64(args, 0);
        while (!nd_at_end(0)) nd_store_u32(0, nd_load_u32(0) * 5 + by);
        return 0;
    }
    """
    return {
        "add": nandarray.Program.from_c(text, target="rv32im"),
        "xor": programs.get("raid4_encode", disks=2, kind="stream", target="rv32im"),
    }


def test_pages_of_the_write_path_pass_dram_by(tmp_path: Path) -> None:
    pages = DATA.size * 3 // 2 // PAGE_BYTES
    expected, apart = run(device(cores=3), lambda x: pipelines.write_path(x, Mapping("any"), 16384))
    mapping = Mapping("one feeds two", ((0,), (1, 2)))
    found, connected = run(device(cores=3), lambda x: pipelines.write_path(x, mapping, 16384))
    assert np.array_equal(found, expected)
    assert (apart["pages_between_cores"], connected["pages_between_cores"]) == (0, pages)
    # Out of the core and into the next one: neither way passes DRAM.
    assert apart["dram_bytes"] - connected["dram_bytes"] == 2 * pages * PAGE_BYTES
    with nandarray.open(tmp_path / "wall.nand", mode="w") as store:
        store["x"] = DATA
        store["coded"] = nandarray.offload(pipelines.hamming(), [store["x"]]).result
        assert np.array_equal(store["coded"][...], pipelines.coded(DATA))
        assert np.array_equal(pipelines.write_path(store["x"], mapping, 16384).run(), expected), "cores are ignored"


def test_host_bytes_are_coded_encrypted_programmed_and_read_back() -> None:
    mapping = Mapping("one feeds two", ((0,), (1, 2)))
    with nandarray.open(device=device(cores=3), mode="w", seed=1) as store:
        out = store.create("out", (DATA.size * 3 // 2,), "u1")
        store.flush()
        before = store.clock.now
        nandarray.offload(pipelines.write_path(DATA, mapping, 16384), out=out)
        assert store.clock.now > before
        store.flush()
        store.clock.settle()
        assert sum(store.report()["flash"]["program_bytes"].values()) >= out.nbytes
        cipher = programs.get("aes128_decrypt", kind="stream", target="rv32im")
        plain = nandarray.offload(cipher, [out], pipelines._KEY).result
        assert np.array_equal(plain, pipelines.coded(DATA))


def test_a_network_has_a_layer_per_core() -> None:
    sizes = (64, 48, 32, 16)
    layers = pipelines.network(5, sizes)
    records = np.random.default_rng(5).integers(-128, 128, (96, sizes[0]), np.int8)
    expected = records.astype(np.int32)
    for weights in layers:
        expected = np.clip((expected @ weights.T.astype(np.int32)) >> 7, 0, 127)
    mapping = Mapping("a layer per core", ((0,), (1,), (2,)))
    for one in (mapping, Mapping("any")):
        found, cores = run(
            device(cores=3), lambda x, one=one: pipelines.inference(x, layers, one, 16), records.reshape(-1)
        )
        assert np.array_equal(found, expected.astype(np.int8).reshape(-1))
        assert (cores["pages_between_cores"] > 0) == (one is mapping)
    whole = pipelines.fused(layers)
    found, _ = run(device(cores=3), lambda x: whole.on(x), records.reshape(-1))
    assert np.array_equal(found, expected.astype(np.int8).reshape(-1))


def test_a_network_that_no_scratchpad_holds_is_refused_as_one_program() -> None:
    with pytest.raises(InvalidError, match=r"compute.core.scratchpad_bytes = 65536"):
        run(device(), lambda x: pipelines.fused(pipelines.network(1)).on(x), np.zeros(512, np.int8))


@pytest.mark.parametrize("seed", range(12))
def test_trees_on_any_cores_give_the_same_bytes(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, int(rng.integers(1, 9)) * 8192 + int(rng.integers(0, 1024)) * 8, np.uint8)
    shape = [(str(rng.choice(["add", "xor"])), rng.integers(0, 1 << 30, 2)) for _ in range(int(rng.integers(2, 6)))]
    cores = int(rng.integers(len(shape), 9))
    own = np.array_split(rng.permutation(cores), len(shape))
    pages = int(rng.integers(1, 5))
    buffers = {"cores": cores, "core.streams": 2, "core.stream_pages": pages, "read_ahead": int(rng.integers(4, 9))}

    def tree(x: Any, *, pinned: bool) -> Any:
        made = [x]
        for place, (kind, (low, high)) in enumerate(shape):
            inputs = [made[-1]] if kind == "add" else [made[-1], made[high % len(made)]]
            scalars = {"by": int(low) % 1000} if kind == "add" else {}
            step = steps()[kind].on(*inputs, **scalars).using(task_bytes=int(4096 << (high % 3)))
            made.append(step.using(cores=own[place].tolist()) if pinned else step)
        return made[-1]

    with nandarray.open(tmp_path / "wall.nand", mode="w") as store:
        store["x"] = data
        expected = tree(store["x"], pinned=False).run()
    found, report = run(device(**buffers), lambda x: tree(x, pinned=True), data)
    assert np.array_equal(found, expected), f"seed {seed}: {shape}, {buffers}"
    assert report["pages_between_cores"] > 0


def test_a_task_that_no_buffer_holds_goes_on_through_dram() -> None:
    mapping = Mapping("one feeds one", ((0,), (1,)))
    small = device(cores=2, read_ahead=4, **{"core.streams": 1, "core.stream_pages": 2})
    found, cores = run(small, lambda x: pipelines.write_path(x, mapping, 32768))
    expected, _ = run(device(), lambda x: pipelines.write_path(x, Mapping("any"), 32768))
    assert np.array_equal(found, expected)
    # Each task has 12 pages for a buffer of two.
    assert cores["pages_between_cores"] == DATA.size * 3 // 2 // PAGE_BYTES


def test_a_failed_reader_is_named_and_the_device_serves_on() -> None:
    with nandarray.open(device=device(), mode="w", seed=1) as store:
        store["x"] = DATA
        add = steps()["add"].on(store["x"], by=1).using(cores=[0])
        last = steps()["xor"].on(add, DATA[: DATA.size // 2]).using(cores=[1])
        with pytest.raises(InvalidError, match="raid4_encode: input d0 has"):
            last.run()
        assert np.array_equal(store["x"][...], DATA)


@pytest.mark.parametrize(
    ("described", "cores", "what"),
    [
        (device(), [8], r"compute.cores = 8: program \"add\" is to run on cores \[8\]; there are 0 to 7"),
        (nandarray.devices()["coden"], [0], r"compute.core = none: .* cores \[0\]"),
    ],
)
def test_cores_that_a_device_lacks_are_named(described: Description, cores: list[int], what: str) -> None:
    with pytest.raises(InvalidError, match=what):
        run(described, lambda x: steps()["add"].on(x, by=1).using(cores=cores))


@pytest.mark.parametrize("cores", [[], [1, 1], [-1]])
def test_cores_that_are_none_are_refused_at_once(cores: list[int]) -> None:
    with pytest.raises(InvalidError, match="cores must be"):
        steps()["add"].on(DATA, by=1).using(cores=cores)
