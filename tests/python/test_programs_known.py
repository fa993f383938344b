"""Ready-made programs against what others say: standards' vectors, libraries, what codes are for; and wrong inputs."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import google_crc32c
import numpy as np
import program_cases as cases
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs import LZ4, Zstd
from program_runner import ProgramStatus, execute

from nandarray import programs
from nandarray.programs.library.twins.blocks import wal_record
from nandarray.programs.library.twins.graph import pagerank_ranks

Array = np.ndarray[Any, Any]
BAD_SCALAR, BAD_INPUT, OUTPUT_FULL = -1, -2, -3
SEEDS = st.integers(0, 2**32 - 1)


def raw(text: str) -> Array:
    return np.frombuffer(bytes.fromhex(text), np.uint8)


def status(program: Any, inputs: list[Array], scalars: list[Any] | None = None, room: list[int] | None = None) -> int:
    with pytest.raises(ProgramStatus) as caught:
        execute(program, inputs, room, scalars or [])
    return caught.value.status


# FIPS 197, appendix B and C.1; SP 800-38A, F.1.1 and F.5.1.
NIST_KEY = "2b7e151628aed2a6abf7158809cf4f3c"
NIST_TEXT = (
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)
AES = [
    ("aes128_encrypt", NIST_KEY, "", "3243f6a8885a308d313198a2e0370734", "3925841d02dc09fbdc118597196a0b32"),
    (
        "aes128_encrypt",
        "000102030405060708090a0b0c0d0e0f",
        "",
        "00112233445566778899aabbccddeeff",
        "69c4e0d86a7b0430d8cdb78070b4c55a",
    ),
    (
        "aes128_encrypt",
        NIST_KEY,
        "",
        NIST_TEXT,
        "3ad77bb40d7a3660a89ecaf32466ef97f5d3d58503b9699de785895a96fdbaaf"
        "43b1cd7f598ece23881b00e3ed0306887b0c785e27e8ad3f8223207104725dd4",
    ),
    (
        "aes128_ctr",
        NIST_KEY,
        "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
        NIST_TEXT,
        "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff"
        "5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee",
    ),
]


@pytest.mark.parametrize(("name", "key", "start", "plain", "cipher"), AES)
def test_aes_is_the_standard(name: str, key: str, start: str, plain: str, cipher: str) -> None:
    scalars = [
        *programs.key_scalars(bytes.fromhex(key)),
        *(programs.key_scalars(bytes.fromhex(start)) if start else ()),
    ]
    back = "aes128_decrypt" if name == "aes128_encrypt" else name
    blocks = len(plain) // 32
    for cuts in ([], list(range(1, blocks))):
        assert execute(programs.get(name), [raw(plain)], scalars=scalars, cuts=cuts)[0].tobytes().hex() == cipher
        assert execute(programs.get(back), [raw(cipher)], scalars=scalars, cuts=cuts)[0].tobytes().hex() == plain
    assert programs.twin(name)(raw(plain), *scalars)[0].tobytes().hex() == cipher


@given(seed=SEEDS)
@settings(max_examples=15)
def test_lz4_undoes_what_a_library_did(seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks, wanted = b"", b""
    for _ in range(int(rng.integers(1, 5))):
        words = rng.integers(0, 256, (int(rng.integers(1, 50)), int(rng.integers(1, 40))), np.uint8)
        data = words[rng.integers(0, len(words), int(rng.integers(1, 2000)))].tobytes()
        packed = LZ4().encode(data)[4:]
        blocks += struct.pack("<I", len(packed)) + packed
        wanted += data
    given_blocks = np.frombuffer(blocks, np.uint8)
    assert execute(programs.get("lz4_decompress"), [given_blocks])[0].tobytes() == wanted
    assert programs.twin("lz4_decompress")(given_blocks)[0].tobytes() == wanted


@given(seed=SEEDS)
@settings(max_examples=40)
def test_spoilt_lz4_is_refused_or_stays_within_its_room(seed: int) -> None:
    (blocks,), _ = cases.case("lz4_decompress", None, {}, seed)
    rng = np.random.default_rng(seed)
    spoilt = blocks.copy()
    if len(spoilt):
        spoilt[rng.integers(0, len(spoilt), 3)] = rng.integers(0, 256, 3)
    try:
        (wanted,) = programs.twin("lz4_decompress")(spoilt)
    except ValueError:
        assert status(programs.get("lz4_decompress"), [spoilt]) == BAD_INPUT
        return
    except OSError:
        assert status(programs.get("lz4_decompress"), [spoilt]) == BAD_INPUT
        return
    assert execute(programs.get("lz4_decompress"), [spoilt])[0].tobytes() == wanted.tobytes()


def test_crc32c_is_a_librarys() -> None:
    data = np.random.default_rng(1).integers(0, 256, 40 * 64, np.uint8)
    (found,) = execute(programs.get("crc32c", block_bytes=64), [data], cuts=[7, 11])
    assert found.tolist() == [google_crc32c.value(block.tobytes()) for block in data.reshape(-1, 64)]


@pytest.mark.parametrize("size", [8, 32, 40, 4096])
def test_the_hash_is_xxh64(size: int) -> None:
    """A frame of Zstandard ends with the lower half of its content's XXH64."""
    data = np.random.default_rng(2).integers(0, 256, 9 * size, np.uint8)
    (found,) = execute(programs.get("deduplicate", block_bytes=size), [data])
    for block, mine in zip(data.reshape(-1, size), found, strict=True):
        assert Zstd(checksum=True).encode(block.tobytes())[-4:] == int(mine).to_bytes(8, "little")[:4]


