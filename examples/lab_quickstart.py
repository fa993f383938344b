"""An experiment from a script or a notebook: run it, look at its table, change something, compare.

A run is a folder; the same run again gives the same bytes.

Run it as ``python examples/lab_quickstart.py [folder]``. It needs ``pip install '.[lab]'``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from nandarray import lab


def main(folder: Path) -> None:
    """Ask how a small device does under more requests at once, with two links."""
    one = lab.run("model.queue-depth", profile="small", runs=folder)
    print(one)
    print(one.table("depths")[["depth", "iops", "latency_p99_us"]].round(0).to_string(index=False))
    # Little's law: requests on their way = requests a second x seconds of each. Short runs lose a little at their ends.
    print("Little's law holds:", bool((one.table("depths").eval("on_their_way / depth") > 0.9).all()))

    slower = {"changes": {"link.rate": "PCIe 1 x1"}}
    two = lab.run("model.queue-depth", profile="small", parameters=slower, runs=folder)
    both = lab.compare(one, two)
    print([row["name"] for row in both.parameters], "differ; bandwidth of the second over the first:")
    print(both.table("depths").set_index("depth")["bytes_per_s ratio"].round(2).to_dict())

    report = two.reports["depth 64"]
    print(f"its link is busy {report['utilisation']['link_up']:.0%} of the time")
    again = lab.run("model.queue-depth", profile="small", runs=folder)
    print("the same bytes again:", again.environment["before"] == [])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(made))
