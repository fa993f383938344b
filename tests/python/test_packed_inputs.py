"""Programs read arrays of packed integers as VarVE streams: beside NumPy, on both clocks, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nandarray
from nandarray import Box, InvalidError, Program, ProgramError
from nandarray.device import load

pytest.importorskip("ziglang")

OPEN = {"bitpack": "nd_fpstream(0, part)", "varwidth": "nd_vpstream(0, part)"}


def copies(dtype: str, packed: str, more: str = "", extra: str = "") -> Program:
    """A program that gives every value of a packed input, with its reference added, as 64-bit numbers."""
    return Program.from_c(
        f"""
#include <nandarray.h>
#include <nandarray_varve.h>

ND_PROGRAM("name": "copies", "kind": "block",
           "inputs": [{{"name": "x", "dtype": "{dtype}", "packed": "{packed}"{more}}}{extra}],
           "outputs": [{{"name": "y", "dtype": "uint64"}}])

int64_t nd_block(nd_args *args) {{
    uint64_t *y = ND_OUTPUT(args, 0, uint64_t);
    size_t used = 0;
    for (nd_each_packed(part, args, 0)) {{
        {OPEN[packed]};
        for (unsigned long left = part->count; left > 0;) {{
            size_t vl;
            __asm__ volatile("vsetvli %0, %1, e64, m2, ta, ma" : "=r"(vl) : "r"(left));
            nd_unpack(2, 0);
            __asm__ volatile("vadd.vx v2, v2, %0\\n vse64.v v2, (%1)" : : "r"(part->reference), "r"(y + used)
                             : "memory");
            used += vl;
            left -= vl;
        }}
        nd_erstream(0);
    }}
    if (used != args->inputs[0].shape[0]) return -1;
    ND_SET_USED(args, 0, used, uint64_t);
    return 0;
}}
""",
        target="rv64gcv_zvl256b",
    )


# The guide's program: keeps the values below a limit, and never unpacks the others into full width.
CHEAP = (Path(__file__).parents[2] / "docs" / "guides" / "packed-arrays.md").read_text().split('"""')[1]


def below(dtype: str) -> Program:
    """A program that keeps the elements below a limit, for any dtype: with the guide's shortcut, or by its sums.

    Elements and limit are numbers of int64; those of uint64 have their highest bit turned.
    """
    bits, signed = 8 * np.dtype(dtype).itemsize, np.dtype(dtype).kind == "i"
    most = np.iinfo(dtype).max
    return Program.from_c(
        f"""
#include <nandarray.h>
#include <nandarray_varve.h>

ND_PROGRAM("name": "below", "kind": "block",
           "inputs": [{{"name": "x", "dtype": "{dtype}", "packed": "bitpack"}}],
           "outputs": [{{"name": "kept", "dtype": "int64", "exact": false}}],
           "scalars": [{{"name": "limit", "dtype": "int64"}}])

int64_t nd_block(nd_args *args) {{
    int64_t *kept = ND_OUTPUT(args, 0, int64_t);
    size_t used = 0;
    for (nd_each_packed(part, args, 0)) {{
        size_t first = used;
        unsigned long left = part->count;
        int64_t reference = ({dtype}_t)part->reference;
        /* In 64 bits every sum may wrap, as the unit's own sums do. */
        int wraps = {bits} == 64 || (1LL << part->width % 64) - 1 > (int64_t){most}ull - reference;
        int64_t lacking = wraps ? 0 : reference;
        if ({int(not signed)} && {bits} == 64) reference ^= INT64_MIN;
        nd_frstream(0, (const uint8_t *)part + part->bits, part->skip + part->count,
                    part->width == 64 ? 64 | ND_SIGNED : part->width);
        nd_crstream(0, part->skip);
        nd_fwstream(1, kept + used, left, 64 | ND_SIGNED);
        nd_vcpy(2, nd_scalar_i64(args, 0) - lacking);
        if (wraps) {{
            nd_vcpy(3, reference);
            nd_vcpy(4, {64 - bits if signed else (1 << bits) - 1}ull);
        }}
        while (left > 0) {{
            nd_vunpack(1, 0, 64);
            if (wraps) {{
                nd_varve_vv(ND_VARVE_ADD, 1, 1, 3);
                nd_varve_vv({"ND_VARVE_ASL" if signed else "ND_VARVE_AND"}, 1, 1, 4);
                if ({int(signed)}) nd_varve_vv(ND_VARVE_ASR, 1, 1, 4);
            }}
            nd_varve_vv(ND_VARVE_CMPLT, 0, 1, 2);
            used += nd_vpackm(1, 1);
            unsigned long n = nd_vrcnum();
            nd_crstream(0, n);
            left -= n;
        }}
        nd_ewstream(1);
        nd_erstream(0);
        for (size_t i = first; i < used; i++) kept[i] += lacking;
    }}
    ND_SET_USED(args, 0, used, int64_t);
    return 0;
}}
""",
        target="rv64gcv_zvl256b",
    )