@pytest.mark.parametrize("disks", [3, 5])
def test_raid5_survives_any_disk(disks: int) -> None:
    data = np.random.default_rng(3).integers(0, 256, 7 * (disks - 1) * 64, np.uint8)
    held = execute(programs.get("raid5_encode", disks=disks, chunk_bytes=64), [data], cuts=[2, 3])
    for lost in range(disks):
        left = [disk for number, disk in enumerate(held) if number != lost]
        (rebuilt,) = execute(programs.get("raid5_rebuild", disks=disks - 1), left) if disks > 2 else (left[0],)
        assert rebuilt.tobytes() == held[lost].tobytes()


@pytest.mark.parametrize("disks", [2, 4])
def test_raid6_survives_any_two_disks(disks: int) -> None:
    data = list(np.random.default_rng(4).integers(0, 256, (disks, 1000), np.uint8))
    every = [*data, *execute(programs.get("raid6_encode", disks=disks), data)]
    for a, b in itertools.combinations(range(disks + 2), 2):
        left = [disk for number, disk in enumerate(every) if number not in (a, b)]
        found = execute(programs.get("raid6_rebuild", disks=disks), left, scalars=[a, b])
        assert [one.tobytes() for one in found] == [every[a].tobytes(), every[b].tobytes()]


def test_replay_may_be_repeated_and_ends_where_the_log_does() -> None:
    pages = np.zeros((3, 64), np.uint8)
    records = [wal_record(number, number % 3, 8 + number, b"abcdefghij"[: number % 11]) for number in range(1, 12)]
    program = programs.get("wal_replay", page_bytes=64)
    whole = np.frombuffer(b"".join(records), np.uint8)
    (once,) = execute(program, [pages, whole])
    (twice,) = execute(program, [once, whole], cuts=[1])
    assert once.tobytes() == twice.tobytes()
    ends = np.cumsum([0, *map(len, records)])
    for size in range(len(whole) + 1):
        full = int(np.searchsorted(ends, size, "right")) - 1
        (cut,) = execute(program, [pages, whole[:size]])
        (wanted,) = programs.twin("wal_replay", page_bytes=64)(pages, whole[: ends[full]])
        assert cut.tobytes() == wanted.tobytes()


