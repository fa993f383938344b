"""VarVE's analytical model (Zou, section 8.3.7): elements a cycle over the alignment, for RAID5 of `l_linenumber`.

The widths of `l_linenumber` are exact, not sampled: TPC-H gives an order one to seven lines with equal chance
(specification 4.2.3), so the share of the lines with number k is (8 - k) / 28.

Not covered: the GAN of Figure 8.18, whose weights are not published (``varve_network`` has others); the simulated
points of Figure 8.10.
"""

from __future__ import annotations

from typing import Any

from nandarray.lab.experiment import Answer, Context, Experiment, Figure, Parameter, Result
from nandarray_papers.varve.model import Operation, elements_per_cycle, operation_bits, speedup

__all__ = ["EXPERIMENT", "line_numbers", "raid5", "widths_of"]

Row = dict[str, Any]
_FIXED_BITS = 32
#: Speed-up of SVE over scalar on RAID5, of section 8.3.2: how the paper comes from SVE to scalar.
_SVE_OVER_SCALAR = 3.5


def line_numbers() -> dict[int, float]:
    """Return the share of each line number of TPC-H's lineitem."""
    return {k: (8 - k) / 28 for k in range(1, 8)}


def widths_of(values: dict[int, float]) -> dict[int, float]:
    """Return the probabilities of widths, of values that have probabilities; zero has no bits."""
    widths: dict[int, float] = {}
    for value, p in values.items():
        widths[value.bit_length()] = widths.get(value.bit_length(), 0.0) + p
    return widths


def raid5(align_bits: int, strips: int, datapath_bits: int) -> Row:
    """Return elements a cycle of the exclusive or of a strip into the parity of those before it, the mean over strips.

    The row has elements a cycle, and over vectors of 32-bit elements. ``strips`` are the data strips of a parity strip.
    """
    column = line_numbers()
    parity, cycles = column, 0.0
    for _ in range(strips - 1):
        bits = operation_bits(widths_of(parity), widths_of(column), Operation.LOGICAL, align_bits)
        cycles += 1 / elements_per_cycle(bits, datapath_bits)
        following: dict[int, float] = {}
        for one, p in parity.items():
            for other, q in column.items():
                following[one ^ other] = following.get(one ^ other, 0.0) + p * q
        parity = following
    elements = (strips - 1) / cycles
    return {
        "align_bits": align_bits,
        "strips": strips,
        "elements_per_cycle": elements,
        "over_fixed": elements / (datapath_bits // _FIXED_BITS),
    }


def run(context: Context) -> Result:
    """Compute the figure's points."""
    datapath = context["datapath_bits"]
    alignments = context["align_bits"]
    rows = [raid5(align, strips, datapath) for strips in context["strips"] for align in alignments]
    by_strips = {row["strips"]: row for row in rows if row["align_bits"] == min(alignments)}
    first = by_strips[min(by_strips)]["over_fixed"]
    coarse = next(row for row in rows if row["align_bits"] == max(alignments) and row["strips"] == min(by_strips))
    one_operand = speedup(widths_of(line_numbers()), _FIXED_BITS, datapath)
    return Result(
        tables={"raid5": rows},
        answers=[
            Answer(
                "zou.varve.fig8_17.model",
                first,
                note=f"with the width of one operand alone instead of the wider of two it would be {one_operand:.1f}",
            ),
            Answer(
                "zou.varve.fig8_17.model_scalar",
                first * _SVE_OVER_SCALAR,
                note="times the paper's 3.5 of SVE over scalar, as the paper does",
            ),
            Answer(
                "zou.varve.fig8_17.model_vs_simulated",
                coarse["over_fixed"] / 3.7,
                note="the model's point at 8 bits over the paper's simulated 3.7",
            ),
        ],
        figures=[
            Figure(
                id="fig8_17",
                title="Figure 8.17: RAID5 of l_linenumber over vectors of 32-bit elements",
                kind="line",
                table="raid5",
                x="align_bits",
                y="over_fixed",
                series="strips",
                x_label="alignment in bits",
                y_label="elements a cycle, over 32-bit elements",
                x_log=True,
            )
        ],
        assumptions=[
            "Widths of l_linenumber follow from TPC-H's rule for lines of an order, not from a data set.",
            "An exclusive or takes the wider of its operands' widths (Table 8.3, logical operations).",
        ],
        misfits=[
            f"At an alignment of one bit the model gives {first:.1f} for two strips and less for more, the paper 15. "
            "With the widths of l_linenumber and the rule of Table 8.3, the printed formula gives no more; "
            f"{one_operand:.1f} comes out if an operation takes the width of one operand alone.",
            "Figure 8.18 is left out: the widths of the GAN's weights are not published, and the result is a function "
            "of them alone.",
        ],
    )


EXPERIMENT = Experiment(
    id="varve.model",
    title="VarVE, Figure 8.17: the analytical model",
    question="How many values of varying widths does a datapath take in a cycle, over the alignment?",
    run=run,
    claims=(
        "zou.varve.fig8_17.model",
        "zou.varve.fig8_17.model_scalar",
        "zou.varve.fig8_17.model_vs_simulated",
    ),
    parameters={
        "align_bits": Parameter([1, 2, 4, 8], "alignments of elements in bits"),
        "strips": Parameter([2, 4, 8], "data strips of a parity strip", small=[2, 3]),
        "datapath_bits": Parameter(256, "width of the datapath in bits"),
    },
    minutes=0.1,
)