def across(dtype: str) -> list[np.ndarray]:
    """Frames whose references wrap, and others: values at both ends of a range, read with sign and without."""
    span, unsigned = np.iinfo(dtype), f"u{np.dtype(dtype).itemsize}"
    least, most = int(span.min), int(span.max)
    ends = [
        [5] * 60 + [most] * 4,
        [most] * 4 + [5] * 60,
        [least] * 3 + [most] * 3 + [least + 1] * 9,
        [*range(most - 60, most + 1), *range(least, least + 60)],
        [most - 90, most],
        [most] * 9,
        [least, most],
        [0, 1, 2**31 % (most + 1)],
    ]
    # The stored bits of -30 to 29 lie at both ends of the unsigned range.
    ends.append(np.arange(-30, 30).astype(unsigned).view(dtype).tolist())
    return [np.array(values, dtype) for values in ends]


def made(dtype: str, count: int, seed: int) -> np.ndarray:
    """Frames of every kind: of few bits, of one value, of all bits, around an offset."""
    chance = np.random.default_rng(seed)
    span = np.iinfo(dtype)
    parts = [chance.integers(0, 100, count), np.full(count, 7), chance.integers(span.min, span.max, count, dtype=dtype)]
    parts.append(chance.integers(span.max - 90, span.max, count, dtype=dtype))
    return np.concatenate([part.astype(dtype) for part in parts])


@pytest.mark.parametrize("packed", ["bitpack", "varwidth"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "int64"])
def test_values_are_those_that_numpy_reads(packed: str, dtype: str, tmp_path: Path) -> None:
    values = made(dtype, 9000, 3)
    program = copies(dtype, packed)
    unsigned = f"u{values.itemsize}"
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        array = store.create("x", values.shape, dtype, compression=packed, building_block=(7001,), fill_value=5)
        array[:20_000] = values[:20_000]
        store.flush()
        array[15_000:15_010] = values[15_000:15_010]  # in the write buffer; the last blocks were never written
        expected = array[...]
        assert np.array_equal(expected[:20_000], values[:20_000])
        assert np.all(expected[20_000:] == 5)
        for form in ("interpreted", "translated"):
            found = array.offload(program, form=form)
            assert np.array_equal(found.astype(unsigned), expected.view(unsigned))
        run = nandarray.offload(program, [Box(array, np.s_[3:29_000])])
        part = run.outputs["y"].astype(unsigned)
        assert np.array_equal(part, expected[3:29_000].view(unsigned))


