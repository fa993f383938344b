"""VarVE, Figure 8.10: bit packing of two columns of TPC-H, and RAID5 of one, on an in-order core with 256-bit vectors.

The goals were written down before the first run: ratios of full over the conventional form and over pup.
Ratios over scalar depend on the scalar code, of another instruction set and compiler than theirs: they are printed, and
judged, with its instructions a value, and are no goals. Two settings that the text leaves open are those of the
author's public workloads, written down before the first run with them: the place of the data, and RAID5's strips. All
is run again with one thing of the core changed, which tells what the ratios owe to it (table ``causes``): with DRAM
behind caches, as the text says, and more.
"""

from __future__ import annotations

from typing import Any

from nandarray.lab.experiment import Answer, Context, Experiment, Figure, PaperPoint, Parameter, Result
from nandarray_papers.varve.kernels import STRIPS, bitpack, bitpack_data, raid5, raid5_data
from nandarray_papers.varve.measure import BESIDE, FORMS, compiled, measure

__all__ = ["ASSUMPTIONS", "CHANGES", "EXPERIMENT", "causes_of", "run_one"]

#: Kernel: column, bits packed to.
KERNELS = {"bitpack p_brand": ("p_brand", 5), "bitpack o_orderdate": ("o_orderdate", 15), "raid5": None}
#: Changes of the core. The last is of a core with caches: it tells what their port costs.
CHANGES: dict[str, dict[str, Any]] = {
    "as described": {**BESIDE},
    "no step of alignment": {**BESIDE, "vector.t_align": 0},
    "DRAM behind caches": {},
    "DRAM behind caches, by a port that any number of lines pass": {"memory.t_line": 0},
}
ASSUMPTIONS = (
    "The conventional form is RISC-V's V with LMUL = 1, 256 bits: it stands in for SVE. Our scalar code is RV64GC with "
    "Zba, Zbb and Zbs by Clang -O3; theirs is AArch64.",
    "Latencies are those of gem5's ex5_LITTLE (SimdAlu 4, SimdMult 4 with one more for accumulation); VarVE operations "
    "take one cycle more for alignment. A core issues two instructions a cycle, one of them to the vector datapath.",
    "Data lie beside the core, in a memory that answers like a hit of the first-level cache and moves 64 bytes a "
    "cycle: so do those of the author's public workloads, in a stream buffer. Behind the caches of 8.3.1, with the "
    "stride prefetcher of gem5's ex5_LITTLE at the second level, a miss stops the core, and 16 lines of a stream "
    "are fetched ahead; traffic is counted there.",
    "Columns are the first 65,536 rows of scale 0.1 at most.",
)


def run_one(kernel: str, form: str, rows: int, scale: float, change: str = "as described") -> dict[str, Any]:
    """Run one of ``KERNELS`` in one of the four forms, on a column of some rows, with one of :data:`CHANGES`.

    The result has cycles and instructions a value of input, by reason; datapath efficiency.
    """
    packs = KERNELS[kernel]
    if packs is None:
        inputs, wanted = raid5_data(scale, rows)
        text = raid5(form)
    else:
        inputs, wanted = bitpack_data(*packs, scale, rows)
        text = bitpack(*packs, form, scale)
    found = measure(compiled(text, form), inputs, wanted, CHANGES[change])
    values = sum(len(one) for one in inputs)
    return {
        "kernel": kernel,
        "form": form,
        "change": change,
        "cycles_a_value": found.cycles / values,
        "instructions_a_value": found.instructions / values,
        "cpi": found.cpi,
        "waits_share": sum(found.reasons[name] for name in ("l1", "l2", "memory", "unpack")) / found.cycles,
        "efficiency": found.datapath_efficiency,
    }


