"""The files of `deploy/`: unit and container file run commands that there are; a service manager gets true notices."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from processes import ended

import nandarray
from nandarray import announce
from nandarray.cli import app

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "run-a-node.md"
SERVE = [sys.executable, "-m", "nandarray", "serve"]


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, delimiters="=", comment_prefixes="#")
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string((DEPLOY / "nandarray@.service").read_text())
    return found


def instructions() -> dict[str, str]:
    """The instructions of the container file's last stage; of equal ones the last."""
    text = re.sub(r"(?m)^#.*\n", "", (DEPLOY / "Containerfile").read_text()).replace("\\\n", " ")
    stage = text[text.rindex("FROM ") :]
    return dict(line.split(" ", 1) for line in stage.splitlines() if line)


def parsed(words: list[str]) -> dict[str, Any]:
    """The parameters of a command line of ours; an unknown command or option is an error."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    return dict(command.make_context("nandarray", list(words)).params)


def options_of_the_guide() -> list[str]:
    """The options that the guide writes into the environment file."""
    return shlex.split(re.search(r"(?m)^OPTIONS=(.+)$", GUIDE.read_text())[1])  # type: ignore[index]


def test_the_unit_runs_a_command_that_there_is() -> None:
    service = unit()["Service"]
    words = shlex.split(service["ExecStart"].replace("%i", "data"))
    assert words[:2] == ["/opt/nandarray/bin/nandarray", "serve"]
    assert words[-1] == "$OPTIONS"
    for options in ([], options_of_the_guide()):
        found = parsed([*words[1:-1], *options])
        assert str(found["store"]) == "/var/lib/nandarray/data.nand"
    assert found["listen"] == ["192.0.2.7:4420"]
    assert str(found["secret_file"]) == "/etc/nandarray/data.secrets"
    assert service["Type"] == "notify"
    # A sandbox that a translator cannot live in, or a limit below what 512 connections take, would only show later.
    assert "MemoryDenyWriteExecute" not in service
    assert int(service["LimitNOFILE"]) >= 4 * 512
    assert {"AF_INET", "AF_INET6", "AF_UNIX"} <= set(service["RestrictAddressFamilies"].split())


def test_the_container_runs_a_command_that_there_is() -> None:
    found = instructions()
    words = json.loads(found["ENTRYPOINT"]) + json.loads(found["CMD"])
    assert words[0] == "nandarray"
    serve = parsed(words[1:])
    assert serve["listen"][0].endswith(":" + found["EXPOSE"])
    assert str(serve["store"]).startswith(found["VOLUME"] + "/")
    health = json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
    assert parsed(health[1:])["status"]
    assert str(parsed(health[1:])["store"]) == str(serve["store"])


@pytest.mark.parametrize("abstract", [False, True])
@pytest.mark.parametrize("door", ["tcp", "shm"])
def test_a_manager_learns_when_a_store_is_served_and_when_it_ends(tmp_path: Path, door: str, abstract: bool) -> None:
    with nandarray.open("d.nand", "w") as store:
        store["x"] = [1, 2, 3]
    name = f"@nandarray-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0"))
        manager.settimeout(60)
        how = ["--listen", "127.0.0.1:0"] if door == "tcp" else ["--shm", str(tmp_path / "region")]
        process = subprocess.Popen(
            [*SERVE, "d.nand", *how], env={**os.environ, "NOTIFY_SOCKET": name}, stdout=subprocess.PIPE, text=True
        )
        try:
            ready, _, status = manager.recv(4096).decode().partition("\nSTATUS=serving ")
            assert ready == "READY=1"
            with nandarray.open(status) as remote:  # at once
                assert remote["x"][...].tolist() == [1, 2, 3]
            asked = subprocess.run([*SERVE, "d.nand", "--status"], capture_output=True, text=True, check=True)
            assert json.loads(asked.stdout)
            process.send_signal(signal.SIGTERM)
            assert manager.recv(4096) == b"STOPPING=1"
            assert ended(process) == 0
        finally:
            process.kill()
            process.communicate()


def test_a_server_that_cannot_begin_is_never_ready(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        done = subprocess.run(
            [*SERVE, "none.nand"],
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr.splitlines() == [announce.LINE.strip(), "nandarray: error: none.nand: no such file"]
        with pytest.raises(BlockingIOError):
            manager.recv(4096)


def test_a_manager_that_is_gone_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from nandarray.cli import service

    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "none"))
    with pytest.warns(UserWarning, match="No such file"):
        service.notify(service.READY)
    for other in ("", "relative"):
        monkeypatch.setenv("NOTIFY_SOCKET", other)
        service.notify(service.READY)


def test_the_first_line_comes_before_all_that_takes_time_to_load(tmp_path: Path) -> None:
    def told(*words: str, **environment: str) -> list[str]:
        command = [sys.executable, "-X", "importtime", "-m", "nandarray", *words]
        asked = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
        return asked.stderr.splitlines()

    lines = told("serve", "none.nand", JOURNAL_STREAM="8:1")
    at = lines.index(announce.LINE.strip())
    assert not [line for line in lines[:at] if re.search(r"\| +(numpy|typer|rich|nandarray\._nandarray)\b", line)]
    assert [line for line in lines[at:] if re.search(r"\| +numpy\b", line)]
    # Microseconds of all modules before it, on whatever machine this is: a tenth of what follows, at most.
    spent = [sum(int(line.split(":")[1].split("|")[0]) for line in part if re.match(r"import time: +\d", line))
             for part in (lines[:at], lines[at:])]  # fmt: skip
    assert spent[0] < spent[1] / 3
    for words in (["serve", "none.nand"], ["serve", "none.nand", "--status"], ["info", "none.nand"]):
        environment = {"JOURNAL_STREAM": "8:1"} if words[1:] != ["none.nand"] or words[0] == "info" else {}
        assert announce.LINE.strip() not in told(*words, **environment)