@pytest.mark.parametrize("form", ["interpreted", "translated"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"])
def test_references_that_wrap(dtype: str, form: str, tmp_path: Path) -> None:
    unsigned = f"u{np.dtype(dtype).itemsize}"
    turned = 1 << 63 if dtype == "uint64" else 0
    all_values, small = copies(dtype, "bitpack"), below(dtype)
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        for number, values in enumerate(across(dtype)):
            array = store.create(f"x{number}", data=values, compression="bitpack")
            store.flush()
            assert np.array_equal(array.offload(all_values, form=form).astype(unsigned), values.view(unsigned))
            numbers = [int(value) for value in values]
            for limit in sorted({0, 6, min(*numbers, np.iinfo(dtype).max - 1) + 1, max(numbers)}):
                found = array.offload(small, limit=limit - turned, form=form).tolist()
                assert [value + turned for value in found] == [value for value in numbers if value < limit]


@pytest.mark.parametrize("form", ["interpreted", "translated"])
def test_the_guides_program_over_references_that_wrap(form: str, tmp_path: Path) -> None:
    program = Program.from_c(CHEAP, target="rv64gcv_zvl256b")
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        for number, values in enumerate(across("uint32")):
            array = store.create(f"x{number}", data=values, compression="bitpack")
            store.flush()
            for limit in (0, 1, 6, 2**31 - 1, 2**31, 2**32 - 90, 2**32 - 1, 2**32):
                found = array.offload(program, limit=limit, form=form)
                assert np.array_equal(found, values[values < limit]), (values, limit)


def test_encrypted_arrays_are_opened(tmp_path: Path) -> None:
    values = np.arange(50_000, dtype="uint32") % 777
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        array = store.create("x", data=values, compression="varwidth", encryption_key=bytes(32))
        store.flush()
        assert np.array_equal(array.offload(copies("uint32", "varwidth")), values)


def test_a_filter_takes_packed_values_from_the_flash() -> None:
    chance = np.random.default_rng(5)
    values = (1_000_000 + chance.integers(0, 1 << 12, 400_000)).astype("uint32")
    program = Program.from_c(CHEAP, target="rv64gcv_zvl256b")
    limit = 1_000_100
    device = load("mqsim-ideal").with_({"compute.cores": 4, "compute.clock": "1 GHz"})
    with nandarray.open(device=device, mode="w") as store:
        array = store.create("x", data=values, compression="bitpack")
        store.flush()

        def read_bytes() -> int:
            return int(store.report()["flash"]["read_bytes"]["host"])

        before = read_bytes()
        run = nandarray.offload(program, [array], scalars={"limit": limit})
        packed = read_bytes() - before
        assert np.array_equal(run.outputs["kept"], values[values < limit])
        assert np.array_equal(array[...], values)
        # The pages of the packed values, 12 of 32 bits in whole pages a block, each once.
        assert packed == read_bytes() - before - packed
        assert values.nbytes * 12 / 32 <= packed <= values.nbytes * 0.51
        assert run.account.bytes_in <= values.nbytes * 0.39


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    program = copies("uint32", "bitpack")
    both = copies("uint32", "bitpack", extra=', {"name": "w", "dtype": "uint32"}')
    values = np.arange(1000, dtype="uint32")
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        plain = store.create("plain", data=values)
        other = store.create("other", data=values, compression="varwidth")
        square = store.create("square", data=values.reshape(20, 50), compression="bitpack")
        good = store.create("good", data=values, compression="bitpack")
        for operand, why in [
            (plain, "the array's compression is not bitpack"),
            (other, "the array's compression is varwidth, not bitpack"),
            (square, "consecutive elements of one dimension"),
            (Box(good, np.s_[::2]), "consecutive elements of one dimension"),
        ]:
            with pytest.raises(InvalidError, match=f"input x is read packed: .*{why}"):
                nandarray.offload(program, [operand])
        with pytest.raises(InvalidError, match="not the caller's data"):
            nandarray.offload(both, [values, plain])
        assert np.array_equal(good.offload(program), values)


@pytest.mark.parametrize(
    ("dtype", "more", "why"),
    [
        ("float32", "", "a record of a packed input must be one integer"),
        ("uint32", ', "record_bytes": 8', "a record of a packed input must be one integer"),
        ("uint32", ', "records": "lines"', "records"),
    ],
)
def test_metadata_that_makes_no_sense(dtype: str, more: str, why: str) -> None:
    with pytest.raises(ProgramError, match=why):
        copies(dtype, "bitpack", more).metadata  # noqa: B018
