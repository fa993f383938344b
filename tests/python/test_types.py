"""A user's typed program: ``typed_user.py`` under ``mypy --strict``, and programs that it must not accept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typed_user

HERE = Path(__file__).parent
#: Wrong programs, and a word of the message about each.
WRONG = {
    'store["a"].keys()': "union-attr",
    "store.open_group('a').shape": "attr-defined",
    "halved('x')": "arg-type",
    "halved(1.0, 2.0)": "call-arg",
    "store.open_array('a').reduce(3)": "call-overload",
    "nandarray.kernel(lambda x: x).reduce('sum')": "attr-defined",
}


def _mypy(*files: Path, options: tuple[str, ...] = ()) -> str:
    # The package's own modules are checked by `mypy` at the root; here they are only followed.
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary"]
    command += [
        "--config-file",
        str(HERE.parents[1] / "pyproject.toml"),
        "--cache-dir",
        str(HERE.parents[1] / "target" / "mypy-of-users"),
    ]
    done = subprocess.run([*command, *options, *map(str, files)], capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    return done.stdout


def test_a_typed_user_needs_no_cast_and_sees_no_any_of_ours(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    typed_user.main(str(tmp_path / "typed.nand"))
    assert "a (3, 4) float64" in capfd.readouterr().out
    wrong = tmp_path / "wrong.py"
    lines = ["import nandarray", "from typed_user import halved", 'store = nandarray.open("a.nand")', *WRONG]
    wrong.write_text("\n".join(lines))
    program = HERE / "typed_user.py"
    told = _mypy(program, wrong, options=("--warn-unreachable",))
    by_file = {file: [line for line in told.splitlines() if f"{file}:" in line] for file in (program.name, wrong.name)}
    assert by_file[program.name] == []
    for number, (line, word) in enumerate(WRONG.items(), len(lines) - len(WRONG) + 1):
        found = [one for one in by_file[wrong.name] if f"wrong.py:{number}: error" in one and word in one]
        assert found, (line, by_file[wrong.name])
