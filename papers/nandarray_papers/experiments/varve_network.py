"""VarVE, Figure 8.14: inference of a network trained on digits, quantised and pruned; beside Figure 8.18, its widths.

Goals, taken from the dissertation before the first full run: full over the conventional form on the quantised network
(1.4) and on the pruned one (2), and that pruning changes nothing for V and pup. Pup over V is judged, too. Ratios over
scalar depend on the scalar code; they are printed, and judged, with its instructions a product, and are no goals.
Forms with multiply-add or masks and the alignment of one bit came after the first figures: they explore causes and
prove nothing. The place of the data is that of the author's public workloads, written down before the first run with
it; beside it are runs with DRAM behind caches, as the text says.

Figure 8.18 is of a network whose weights are not published. The same analytical model is given the widths of this
network's weights and inputs, of 8 and of 4 bits: another distribution than the dissertation's, and not judged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nandarray.lab.experiment import Answer, Context, Experiment, Figure, PaperPoint, Parameter, Result
from nandarray_papers.experiments.varve_kernels import ASSUMPTIONS
from nandarray_papers.varve.inference import source
from nandarray_papers.varve.measure import BESIDE, FORMS, compiled, measure
from nandarray_papers.varve.model import Operation, elements_per_cycle, operation_bits
from nandarray_papers.varve.network import CLASSES, FEATURES, FILTERS, Quantised, digits, train

__all__ = ["EXPERIMENT", "model_rows", "run_one"]

Row = dict[str, Any]
#: Further forms, beside the four: V with multiply-add, and full with zero weights masked.
_BESIDE = ("v-fused", "full-masked")
_NEAR, _BEHIND = "beside the core", "DRAM behind caches"
_PLACES: dict[str, dict[str, Any]] = {_NEAR: {**BESIDE}, _BEHIND: {}}
_PRODUCTS = (FEATURES // FILTERS) * 4 * 9 * FILTERS + FEATURES * CLASSES
_STORED_BITS = 8
_DATAPATH_BITS = 256


def run_one(  # noqa: PLR0917 - as a case of the experiment
    name: str, network: Quantised, form: str, images: np.ndarray[Any, Any], align_bits: int, place: str = _NEAR
) -> Row:
    """Run inference over pictures in a form, and compare all values with NumPy's.

    The form is one of the four, ``"v-fused"`` or ``"full-masked"``; ``align_bits`` is the alignment of full's elements,
    ``place`` one of ``_PLACES`` for the data. The row has cycles and instructions a picture, the share of waits,
    datapath efficiency.
    """
    changes = {"vector.align_bits": align_bits, **_PLACES[place]}
    made = compiled(source(form, network.shift), form.partition("-")[0])
    inputs = [images.reshape(len(images), -1), network.words()]
    found = measure(made, inputs, [network.values(images)], changes)
    waits = sum(found.reasons[key] for key in ("l1", "l2", "memory", "unpack"))
    return {
        "network": name,
        "form": form,
        "align_bits": align_bits,
        "place": place,
        "cycles": found.cycles / len(images),
        "cycles_without_waits": (found.cycles - waits) / len(images),
        "instructions": found.instructions / len(images),
        "waits_share": waits / found.cycles,
        "efficiency": found.datapath_efficiency,
    }


def _widths(values: np.ndarray[Any, Any], bits: int) -> dict[int, float]:
    """Return the shares of widths in two's complement of values of 8 bits, of which the highest ``bits`` are kept."""
    kept = values.ravel() >> (_STORED_BITS - bits)
    sizes = [0 if one == 0 else (one if one > 0 else ~one).bit_length() + 1 for one in kept.tolist()]
    found, counts = np.unique(sizes, return_counts=True)
    return {int(width): float(count) / len(sizes) for width, count in zip(found, counts, strict=True)}


