"""Recordings of the header for kernels, and their way through modelled drives: counts, results, refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from nandarray.errors import InvalidError, NotFoundError
from nandarray.model.fetch import Accesses, fetches
from nandarray_papers import bam
from nandarray_papers.experiments.bam_analytics import tiles_of

pytestmark = pytest.mark.usefixtures("recorder")


def components(words) -> int:
    """Labels of components as the recorder sums them: the least vertex of each, by a slow second way."""
    vertices, first = int(words[0]), words[2 : int(words[0]) + 3].astype(int)
    neighbours = words[int(words[0]) + 3 :].astype(int)
    label = np.arange(vertices)
    for _ in range(vertices):
        before = label.copy()
        for v in range(vertices):
            for u in neighbours[first[v] : first[v + 1]]:
                label[u] = label[v] = min(label[u], label[v])
        if (before == label).all():
            break
    return int(sum((int(at) + 1) * (v + 1) for v, at in enumerate(label)))


@pytest.mark.parametrize("make", [bam.rmat, bam.uniform])
def test_steps_of_the_cache_give_one_result_and_fewer_reads_and_atomics(make) -> None:
    words = make(7, 8, 3)
    found = {step: bam.record("cc", step, words, lines=512, warps=8).counts for step in ("none", "naive", "optimised")}
    assert {counts["checksum"] for counts in found.values()} == {components(words)}
    assert found["none"]["reads"] == found["none"]["elements"]
    assert found["naive"]["reads"] == found["optimised"]["reads"] == -(-int(words[1]) * 8 // 4096)
    assert found["optimised"]["atomics"] * 3 < 2 * found["naive"]["atomics"]


def test_a_recording_is_the_same_again_and_sorted() -> None:
    one, two = (bam.record("bfs", "optimised", bam.rmat(8, 8, 1), lines=512, warps=8) for _ in range(2))
    assert (one.rows == two.rows).all()
    assert (one.addresses == two.addresses).all()
    keys = [tuple(row[:3]) for row in one.rows.tolist()]
    assert keys == sorted(keys)


def test_lines_that_are_replaced_are_not_fetched() -> None:
    # The recorder compares every sum that the drive holds at the end.
    lines = -(-100_000 * 8 // 4096)
    reads = {how: bam.record("vectoradd", how, 100_000, lines=256, warps=8).counts for how in ("waited", "replaced")}
    assert [reads["waited"]["reads"], reads["replaced"]["reads"]] == [3 * lines, 2 * lines]
    assert reads["waited"]["writes"] == reads["replaced"]["writes"] == lines


def test_tiles_as_lines_fetch_fewer_of_a_square() -> None:
    rows, tiles = (bam.record("tiles", how, 512, 1, lines=512, warps=8) for how in ("rows", "tiles"))
    assert tiles.counts["reads"] < rows.counts["reads"]


def test_a_query_sums_the_rows_that_its_filter_lets_through() -> None:
    table = bam.taxi(5000, 2)
    wanted = int(table[1:3, table[0] >= 30].sum())
    for step in ("none", "naive", "optimised"):
        assert bam.record("table", step, 3, 5000, table, lines=512, warps=8).counts["checksum"] == wanted


def test_every_byte_of_a_recording_moves_once() -> None:
    accesses = bam.record("random", "read", 640, 5, warps=4, lines=0)
    report = fetches([bam.drive("optane-p5800x")] * 3, bam.platform(stripe_bytes=512), accesses)
    assert report["reads"] == 640
    assert report["bytes_read"] == 640 * 512
    assert sum(report["by_device"]) == 640
    assert report == fetches([bam.drive("optane-p5800x")] * 3, bam.platform(stripe_bytes=512), accesses)


def test_tiles_of_vectors_are_loaded_before_they_are_written() -> None:
    made = tiles_of(1_000_000, 5)
    loads, writes = (made.rows[made.rows[:, 3] == kind] for kind in (0, 2))
    assert len(loads) == 2 * len(writes)
    assert loads[:, 0].max() + 2 == writes[:, 0].max()


def test_what_cannot_be_is_refused() -> None:
    one = bam.bulk(4, 512)
    drive = [bam.drive("optane-p5800x")]
    with pytest.raises(InvalidError, match="no device"):
        fetches([], bam.platform(), one)
    with pytest.raises(InvalidError, match="queue_pairs is 0"):
        fetches(drive, bam.platform(queue_pairs=0), one)
    with pytest.raises(InvalidError, match="unknown field"):
        fetches(drive, bam.platform(colour=1), one)
    rows = one.rows.copy()
    rows[0, 3] = 9
    with pytest.raises(InvalidError, match="kind 9"):
        fetches(drive, bam.platform(), dataclasses.replace(one, rows=rows))
    with pytest.raises(InvalidError, match="have 4 sizes"):
        fetches(drive, bam.platform(), Accesses(one.rows, one.addresses[:2], one.bytes, {}))
    with pytest.raises(InvalidError, match="ended with 2"):
        bam.record("sort", "naive", 1)
    with pytest.raises(NotFoundError, match="no path"):
        bam.platform("tpu")
