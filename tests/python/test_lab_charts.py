"""The chart library of reports: its lock, its hash, its licences, and reports that are written without it.

The library is built by ``tools/charts/build.py`` from the npm registry and is no file of the repository.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import report_fixture as fixture
from typer.testing import CliRunner

from nandarray import lab
from nandarray.cli import app
from nandarray.lab import report
from nandarray.lab.report import page

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tools" / "charts"
BUILT = Path(report.__file__).parent / "charts"


def test_the_lock_has_a_hash_of_every_package_and_names_no_host():
    wanted = json.loads((SOURCES / "package.json").read_text())
    locked = json.loads((SOURCES / "package-lock.json").read_text())["packages"]
    assert all(one["integrity"].startswith("sha512-") for name, one in locked.items() if name)
    assert "://" not in (SOURCES / "package-lock.json").read_text()
    for name, version in (wanted["dependencies"] | wanted["devDependencies"]).items():
        assert locked[f"node_modules/{name}"]["version"] == version
    assert "omit-lockfile-registry-resolved=true" in (SOURCES / ".npmrc").read_text()


def test_git_ignores_the_library_and_wheels_include_it():
    folder = "python/nandarray/lab/report/charts/"
    assert f"/{folder}" in (ROOT / ".gitignore").read_text().splitlines()
    include = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]["include"]
    assert {"path": f"{folder}*", "format": ["sdist", "wheel"]} in include


def test_the_repository_has_no_bundled_library():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("git lists no files here: this folder is no clone of the repository")
    files = listed.stdout.splitlines()
    assert files
    packed = (".gz", ".jar", ".whl", ".zip")
    files.remove("tests/python/golden_parts_v1.zip")  # a store of parts: data of ours
    assert [name for name in files if "vendor/" in name or ".min." in name or name.endswith(packed)] == []


@pytest.mark.skipif(not report.has_charts(), reason="the chart library is not built: make charts")
def test_the_installed_library_has_the_expected_hash_and_carries_its_licences():
    script = (BUILT / "echarts.min.js").read_bytes()
    assert len(script) < 1_000_000
    assert hashlib.sha256(script).hexdigest() == (SOURCES / "SHA256").read_text().split()[0]
    for end in (b"</script", b"<!--"):
        assert end not in script.lower()
    licences = (BUILT / "LICENSES.txt").read_text()
    for holder in ("The Apache Software Foundation", "Apache License", "Baidu Inc.", "Mike Bostock", "Microsoft"):
        assert holder in licences
    assert f'"{json.loads((SOURCES / "package.json").read_text())["dependencies"]["echarts"]}"'.encode() in script


def test_a_report_without_the_library_has_its_tables_and_says_so(tmp_path, monkeypatch):
    run = fixture.make(tmp_path)
    sweep = report.SweepData("S", fixture.sweep_rows(), {"GBps": "max", "p99_us": "min"})
    monkeypatch.setattr(page, "_library", lambda: None)
    assert not report.has_charts()
    written = report.write([run], tmp_path / "page.html", [sweep], (run, run)).read_text()
    assert written.count(report.NO_CHARTS) == 1
    assert '<div class="chart"' not in written
    assert '<table id="r0-fig9a-table"' in written
    assert '<table id="s0-points-table"' in written
    assert len(written) < 300_000


def test_the_command_line_says_that_there_are_no_charts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(page, "_library", lambda: None)
    lab.run("model.queue-depth", profile="small")
    ran = CliRunner().invoke(app, ["lab", "report", "--json"])
    assert ran.exit_code == 0
    assert json.loads(ran.stdout)["page"] == "report.html"
    assert ran.stderr.strip() == report.NO_CHARTS


def test_without_npm_the_build_fails_with_one_sentence(tmp_path):
    command = [sys.executable, "-I", "-S", str(SOURCES / "build.py")]
    ran = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tmp_path)})
    assert ran.returncode == 1
    assert ran.stderr.startswith("no chart library: there is no npm")
    assert ran.stderr.count("\n") == 1


def test_without_a_registry_the_build_fails_with_one_sentence(tmp_path):
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho npm error code ENOTFOUND >&2\nexit 1\n")
    npm.chmod(0o755)
    command = [sys.executable, str(SOURCES / "build.py")]
    ran = subprocess.run(command, capture_output=True, text=True, env={"PATH": f"{tmp_path}:/bin:/usr/bin"})
    assert ran.returncode == 1
    assert "npm failed (npm error code ENOTFOUND); reports of the lab will have tables without charts" in ran.stderr