def test_parsed_rows_go_on_to_select_and_filter() -> None:
    """The pipeline of the dissertation: parse, filter, select."""
    text = b"1|AIR|1994-03-05|0.04\n2|RAIL|1995-01-01|0.10\n3|AIR|1994-12-31|0.07\nx|AIR|1994-01-01|0.01\n"
    fields = ("int", "bytes8", "date", "decimal2")
    (rows,) = execute(programs.get("parse", fields=fields), [np.frombuffer(text, np.uint8)], scalars=[ord("|")])
    assert rows.dtype == programs.row_dtype(fields)
    assert rows["bad"].tolist() == [0, 0, 0, 1]
    size = rows.dtype.itemsize
    offset = rows.dtype.fields["c2"][1]
    limits = [int(np.datetime64(day, "D").astype(int)) for day in ("1994-01-01", "1994-12-31")]
    (kept,) = execute(programs.get("filter_rows", row_bytes=size, offset=offset), [rows], scalars=limits)
    columns = tuple((rows.dtype.fields[name][1], 8) for name in ("c0", "c3"))
    (found,) = execute(programs.get("select", row_bytes=size, columns=columns), [kept])
    assert found.view(np.int64).reshape(-1, 2).tolist() == [[1, 4], [3, 7], [0, 1]]


def test_a_pagerank_of_steps_is_the_pagerank() -> None:
    rng = np.random.default_rng(5)
    edges = np.unique(np.r_[rng.integers(0, 50, (400, 2)), np.c_[np.arange(50), (np.arange(50) + 1) % 50]], axis=0)
    edges = edges[np.argsort(edges[:, 1], kind="stable")].astype(np.uint32)
    out = np.bincount(edges[:, 0], minlength=50)
    matrix = np.zeros((50, 50))
    np.add.at(matrix, (edges[:, 1], edges[:, 0]), 1 / out[edges[:, 0]])
    rank = wanted = np.full(50, 1 / 50)
    for _ in range(10):
        (rows,) = execute(programs.get("pagerank_step"), [edges, rank / out], cuts=[100, 101, 300], workers=2)
        rank = pagerank_ranks(rows, 50)
        wanted = 0.15 / 50 + 0.85 * matrix @ wanted
    np.testing.assert_allclose(rank, wanted, rtol=1e-13)


def test_a_search_of_levels_is_breadth_first() -> None:
    rng = np.random.default_rng(6)
    edges = rng.integers(0, 200, (500, 2)).astype(np.uint32)
    levels = np.full(200, 2**32 - 1, np.uint32)
    levels[0] = 0
    for level in range(200):
        (found,) = execute(programs.get("bfs_scan"), [edges, levels], scalars=[level], cuts=[250], workers=2)
        if not len(found):
            break
        levels[found] = level + 1
    wanted, frontier, level = {0: 0}, [0], 0
    while frontier:
        level += 1
        frontier = sorted({int(to) for start, to in edges if int(start) in frontier and int(to) not in wanted})
        wanted.update(dict.fromkeys(frontier, level))
    assert {vertex: int(one) for vertex, one in enumerate(levels) if one != 2**32 - 1} == wanted


def logged(offset: int, data: bytes) -> Array:
    return np.frombuffer(wal_record(1, 0, offset, data), np.uint8)


