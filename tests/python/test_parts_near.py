"""Programs at the workers of a client: the result is that of the same array in one file, to the bit."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray import parts, programs
from nandarray.parts import away, dividing, near
from nandarray.parts.blobs.files import Files
from nandarray.parts.crew import Crew, Held

SHAPE = (300, 130)


def numbers(dtype: str) -> Any:
    found = np.random.default_rng(7).standard_normal(SHAPE) * 1000
    return (np.abs(found) if dtype[0] == "u" else found).astype(dtype)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same arrays in one file, and in a store of parts whose shards are cut along both axes."""
    folder = tmp_path_factory.mktemp("near")
    with nandarray.open(folder / "one.nand", "w") as one, parts.create(folder / "sky.nand") as sky:
        for dtype in ("f4", "f8", "i2", "u8", "c8"):
            one.create(dtype, SHAPE, dtype, building_block=(32, 32), data=numbers(dtype))
            sky.create(dtype, SHAPE, dtype, shards=(64, 96), building_block=(32, 32), data=numbers(dtype))
            sky.flush()  # a part of its own
        yield one, sky


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let units be as small as they can be."""
    monkeypatch.setattr(dividing, "_UNIT_BYTES", 1)


def same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key, one in wanted.items():
            same(found[key], one)
        return
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.dtype, found.shape, found.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes())


def spread(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = x[max(i - 1, 0), j] + x[i, max(j - 2, 0)]


def total(x: Any, out: Any) -> None:
    out[0, 0] = x.sum()


#: Calls for each dtype; the others compile functions, and are for two.
CALLS = {
    "sum": lambda a, **o: a.reduce("sum", **o),
    "mean of a part": lambda a, **o: a.reduce("mean", key=np.s_[7:290:3, 5:120], **o),
    "sum of columns": lambda a, **o: a.reduce("sum", 0, **o),
}
MORE = {
    "sum of rows": lambda a, **o: a.reduce("sum", 1, **o),
    "square": lambda a, **o: a.reduce(lambda x, y: x + y * y, **o),
    "filter": lambda a, **o: a.filter(lambda x: abs(x) > 500, **o),
    "map": lambda a, **o: a.map_blocks(lambda x, by: x * by, by=3, key=np.s_[1:, ::2], **o),
    "two": lambda a, **o: a.map_blocks(lambda x, y: x + y, numbers(a.name), **o),
    "place": lambda a, **o: a.reduce("argmax", **o),
    "median": lambda a, **o: a.reduce("median", **o),
    "variance": lambda a, **o: a.reduce("var", 1, **o),
    "top": lambda a, **o: a.reduce("top", k=7, **o),
    "places": lambda a, **o: a.filter("filter_index", low=10, high=900, **o),
    "boxes": lambda a, **o: a.map_blocks(total, block=(50, 40), chunks=(1, 1), **o),
    "around": lambda a, **o: a.map_blocks(spread, block=(50, 40), depth=(1, 2), boundary="reflect", **o),
    "round": lambda a, **o: a.map_blocks(spread, block=(50, 40), depth=3, boundary="periodic", key=np.s_[4:, 3:], **o),
}


@pytest.mark.parametrize(("dtype", "workers"), [("f4", 3), ("f8", 1), ("i2", 2), ("u8", 1), ("c8", 2)])
@pytest.mark.usefixtures("small")
def test_results_are_those_of_one_file(both: Any, dtype: str, workers: int) -> None:
    one, sky = both
    with ThreadPoolExecutor(workers) as client:
        for name, call in (CALLS | MORE if dtype in ("f4", "i2") else CALLS).items():
            options = {} if name in ("boxes", "around", "round", "median") else {"task_bytes": 2000}
            with contextlib.nullcontext(name):
                same(call(sky[dtype], client=client, **options), call(one[dtype], **options))


@pytest.mark.usefixtures("small")
def test_compressed_arrays_are_cut_along_their_blocks(tmp_path: Path) -> None:
    data = np.random.default_rng(3).standard_normal((9000, 131)) * 1e5
    options = {"dtype": "f8", "building_block": (777, 131), "compression": "lz4", "data": data}
    program, runs = programs.get("sum", dtype="float64"), []
    with (
        nandarray.open(tmp_path / "one.nand", "w") as one,
        parts.create(tmp_path / "sky.nand") as sky,
        ThreadPoolExecutor(2) as client,
    ):
        one.create("a", data.shape, **options)
        sky.create("a", data.shape, **options, shards=(2331, 131))
        for array, where in ((one["a"], None), (sky["a"], None), (sky["a"], client)):
            runs.append(nandarray.offload(program, [array], client=where))
    assert len({(np.float64(run.result).tobytes(), run.account.tasks) for run in runs}) == 1, runs


@pytest.mark.usefixtures("small")
def test_an_account_says_who_did_what(both: Any) -> None:
    one, sky = both
    program = programs.get("sum", dtype="float64")
    alone = nandarray.offload(program, [one["f8"]], task_bytes=700)
    with ThreadPoolExecutor(2) as client:
        run = nandarray.offload(program, [sky["f8"]], task_bytes=700, client=client)
    same(run.result, alone.result)
    account, units = run.account, run.account.tasks // 16
    assert (account.tasks, account.bytes_in) == (alone.account.tasks, alone.account.bytes_in)
    (worker,) = account.workers
    assert (worker.where, worker.tasks, worker.read) == ("shared", account.tasks, one["f8"].nbytes)
    # Of each run of tasks its state, 560 bytes, and no elements.
    assert units >= 3
    assert account.traffic.received == worker.received == -(-account.tasks // 16) * 560
    assert account.traffic.sent == worker.sent > 0


@pytest.mark.usefixtures("small")
def test_outputs_go_into_arrays_and_programs_run_whole_where_they_must(both: Any, tmp_path: Path) -> None:
    one, _ = both
    pair = [one["i2"].map_blocks(lambda x: x), np.sort(numbers("i2"), axis=None)]
    with parts.create(tmp_path / "sky.nand") as sky, ThreadPoolExecutor(2) as client:
        sky.create("x", SHAPE, "i2", shards=(64, 96), building_block=(32, 32), data=pair[0])  # in a part that is open
        sky["x"].map_blocks(lambda x: x + 1, out="y", client=client, task_bytes=700)
        same(sky["y"][...], pair[0] + 1)
        sky["x"].map_blocks(spread, block=(50, 40), out=sky["y"], client=client)
        same(sky["y"][...], one["i2"].map_blocks(spread, block=(50, 40)))
        sky["sorted"] = pair[1]
        merged = programs.get("merge", dtype="int16")  # a task goes on where the one before ended
        run = nandarray.offload(merged, [sky["sorted"], sky["sorted"]], client=client)
        same(run.result, np.sort(np.concatenate([pair[1]] * 2), kind="stable"))
        root = programs.get("sqrt", dtype="float64").on(sky["x"].astype("f8"))
        same(
            nandarray.offload(programs.get("sum", dtype="float64").on(root), client=client).result,
            programs.get("sum", dtype="float64").on(programs.get("sqrt", dtype="float64").on(pair[0] * 1.0)).run(),
        )
        same(sky["x"].view((SHAPE[1], SHAPE[0])).reduce("sum", client=client), one["i2"].reduce("sum"))
        sky["point"] = np.array(4.0)
        assert sky["point"].reduce("sum", client=client) == 4
        assert sky["x"].reduce("sum", key=np.s_[:0], client=client) == 0


def test_what_an_output_does_not_fill_stays(tmp_path: Path) -> None:
    wanted = np.full((6, 10), 7, "i4")
    wanted.reshape(-1)[:13] = range(13)
    stores = nandarray.open(tmp_path / "one.nand", "w"), parts.create(tmp_path / "sky.nand")
    with stores[0] as one, stores[1] as sky, ThreadPoolExecutor(2) as client:
        for store, options in ((one, {}), (sky, {}), (sky, {"client": client})):
            if "x" not in store:
                store["x"] = np.arange(100, dtype="i4")
                store["to"], store["box"] = np.zeros((6, 10), "i4"), np.zeros((8, 12), "i4")
            store["to"][...] = store["box"][...] = 7
            for target in (store["to"], nandarray.Box(store["box"], np.s_[1:7, 2:])):
                assert store["x"].filter(lambda v: v < 13, out=target, **options) == 13
            same(store["to"][...], wanted)
            same(store["box"][1:7, 2:], wanted)
            same(store["box"][0], np.full(12, 7, "i4"))
            view = store["to"].view((10, 6))
            assert store["x"].filter(lambda v: v < 3, out=view, **options) == 3
            same(store["to"][...], wanted)


def test_the_first_failure_is_reported_and_what_cannot_be_is_refused(both: Any) -> None:
    one, sky = both

    @nandarray.program
    def fails(x: nandarray.Block[float64], out: nandarray.Out[float64]) -> None:  # noqa: F821
        for i in range(len(x)):
            out[i] = x[int(abs(x[i]) * 1e6) if abs(x[i]) > 2500 else i]

    with ThreadPoolExecutor(3) as client:
        errors = []
        for array, options in ((one["f8"], {}), (sky["f8"], {"client": client})):
            with pytest.raises(nandarray.ProgramFailedError) as error:
                nandarray.offload(fails, [array], task_bytes=400, **options)
            errors.append((error.value.task, str(error.value)))
        assert errors[0] == errors[1]
        with pytest.raises(nandarray.InvalidError, match=r"must not be one file"):
            one["f8"].reduce("sum", client=client)
        assert nandarray.offload(programs.get("sum", dtype="float64"), [np.ones(3)], client=client).result == 3
        for others in ([sky["f8"], one["f8"]], [one["f8"], sky["f8"]]):
            with pytest.raises(nandarray.InvalidError, match=r"another store|must not be one file"):
                others[0].map_blocks(lambda x, y: x + y, others[1], client=client)
    with pytest.raises(nandarray.InvalidError, match=r"client must be .*, not str"):
        sky["f8"].reduce("sum", client="tcp://here")


class Two(Crew):
    """Two workers, of which one sees the store; they work in this process."""

    def __init__(self, held: frozenset[str]) -> None:
        self.held, self.asked, self.spoilt = held, list[Any](), False

    def workers(self) -> set[str]:
        return {"sees", "sees not"}

    def size(self) -> int:
        return 2

    def ask(self, function: Any, *given: Any) -> Any:
        return {"sees": Held(frozenset(), sees_store=True), "sees not": Held(self.held, sees_store=False)}

    def submit(self, worker: Any, function: Any, *given: Any) -> Any:
        self.asked.append(worker)
        done = Future[Any]()
        if worker == "sees" and not self.spoilt:
            done.set_result((worker, function(*given)))
        else:
            done.set_exception(nandarray.CorruptError(f"{worker}: damaged"))
        return done

    def wait(self, given: Any, seconds: float) -> Any:
        return list(given)

    def cancel(self, given: Any) -> None: ...


@pytest.mark.usefixtures("small")
def test_work_goes_where_the_store_is_seen(both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one, sky = both
    two = Two(frozenset())
    monkeypatch.setattr(away, "crew_of", lambda _: two)
    same(sky["f8"].reduce("sum", client=two, task_bytes=700), one["f8"].reduce("sum", task_bytes=700))
    assert set(two.asked) == {"sees"}
    two.held = frozenset(part.stem for part in (Path(sky.path) / "parts").iterdir())
    same(sky["f8"].reduce("sum", client=two), one["f8"].reduce("sum"))
    assert set(two.asked) == {"sees", "sees not"}
    two.spoilt = True  # the copies, and then the store as well: the error names the damage, not the lack of workers
    with pytest.raises(nandarray.CorruptError, match="sees: damaged"):
        sky["f8"].reduce("sum", client=two)


# --- Dask -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def cluster(workers: int) -> Any:
    """A cluster of processes on this machine, whose units of work are small."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with distributed.LocalCluster(**options) as made, distributed.Client(made) as client:
        yield client