def run(context: Context) -> Result:
    """Run all kernels in all forms."""
    cases = [(kernel, form, context["rows"], context["scale"]) for kernel in KERNELS for form in FORMS]
    changed = [(kernel, form, *cases[0][2:], name) for kernel in KERNELS for name in CHANGES for form in FORMS]
    every = context.map(run_one, [*cases, *changed], "kernels")
    rows, causes = every[: len(cases)], causes_of(every[len(cases) :])
    cycles = {(row["kernel"], row["form"]): row["cycles_a_value"] for row in rows}
    for row in rows:
        row["over_scalar"] = cycles[row["kernel"], "scalar"] / row["cycles_a_value"]

    def gain(kernel: str, form: str, over: str = "scalar") -> float:
        return float(cycles[kernel, over] / cycles[kernel, form])

    five, fifteen, parity = KERNELS
    of_scalar = {row["kernel"]: row["instructions_a_value"] for row in rows if row["form"] == "scalar"}
    said = "depends on the scalar code, here {:.1f} instructions a value: no goal"
    orders = {
        "5 bits: pup over V": gain(five, "pup", "v") > 1,
        "5 bits: pup over full": gain(five, "pup", "full") > 1,
        "15 bits: full over pup": gain(fifteen, "full", "pup") > 1,
        "15 bits: pup over V": gain(fifteen, "pup", "v") > 1,
        "RAID5: full over V": gain(parity, "full", "v") > 1,
        "RAID5: V over scalar": gain(parity, "v") > 1,
    }
    scalar = {
        "bitpack5": (five, "pup"),
        "bitpack5_full": (five, "full"),
        "bitpack15_pup": (fifteen, "pup"),
        "bitpack15": (fifteen, "full"),
        "raid5_sve": (parity, "v"),
        "raid5": (parity, "full"),
    }
    answers = [
        Answer(f"zou.varve.fig8_10.{name}", gain(kernel, form), note=said.format(of_scalar[kernel]))
        for name, (kernel, form) in scalar.items()
    ]
    answers += [
        Answer("zou.varve.fig8_10.bitpack_sve", gain(five, "v"), note="the same code"),
        Answer("zou.varve.fig8_10.bitpack_widths", gain(five, "pup") / gain(fifteen, "pup")),
        Answer("zou.varve.fig8_10.raid5_full_vs_sve", gain(parity, "full", "v")),
        Answer("zou.varve.fig8_10.raid5_full_vs_sve#pup", gain(parity, "full", "pup")),
        Answer("zou.varve.fig8_10.raid5_full_vs_sve#bitpack15_pup", gain(fifteen, "full", "pup"), paper=38 / 26),
        Answer("zou.varve.fig8_10.raid5_full_vs_sve#bitpack5_pup", gain(five, "full", "pup"), paper=60 / 78),
    ]
    return Result(
        tables={
            "kernels": rows,
            "orders": [{"order": name, "holds": holds} for name, holds in orders.items()],
            "causes": causes,
        },
        answers=answers,
        figures=[_figure(five, fifteen, parity)],
        assumptions=[*ASSUMPTIONS, f"RAID5 has {STRIPS} data strips, which the text does not state."],
        misfits=[*_misfits(rows, cycles), *(_said(one) for one in causes if one["change"] != "as described")],
    )


def _figure(five: str, fifteen: str, parity: str) -> Figure:
    stated = [
        ("pup", five, 78),
        ("full", five, 60),
        ("pup", fifteen, 26),
        ("full", fifteen, 38),
        ("full", parity, 13.1),
    ]
    return Figure(
        id="fig8_10",
        title="Figure 8.10: speed-up over scalar",
        kind="bar",
        table="kernels",
        x="kernel",
        y="over_scalar",
        series="form",
        y_label="times the scalar form",
        points=[PaperPoint(*one, "8.3.2") for one in stated],
    )


def causes_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what each change makes of the kernels' ratios."""
    cycles = {(row["kernel"], row["change"], row["form"]): row["cycles_a_value"] for row in rows}
    waits = {(row["kernel"], row["change"], row["form"]): row["waits_share"] for row in rows}
    found = []
    for kernel, change in dict.fromkeys((row["kernel"], row["change"]) for row in rows):
        scalar, v, pup, full = (cycles[kernel, change, form] for form in FORMS)
        found.append(
            {
                "kernel": kernel,
                "change": change,
                "v_over_scalar": scalar / v,
                "pup_over_scalar": scalar / pup,
                "full_over_scalar": scalar / full,
                "full_over_v": v / full,
                "pup_over_v": v / pup,
                "full_over_pup": pup / full,
                "full_waits_share": waits[kernel, change, "full"],
            }
        )
    return found


def _said(cause: dict[str, Any]) -> str:
    return (
        f"{cause['kernel']} with {cause['change']}: pup and full are {cause['pup_over_scalar']:.1f} and "
        f"{cause['full_over_scalar']:.1f} times as fast as scalar code, full {cause['full_over_v']:.2f} times as V and "
        f"{cause['full_over_pup']:.2f} times as pup."
    )


def _misfits(rows: list[dict[str, Any]], cycles: dict[tuple[str, str], float]) -> list[str]:
    by = {(row["kernel"], row["form"]): row for row in rows}
    least = cycles["bitpack p_brand", "full"] / cycles["bitpack p_brand", "pup"]
    unpack = ", ".join(f"{by[kernel, 'full']['waits_share']:.0%}" for kernel in KERNELS)
    return [
        f"Full waits for values that are not unpacked yet in {unpack} of its cycles ({', '.join(KERNELS)}): 256 bits "
        "of packed streams are unpacked a cycle, which the text does not state.",
        f"Bit packing to 5 bits: full takes {least:.2f} of pup's cycles, where the text has 1.3. A strip of full holds "
        "the values that fit without alignment, 45 here, that of pup 32; the text has equal densities.",
    ]


EXPERIMENT = Experiment(
    id="varve.kernels",
    title="VarVE, Figure 8.10: bit packing and RAID5",
    question="What do packed streams and variable-width vectors gain in kernels of a file system?",
    run=run,
    claims=(
        "zou.varve.fig8_10.bitpack5",
        "zou.varve.fig8_10.bitpack5_full",
        "zou.varve.fig8_10.bitpack15",
        "zou.varve.fig8_10.bitpack15_pup",
        "zou.varve.fig8_10.bitpack_sve",
        "zou.varve.fig8_10.bitpack_widths",
        "zou.varve.fig8_10.raid5",
        "zou.varve.fig8_10.raid5_sve",
        "zou.varve.fig8_10.raid5_full_vs_sve",
    ),
    parameters={
        "rows": Parameter(65_536, "rows of a column", small=4_096),
        "scale": Parameter(0.1, "scale factor of TPC-H", small=0.01),
    },
    minutes=0.5,
)
