"""A climate data set: years are appended as they come in, and anomalies from the months' means are written beside it.

xarray sees named dimensions and dates; the store sees arrays, and reduces them beside the data. The temperatures are
made up. ``python examples/climate.py [store [picture.png]]`` also draws, if Matplotlib is installed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import xarray as xr

import nandarray

LAT, LON = np.arange(-87.5, 90, 5, "f4"), np.arange(0, 360, 5, "f4")


def measured(year: int) -> xr.Dataset:
    """Make up a year of daily temperatures: seasons, weather, and half a degree more each year."""
    time = np.arange(f"{year}-01-01", f"{year + 1}-01-01", dtype="M8[D]").astype("M8[ns]")
    season = np.cos(2 * np.pi * (np.arange(len(time)) - 200) / 365.25)[:, None, None] * LAT[:, None] / 6
    weather = np.random.default_rng(year).normal(0, 2, (len(time), len(LAT), len(LON)))
    warmth = 300 - LAT[:, None] ** 2 / 150 + season + weather + 0.5 * (year - 2001)
    coords = {"time": time, "lat": LAT, "lon": LON}
    return xr.Dataset({"t2m": (("time", "lat", "lon"), warmth.astype("f4"), {"units": "K"})}, coords)


def main(path: Path, picture: Path | None = None) -> None:
    """Append years, compute anomalies by month, reduce beside the data, draw."""
    nandarray.from_xarray(measured(2001), path, compression="zstd+shuffle")
    for year in (2002, 2003, 2004):
        nandarray.from_xarray(measured(year), path, append_dim="time")  # all of the year, or nothing

    with xr.open_dataset(path, engine="nandarray") as stored:
        print(dict(stored.sizes))
        months = stored.t2m.groupby("time.month")
        anomaly = (months - months.mean()).rename("anomaly").drop_vars("month").load()
    nandarray.from_xarray(anomaly, path, group="derived")

    smooth = anomaly.weighted(np.cos(np.deg2rad(anomaly.lat))).mean(("lat", "lon")).rolling(time=365).mean()
    print(f"warming of the year's mean: {float(smooth[-1] - smooth[364]) / 3:.2f} K a year")
    with nandarray.open(path) as store:  # folded by the engine, in little memory
        print(f"warmest: {store['t2m'].reduce('max'):.1f} K, spread: {store['derived/anomaly'].reduce('std'):.2f} K")

    if picture is not None:
        import matplotlib.pyplot as plt

        smooth.plot()
        plt.savefig(picture)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(*map(Path, sys.argv[1:] or [f"{folder}/data.nand"]))