def arm() -> None:
    """Let this process be killed when it begins to work."""
    near.move = lambda *_: os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("small")
def test_work_goes_to_the_parts_and_elsewhere_when_a_worker_is_killed(both: Any, tmp_path: Path) -> None:
    one, sky = both
    program = programs.get("sum", dtype="float64")
    wanted = nandarray.offload(program, [one["f8"]], task_bytes=700).result

    def run(**options: Any) -> Any:
        found = nandarray.offload(program, [sky["f8"]], task_bytes=700, client=client, **options)
        same(found.result, wanted)
        return found.account.workers

    with cluster(3) as client:
        assert {one.where for one in run()} == {"shared"}
        names = sorted(client.scheduler_info()["workers"])
        folder = tmp_path / "copies"
        shutil.copytree(Path(sky.path) / "parts", folder)
        client.register_plugin(parts.NodePlugin({names[1]: [folder]}))
        (worker,) = run()
        assert (worker.worker, worker.where, worker.read) == (names[1], "near", one["f8"].nbytes)
        client.run(arm, workers=[names[1]])
        moved = run()
        assert {one.where for one in moved} == {"moved"}
        assert names[1] not in {one.worker for one in moved}
        client.run(arm, workers=[names[0]])  # beside workers that hold nothing
        assert names[0] not in {one.worker for one in run()}
        files, sky._source.files = sky._source.files, Files("/not/here")
        try:
            with pytest.raises(nandarray.PartError, match=r"part [0-9a-f]{32} with shards \[0.*\] of array 'f8' must "):
                run()
        finally:
            sky._source.files = files


def test_a_copy_that_is_damaged_is_read_elsewhere(both: Any, tmp_path: Path) -> None:
    _, sky = both
    folder = tmp_path / "copies"
    shutil.copytree(Path(sky.path) / "parts", folder)
    for part in folder.iterdir():
        data = bytearray(part.read_bytes())
        data[len(data) // 2 :: 64] = bytes(len(data[len(data) // 2 :: 64]))
        part.write_bytes(data)
    with cluster(2) as client:
        name = sorted(client.scheduler_info()["workers"])[0]
        client.register_plugin(parts.NodePlugin({name: folder}))
        run = nandarray.offload(programs.get("sum", dtype="float64"), [sky["f8"]], client=client)
    assert [one.where for one in run.account.workers] == ["moved"]
    assert run.result == numbers("f8").sum() or abs(run.result - numbers("f8").sum()) < 1e-6


@pytest.mark.parametrize("wrong", [3, {"a": 3}, [3]])
def test_folders_are_paths(wrong: Any) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(nandarray.InvalidError, match="folders must be"):
        parts.NodePlugin(wrong)