def model_rows(name: str, network: Quantised, images: np.ndarray[Any, Any], alignments: list[int]) -> list[Row]:
    """Return the analytical model's rows for the products of a network's dense layer with the pictures' features.

    ``over_fixed`` is the gain over fixed elements of 8, 16 or 32 bits, the narrowest that hold every product;
    ``alignments`` are in bits.
    """
    features = network.features(images)
    rows: list[Row] = []
    for bits in (8, 4):
        widths = _widths(network.dense, bits), _widths(features, bits)
        widest = sum(max(one) for one in widths)
        fixed = 8 if widest <= 8 else 16 if widest <= 16 else 32  # noqa: PLR2004
        for align in alignments:
            elements = elements_per_cycle(operation_bits(*widths, Operation.MULTIPLY, align), _DATAPATH_BITS)
            rows.append(
                {
                    "network": f"{name}, {bits} bits",
                    "align_bits": align,
                    "fixed_bits": fixed,
                    "elements_per_cycle": elements,
                    "over_fixed": elements / (_DATAPATH_BITS // fixed),
                }
            )
    return rows


def run(context: Context) -> Result:
    """Train, run all forms, and give the analytical model the widths."""
    learned, tests = digits()
    networks = dict(zip(("quantised", "pruned"), train(learned, context.seed, context["epochs"], 0.8), strict=True))
    images = tests.images[: context["images"]]
    cases = [(name, one, form, images, 8) for name, one in networks.items() for form in (*FORMS, *_BESIDE)]
    cases += [(name, one, "full", images, 1) for name, one in networks.items()]
    again = [(name, one, form, images, 8, _BEHIND) for name, one in networks.items() for form in FORMS]
    rows = context.map(run_one, [*cases, *again], "forms")
    by = {(row["network"], row["form"], row["align_bits"]): row for row in rows if row["place"] == _NEAR}
    cached = {(row["network"], row["form"]): row for row in rows if row["place"] == _BEHIND}
    for row in rows:
        scalar = by["quantised", "scalar", 8] if row["place"] == _NEAR else cached["quantised", "scalar"]
        row["over_scalar"] = scalar["cycles"] / row["cycles"]
    trained = [
        {
            "network": name,
            "accuracy": one.accuracy(tests),
            "accuracy_trained_on": one.accuracy(learned),
            "zero_weights": one.zeros,
            "shift": one.shift,
        }
        for name, one in networks.items()
    ]
    model = [row for name, one in networks.items() for row in model_rows(name, one, images, context["align_bits"])]
    return Result(
        tables={
            "runs": [row for row in rows if row["place"] == _NEAR],
            "behind_caches": [row for row in rows if row["place"] == _BEHIND],
            "networks": trained,
            "model": model,
        },
        answers=_answers(by),
        figures=_figures(),
        assumptions=[
            *ASSUMPTIONS,
            "Digits are scikit-learn's, 8 x 8 pixels widened to 20 x 20 in 28 x 28; the network is Table 8.2's, with "
            "weights and pixels of 8 bits stored in 32. Accuracy is that of every fifth picture, not trained on.",
            "Lanes are filters, then classes, in all vector forms; none has a multiply-add, which Table 8.1 has not.",
            "Figure 8.18: products of the dense layer, 8 and 4 bits a weight and a feature, zeros by Table 8.3 (a zero "
            "takes none of the product's bits, the other factor its own).",
        ],
        misfits=_misfits(by, cached),
    )


def _answers(by: dict[tuple[str, str, int], Row]) -> list[Answer]:
    def gain(network: str, form: str, over: str) -> float:
        base = by["quantised" if over == "scalar" else network, over, 8]
        return float(base["cycles"] / by[network, form, 8]["cycles"])

    said = (
        "depends on the scalar code, here "
        f"{by['quantised', 'scalar', 8]['instructions'] / _PRODUCTS:.1f} instructions a product: no goal"
    )
    same = [by["pruned", form, 8]["cycles"] / by["quantised", form, 8]["cycles"] for form in ("v", "pup")]
    return [
        Answer("zou.varve.fig8_14.nn", gain("quantised", "full", "scalar"), note=said),
        Answer("zou.varve.fig8_14.nn_pup", gain("quantised", "pup", "scalar"), note=said),
        Answer("zou.varve.fig8_14.nn_pup_vs_sve", gain("quantised", "pup", "v")),
        Answer("zou.varve.fig8_14.nn_full_vs_sve", gain("quantised", "full", "v")),
        Answer("zou.varve.fig8_14.nn_full_vs_sve#pup", gain("quantised", "full", "pup"), paper=1.4),
        Answer("zou.varve.fig8_14.pruned", gain("pruned", "full", "scalar"), note=said),
        Answer("zou.varve.fig8_14.pruned_vs_sve", gain("pruned", "full", "v")),
        Answer("zou.varve.fig8_14.pruned_vs_sve#pup", gain("pruned", "full", "pup"), paper=2),
        Answer(
            "zou.varve.fig8_14.pruned_others",
            all(abs(one - 1) < 0.01 for one in same),  # noqa: PLR2004
            note=", ".join(f"{one:.3f}" for one in same),
        ),
    ]


def _figures() -> list[Figure]:
    return [
        Figure(
            id="fig8_14",
            title="Figure 8.14: inference over scalar on the quantised network",
            kind="bar",
            table="runs",
            x="network",
            y="over_scalar",
            series="form",
            y_label="times the scalar form",
            points=[
                PaperPoint("pup", "quantised", 2.7, "8.3.4"),
                PaperPoint("full", "quantised", 3.7, "8.3.4"),
                PaperPoint("full", "pruned", 5.1, "8.3.4"),
            ],
        ),
        Figure(
            id="fig8_18",
            title="Beside Figure 8.18: this network's dense layer over vectors of the smallest fixed type",
            kind="line",
            table="model",
            x="align_bits",
            y="over_fixed",
            series="network",
            x_label="alignment in bits",
            y_label="elements a cycle, over those of the fixed type",
            x_log=True,
        ),
    ]


def _misfits(by: dict[tuple[str, str, int], Row], cached: dict[tuple[str, str], Row]) -> list[str]:
    whole, pruned = (by[name, "full", 8]["cycles"] for name in ("quantised", "pruned"))
    behind = {form: cached["quantised", form]["cycles"] for form in FORMS}
    waits = cached["quantised", "v"]["waits_share"]
    fine = by["quantised", "full", 1]["cycles"] / by["pruned", "full", 1]["cycles"]
    masked = by["pruned", "full", 8]["cycles"] / by["pruned", "full-masked", 8]["cycles"]
    return [
        f"With DRAM behind caches V waits in {waits:.0%} of its cycles, since a miss stops this core, and streams are "
        f"fetched ahead: pup and full are {behind['v'] / behind['pup']:.2f} and {behind['v'] / behind['full']:.2f} "
        "times as fast as V on the quantised network.",
        f"Pruning makes full {whole / pruned:.2f} times as fast, the text has 1.4 (5.1 over 3.7). Zero weights narrow "
        "products and not the sums, whose widths set the strip of filters; and the dense layer's ten classes fit one "
        f"strip anyway. With an alignment of one bit pruning gains {fine:.2f}. With zero weights masked out of "
        f"products full is {masked:.2f} times as fast as without: each mask is waited for.",
    ]


EXPERIMENT = Experiment(
    id="varve.network",
    title="VarVE, Figure 8.14: inference of a quantised and pruned network",
    question="What do variable-width vectors gain where weights are small, or mostly zero?",
    run=run,
    claims=(
        "zou.varve.fig8_14.nn",
        "zou.varve.fig8_14.nn_pup",
        "zou.varve.fig8_14.nn_pup_vs_sve",
        "zou.varve.fig8_14.nn_full_vs_sve",
        "zou.varve.fig8_14.pruned",
        "zou.varve.fig8_14.pruned_vs_sve",
        "zou.varve.fig8_14.pruned_others",
    ),
    parameters={
        "images": Parameter(8, "pictures of a run", small=2),
        "epochs": Parameter(6, "times over all pictures, before and again after pruning", small=1),
        "align_bits": Parameter([1, 2, 4, 8], "alignments of the analytical model"),
    },
    minutes=2.0,
)
