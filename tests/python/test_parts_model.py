"""Random histories of several processes on one store of parts, beside a model: every version equals the model's.

In a bucket (in memory) threads take the place of processes, and requests fail.

A transaction's message has what it did, so the model repeats the versions in their order. Transactions that met
another one, were given up, or whose process was killed leave no version.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from far_faults import FaultyObjects

import nandarray
from nandarray import parts
from nandarray.parts.blobs import objects as bucket
from nandarray.remote.places import place_of

SPAWN = multiprocessing.get_context("spawn")
PROCESSES, TURNS = 4, 8
SEEDS = range(1000) if os.environ.get("NANDARRAY_DEEP") else range(2)
NAMES = ("a", "b", "g/c")

_Model = dict[str, tuple[np.ndarray[Any, Any], dict[str, Any]]]


def chosen(rng: random.Random, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """A change that these arrays allow."""
    name = rng.choice(NAMES)
    if name not in shapes:
        return {
            "do": "create",
            "name": name,
            "shape": [rng.randint(0, 12), rng.randint(1, 12)],
            "shard": rng.choice([2, 4]),
        }
    value = rng.randint(1, 10**6)
    shape = list(shapes[name])
    do = rng.choice(["write"] * 6 + ["append", "resize", "attrs", "delete"])
    if do == "write" and 0 not in shape:
        low = [rng.randrange(n) for n in shape]
        box = [[a, rng.randint(a + 1, n)] for a, n in zip(low, shape, strict=True)]
        return {"do": "write", "name": name, "box": box, "value": value, "step": rng.choice([1, 1, 3])}
    if do == "append":
        return {"do": "append", "name": name, "axis": rng.randrange(2), "count": rng.randint(1, 3), "value": value}
    if do == "resize":
        return {"do": "resize", "name": name, "shape": [rng.randint(0, 14), rng.randint(1, 14)]}
    return {"do": "delete" if do == "delete" else "attrs", "name": name, "value": value}


def apply(store: Any, op: dict[str, Any]) -> None:
    """Do it to a store."""
    name = op["name"]
    if op["do"] == "create":
        sides = (op["shard"],) * 2
        store.create(name, op["shape"], "i8", shards=sides, building_block=sides, fill_value=-1)
    elif op["do"] == "write":
        store[name][tuple(slice(*one, op["step"]) for one in op["box"])] = op["value"]
    elif op["do"] == "append":
        shape = list(store[name].shape)
        shape[op["axis"]] = op["count"]
        store[name].append(np.full(shape, op["value"]), op["axis"])
    elif op["do"] == "resize":
        store[name].resize(op["shape"])
    elif op["do"] == "attrs":
        store[name].attrs["v"] = op["value"]
    else:
        del store[name]


def repeated(model: _Model, op: dict[str, Any]) -> _Model:
    """Do it to the model; return the new one."""
    name, made = op["name"], dict(model)
    if op["do"] == "create":
        made[name] = np.full(op["shape"], -1), {}
        return made
    if name not in made:
        return made  # two that began at one version may both delete it, the later one after other changes
    if op["do"] == "delete":
        del made[name]
        return made
    old, attrs = made[name]
    new = old.copy()
    if op["do"] == "write":
        new[tuple(slice(*one, op["step"]) for one in op["box"])] = op["value"]
    elif op["do"] == "append":
        shape = list(old.shape)
        shape[op["axis"]] = op["count"]
        new = np.concatenate([old, np.full(shape, op["value"])], op["axis"])
    elif op["do"] == "resize":
        new = np.full(op["shape"], -1)
        both = tuple(slice(0, min(a, b)) for a, b in zip(old.shape, new.shape, strict=True))
        new[both] = old[both]
    else:
        attrs = {**attrs, "v": op["value"]}
    made[name] = new, attrs
    return made


def lasting(ops: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out arrays that a transaction made and deleted: one of the same name that another has made stays."""
    found: list[dict[str, Any]] = []
    for op in ops:
        made = [at for at, one in enumerate(found) if (one["do"], one["name"]) == ("create", op["name"])]
        if op["do"] == "delete" and made:
            found[made[-1] :] = [one for one in found[made[-1] :] if one["name"] != op["name"]]
        else:
            found.append(op)
    return found


def live(path: str, seed: int, storage: Any = None) -> None:
    """One process, or thread: transactions, some of which end badly; and what an operator does beside."""
    rng = random.Random(seed)
    for _ in range(TURNS):
        with parts.open_folder(path, "r+", storage=storage) as store:
            if rng.random() < 0.15:
                try:
                    store.compact()
                except nandarray.ConflictError:
                    continue
                store.gc(older_than="10m")
                continue
            tx = store.transaction()
            ops = []
            for _ in range(rng.randint(1, 3)):
                ops.append(chosen(rng, {name: tx[name].shape for name in tx.array_names()}))
                apply(tx, ops[-1])
            end = rng.random()
            if end < 0.1:
                tx.abort()
                continue
            if end < 0.14:
                if storage is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                return  # a thread leaves it there
            try:
                tx.commit(json.dumps(ops))
            except nandarray.ConflictError:
                pass
            finally:
                tx.close()


def same(store: Any, model: _Model, told: str) -> None:
    assert sorted(store.array_names()) == sorted(model), told
    for name, (elements, attrs) in model.items():
        assert dict(store[name].attrs) == attrs, f"{told}, {name}"
        np.testing.assert_array_equal(store[name][...], elements, f"{told}, {name}")


@pytest.mark.parametrize("seed", SEEDS)
def test_histories_of_processes_are_the_models(tmp_path: Path, seed: int) -> None:
    path = str(tmp_path / "sky.nand")
    parts.create(path).close()
    processes = [SPAWN.Process(target=live, args=(path, 1000 * seed + number)) for number in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL), f"seed {seed}: {process.exitcode}"
    verify(path, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("failing", [0.0, 0.03], ids=["whole", "failing"])
def test_histories_in_a_bucket_are_the_models(
    failing: float, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = pytest.importorskip("obstore.store").MemoryStore()
    parts.create("sky.nand", storage=storage).close()
    rng = random.Random(seed)

    def fault(_: int, name: str, __: str) -> str | None:
        if rng.random() >= failing:
            return None
        more = {"put_if_absent": ["there"], "listing": ["late"]}
        return rng.choice(["lost", "refused", *more.get(name, [])])

    monkeypatch.setattr(bucket, "_PAUSE_S", 0.001)
    monkeypatch.setenv("NANDARRAY_CACHE", str(tmp_path))
    objects = FaultyObjects(place_of("sky.nand", storage).objects, fault)
    with ThreadPoolExecutor(PROCESSES) as pool:
        list(pool.map(lambda number: live("sky.nand", 1000 * seed + number, objects), range(PROCESSES)))
    verify("sky.nand", seed, storage)


def verify(path: str, seed: int, storage: Any = None) -> None:
    """Compare each version with the model's."""
    model: _Model = {}
    with parts.open_folder(path, "r+", storage=storage) as store:
        versions = store.versions()
        assert [one["version"] for one in versions] == list(range(1, store.version + 1)), f"seed {seed}"
        for one in versions:
            if one["message"] not in ("created", "compact"):
                for op in lasting(json.loads(one["message"])):
                    model = repeated(model, op)
            same(store.at(version=one["version"]), model, f"seed {seed}, version {one['version']}")
        assert store.check()["ok"], f"seed {seed}"
        store.expire_versions(keep=1, older_than=0)
        store.gc(older_than=0, jobs_older_than=0)
        assert store.check()["ok"], f"seed {seed}"
        same(store, model, f"seed {seed}, the newest")