WRONG: list[tuple[str, dict[str, Any], list[Array], list[Any], list[int] | None, int]] = [
    ("histogram", {}, [np.zeros(3)], [1.0, 1.0], None, BAD_SCALAR),
    ("histogram", {}, [np.zeros(3)], [np.nan, 1.0], None, BAD_SCALAR),
    ("histogram", {}, [np.zeros(3)], [0.0, np.inf], None, BAD_SCALAR),
    ("filter", {}, [np.zeros(3)], [0.0, 1.0], [16], OUTPUT_FULL),
    ("filter_rows", {}, [np.zeros(16)], [0, 1], [64], OUTPUT_FULL),
    ("select", {}, [np.zeros(16)], [], [8], OUTPUT_FULL),
    ("parse", {}, [np.frombuffer(b"1\n2\n", np.uint8)], [], [48], OUTPUT_FULL),
    ("raid4_encode", {"disks": 2}, [np.zeros(2), np.zeros(1)], [], None, BAD_INPUT),
    ("raid6_encode", {"disks": 2}, [np.zeros(2), np.zeros(1)], [], None, BAD_INPUT),
    ("raid6_rebuild", {"disks": 2}, [np.zeros(2)] * 2, [1, 1], None, BAD_SCALAR),
    ("raid6_rebuild", {"disks": 2}, [np.zeros(2)] * 2, [1, 4], None, BAD_SCALAR),
    ("raid5_encode", {"chunk_bytes": 8}, [np.zeros(3)], [], [8, 8, 8, 0], OUTPUT_FULL),
    ("replicate", {}, [np.zeros(2)], [], [16, 16, 8], OUTPUT_FULL),
    ("aes128_encrypt", {}, [np.zeros(4)], [0, 0], [16], OUTPUT_FULL),
    ("lz4_decompress", {}, [raw("0300")], [], None, BAD_INPUT),
    ("lz4_decompress", {}, [raw("05000000ffffffffff")], [], None, BAD_INPUT),
    ("lz4_decompress", {}, [raw("04000000") + raw("10410200")], [], None, BAD_INPUT),
    ("lz4_decompress", {"expansion": 1}, [raw("0500000010410100ff")], [], None, BAD_INPUT),
    ("lz4_decompress", {}, [raw("03000080414243")], [], [2], OUTPUT_FULL),
    (
        "wal_replay",
        {"page_bytes": 64},
        [np.zeros(8), np.frombuffer(wal_record(1, 0, 60, b"12345"), "u1")],
        [],
        None,
        -2,
    ),
    (
        "wal_replay",
        {"page_bytes": 64},
        [np.zeros(8), np.frombuffer(wal_record(1, 0, 7, b"1"), "u1")],
        [],
        None,
        BAD_INPUT,
    ),
    ("bfs_scan", {}, [np.array([[0, 2]], "u4"), np.zeros(2, "u4")], [0], None, BAD_INPUT),
    ("pagerank_step", {}, [np.array([[2, 0]], "u4"), np.zeros(2)], [], None, BAD_INPUT),
    ("matvec", {"columns": 3}, [np.zeros(3), np.zeros(2)], [], None, BAD_INPUT),
    ("conv2d", {}, [np.zeros(64 * 64), np.zeros(8)], [], None, BAD_INPUT),
    ("network", {}, [np.zeros(784, "i4"), np.zeros(54409, "i4")], [8], None, BAD_INPUT),
    ("network", {}, [np.zeros(784, "i4"), np.zeros(54410, "i4")], [32], None, BAD_SCALAR),
    ("add", {}, [np.zeros(2), np.zeros(1)], [], None, BAD_INPUT),
    ("kmeans_assign", {"dims": 2}, [np.zeros(4), np.zeros(3)], [], None, BAD_INPUT),
    ("parse", {"fields": ("int",)}, [np.frombuffer(b"1\n", "u1")], [ord("\n")], None, BAD_SCALAR),
    ("parse", {"fields": ("int",)}, [np.frombuffer(b"1\n", "u1")], [ord("\r")], None, BAD_SCALAR),
]


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case[0])
def test_wrong_inputs_have_a_status(case: tuple[Any, ...]) -> None:
    name, parameters, inputs, scalars, room, wanted = case
    assert status(programs.get(name, **parameters), inputs, scalars, room) == wanted


#: Arguments of the forms of signal processors: (low, high) of each, as powers of ten where `True`.
DSP: dict[str, list[tuple[float, float, bool]]] = {
    **dict.fromkeys(("recip", "sqrt", "rsqrt", "log", "log2", "log10", "atan"), [(-30, 30, True)]),
    "div": [(-9, 9, True), (-9, 9, True)],
    "atan2": [(-100, 100, False), (-100, 100, False)],
    "exp": [(-80, 80, False)],
    "exp2": [(-120, 120, False)],
    "exp10": [(-36, 36, False)],
    "pow": [(-2, 2, True), (-4, 4, False)],
    "sin": [(-1e4, 1e4, False)],
    "cos": [(-1e4, 1e4, False)],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", DSP)
def test_errors_of_the_forms_of_signal_processors(name: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    inputs = []
    for low, high, powers in DSP[name]:
        drawn = rng.uniform(low, high, 5000)
        inputs.append((10**drawn if powers else drawn).astype(dtype))
    found = execute(programs.get(name, dtype=dtype, dsp=1), inputs)[0]
    wanted = programs.twin(name, dtype="float64")(*(one.astype("f8") for one in inputs))[0]
    error = np.abs(found.view(dtype).astype("f8") - wanted) / (1 if name in ("sin", "cos") else np.abs(wanted))
    assert error.max() < {"float32": 2e-6, "float64": 2e-14}[dtype]
