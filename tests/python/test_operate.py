"""A server as its operator sees it: metrics, running programs, orders from another process, and lines of a log; and as
strangers attack all of these.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

import nandarray
from nandarray import _nandarray
from nandarray.errors import CancelledError, InvalidError, NandarrayError, NotFoundError
from nandarray.nvme import Flush, Read, Write, connect, new_secret
from nandarray.serving import answers, control, metrics
from nandarray.serving.log import FIELDS, LEVELS, LINES, ServerLog, page_tables

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
#: A task ends before the limit of its instructions; the 1,000 of a run take hours.
FOREVER = """
#include <nandarray.h>
ND_PROGRAM("name": "forever", "kind": "block", "inputs": [{"name": "x", "dtype": "int64"}],
           "outputs": [{"name": "y", "dtype": "int64"}])
int64_t nd_block(nd_args *args) {
    for (int64_t i = 0; i < 1LL << 32; i++) __asm__ volatile ("");
    return 1;
}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "a.nand"
    with nandarray.open(made, mode="w") as store:
        store["x"] = np.arange(1000)
        assert store.nvme().create_namespace(1, 64, 4096).ok
    return made


def until(wanted: Callable[[], Any], seconds: float = 30) -> Any:
    end = time.monotonic() + seconds
    while not (found := wanted()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def cli(*arguments: str | Path, code: int = 0) -> str:
    command = [sys.executable, "-m", "nandarray", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


class Served:
    """``nandarray serve`` in a process of its own, with the lines that it prints until hosts can connect."""

    def __init__(self, path: Path, *options: str) -> None:
        command = [sys.executable, "-m", "nandarray", "serve", path.name, *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=path.parent
        )
        assert self.process.stdout
        wanted = 1 if "--shm" in options else 4
        self.said = [self.process.stdout.readline() for _ in range(wanted + ("--metrics" in options))]

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def word(self, name: str) -> str:
        return next(line.split(maxsplit=1)[1].strip() for line in self.said if line.startswith(name))

    def end(self) -> list[str]:
        """End it; the lines of its standard error."""
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate(timeout=60)[1]
        assert self.process.returncode == 0, said
        return said.splitlines()


def http(address: str | Path, request: bytes = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n") -> tuple[str, str]:
    """Send a request; the head of the answer and its body."""
    if isinstance(address, Path):
        one, to = socket.socket(socket.AF_UNIX), str(address)
        one.connect(to)
    else:
        host, port = address.rsplit(":", 1)
        one = socket.create_connection((host, int(port)))
    with one:
        one.settimeout(20)
        one.sendall(request)
        parts = []
        while part := one.recv(1 << 16):
            parts.append(part)
    head, _, body = b"".join(parts).decode().partition("\r\n\r\n")
    return head, body


def samples(text: str) -> dict[str, float]:
    """Return all samples of the text form, by their name with labels."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert name not in found
            found[name] = float(value)
    return found


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """A collector of spans: its URL, and the bodies of what it was sent."""
    bodies: list[bytes] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.append(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", bodies
        server.shutdown()
        thread.join(60)


def test_a_run_is_seen_from_another_process_and_killed(
    path: Path, tmp_path: Path, collector: tuple[str, list[bytes]]
) -> None:
    where = tmp_path / "m.sock"
    options = ("--listen", "127.0.0.1:0", "--metrics", str(where), "--log", "json", "--log-level", "debug")
    options += ("--spans", collector[0])
    ended: list[Exception] = []
    with Served(path, *options) as served:
        assert stat.S_IMODE(where.stat().st_mode) == 0o600
        with nandarray.open(served.word("url")) as remote:
            program = nandarray.Program.from_c(FOREVER)

            def run() -> None:
                with pytest.raises(CancelledError) as caught:
                    remote["x"].offload(program, task_bytes=8)
                ended.append(caught.value)

            thread = threading.Thread(target=run)
            thread.start()
            status = until(lambda: (found := json.loads(cli("serve", path, "--status")))["running"] and found)
            (running,) = status["running"]
            assert (running["programs"], running["stopping"]) == ("forever", False)
            assert 0 <= running["tasks_done"] < running["tasks"] == 1000
            assert running["host"] == status["associations"][0][1]
            assert running["memory_bytes"] > 0
            assert status["pid"] == served.process.pid
            assert status["uptime_seconds"] > 0
            assert (status["device"], status["paced"], status["transport"]) == (None, False, "tcp")
            seen = until(
                lambda: (found := samples(http(where)[1])) and any("run_cpu" in one for one in found) and found
            )
            labels = f'{{run="{running["id"]}",host="{running["host"]}",programs="forever"}}'
            assert seen["nandarray_running_programs"] == 1
            until(lambda: samples(http(where)[1])["nandarray_run_cpu_seconds" + labels] > 0.05)
            assert "no run 4711 is running" in cli("serve", path, "--kill", "4711", code=1)
            assert "rules and secrets are read" in cli("serve", path, "--reload")
            assert cli("serve", path, "--kill", str(running["id"])) == f"run {running['id']} is told to stop\n"
            thread.join(60)
            assert str(ended[0]) == f"run {running['id']} was stopped by the operator of the server"
            # The host goes on, and so does the drive.
            assert int(remote["x"].reduce("sum")) == 499500
            until(lambda: samples(http(where)[1])["nandarray_running_programs"] == 0)
        lines = [json.loads(line) for line in served.end()]
    assert not where.exists()
    assert not list(tmp_path.glob("*.serve*"))
    events = [line["event"] for line in lines]
    assert events[:2] == ["start", "ready"]
    assert events[-1] == "stop"
    runs = ["run_begin", "run_killed", "run_begin", "run_end"]
    assert [one for one in events if one.startswith("run_")] == runs
    assert events.count("connect") == events.count("disconnect") == 2  # of commands, of runs
    for line in lines:
        kind = LINES[line["event"]]
        assert line["level"] == kind.level
        assert set(line) <= {"time", "level", "event", *kind.fields}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    killed = lines[events.index("run_killed")]
    assert (killed["run"], killed["programs"], killed["host"]) == (running["id"], "forever", running["host"])
    assert killed["cpu_ns"] > 10**7
    # Its spans are the lines of runs.
    sent = [TracesData.FromString(body).resource_spans[0] for body in collector[1]]
    assert {one.key: one.value.string_value for one in sent[0].resource.attributes}["service.name"] == "nandarray"
    spans = [span for one in sent for span in one.scope_spans[0].spans if span.name.startswith("run")]
    assert [(span.name, span.status.code) for span in spans] == [("run forever", 2), ("run sum", 0)]
    assert spans[0].status.message == killed["why"]
    for span, line in zip(spans, [killed, lines[events.index("run_end")]], strict=True):
        assert span.end_time_unix_nano - span.start_time_unix_nano == line["duration_ns"]
        assert {one.key for one in span.attributes} == {f"nandarray.{name}" for name in LINES[line["event"]].fields}


def test_a_collector_that_is_not_there_costs_spans_and_nothing_else(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # it takes connections, and answers none
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Served(path, "--listen", "127.0.0.1:0", "--log", "json", "--spans", url) as served:
            with nandarray.open(served.word("url")) as remote:
                assert int(remote["x"].reduce("sum")) == 499500
            began = time.monotonic()
            lines = served.end()
            assert time.monotonic() - began < 10
    assert all(json.loads(line)["event"] == "spans_lost" for line in lines), lines
    for wrong in ("localhost:4318", "ftp://x", "", "http://[", "http://x:y"):
        said = cli("serve", path, "--spans", wrong, code=1)
        assert f"must be an http or https URL, not '{wrong}'" in " ".join(said.split())


def test_a_program_in_a_slot_that_is_killed_tells_its_host_why(path: Path) -> None:
    with nandarray.open(path, "r+") as store, nandarray.serve(store) as server, connect(server.url) as remote:
        program = remote.load(nandarray.Program.from_c(FOREVER).elf)

        def kill() -> None:
            server.kill(until(lambda: server.status()["running"])[0]["id"])

        thread = threading.Thread(target=kill)
        thread.start()
        with pytest.raises(
            NandarrayError, match=r"Program Failed .*: run \d+ was stopped by the operator of the server"
        ):
            program.execute(remote["x"])
        thread.join()
        assert server.status()["running"] == []
        for wrong in (1, 0, -1, 1 << 64):
            with pytest.raises(NotFoundError, match=f"no run {wrong} is running"):
                server.kill(wrong)


def test_metrics_count_what_hosts_did(path: Path) -> None:
    rng = np.random.default_rng(7)
    with nandarray.open(path, "r+") as store, nandarray.serve(store, metrics="127.0.0.1:0") as server:
        counts = {"read": 0, "write": 0, "flush": 0}
        blocks = {"read": 0, "write": 0}
        hosts = {name: connect(server.url, hostnqn=name) for name in ('nqn.2026-01.org.a:"\\', "nqn.2026-01.org.b:b")}
        for name, remote in hosts.items():
            for kind in rng.choice(list(counts), 50):
                many = int(rng.integers(1, 5))
                if kind == "flush":
                    assert remote.submit(Flush(1)).ok
                elif kind == "read":
                    assert remote.submit(Read(1, 0, many), bytearray(4096 * many)).ok
                else:
                    assert remote.submit(Write(1, 0, many), bytes(4096 * many)).ok
                if name.endswith("b"):
                    counts[kind] += 1
                    blocks[kind] = blocks.get(kind, 0) + many
        assert not hosts["nqn.2026-01.org.b:b"].submit(Read(1, 1000, 1), bytearray(4096)).ok
        assert server.metrics_address is not None
        head, text = http(server.metrics_address)
        assert head.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
        seen = samples(text)
        for remote in hosts.values():
            remote.close()
    for kind, count in counts.items():
        labels = f'{{tenant="nqn.2026-01.org.b:b",kind="{kind}"'
        failed = int(kind == "read")
        assert seen[f"nandarray_operation_duration_seconds_count{labels}}}"] == count + failed
        assert seen[f'nandarray_operation_duration_seconds_bucket{labels},le="+Inf"}}'] == count + failed
        assert seen[f"nandarray_operations_failed_total{labels}}}"] == failed
        assert 0 < seen[f"nandarray_operation_duration_seconds_sum{labels}}}"] < 60
        buckets = [
            value
            for name, value in seen.items()
            if name.startswith(f"nandarray_operation_duration_seconds_bucket{labels}")
        ]
        assert buckets == sorted(buckets)
    labels = '{tenant="nqn.2026-01.org.b:b",kind='
    assert seen[f'nandarray_sent_bytes_total{labels}"read"}}'] == 4096 * blocks["read"]
    assert seen[f'nandarray_received_bytes_total{labels}"write"}}'] == 4096 * blocks["write"]
    assert seen['nandarray_failures_total{status="LBA Out of Range"}'] == 1
    assert 'tenant="nqn.2026-01.org.a:\\"\\\\"' in text
    parser = pytest.importorskip("prometheus_client.parser")
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    tenants = {one.labels["tenant"] for one in families["nandarray_operation_duration_seconds"].samples}
    assert tenants == set(hosts)
    told = {metric.full_name.removesuffix("_total"): metric for metric in metrics.METRICS}
    for name, family in families.items():
        assert (family.type, family.documentation) == (told[name].type, told[name].help)


def test_metrics_of_a_server_in_shared_memory(path: Path, tmp_path: Path) -> None:
    options = ("--shm", "./region", "--metrics", "127.0.0.1:0", "--log-level", "info", "--queues", "2")
    with Served(path, *options) as served:
        address = served.word("metrics")
        with nandarray.open(f"shm://{tmp_path}/region") as client:
            assert int(client["x"][7]) == 7
            seen = samples(http(address)[1])
            assert seen["nandarray_shm_commands_total"] > 0
            until(lambda: samples(http(address)[1])["nandarray_shm_clients"] == 1)
            assert seen[f'nandarray_build_info{{version="{nandarray.__version__}",transport="shm"}}'] == 1
            status = json.loads(cli("serve", path, "--status"))
            assert (status["transport"], status["served"]) == ("shm", 1)
            assert status["uptime_seconds"] > 0
        lines = served.end()
    assert [line.split()[2] for line in lines] == ["start", "ready", "connect", "disconnect", "stop"]


def test_completions_of_a_paced_drive_are_counted() -> None:
    with nandarray.open(device="qlc-enterprise", mode="w") as store:
        store["m"] = np.zeros((64, 64), "<f4")
        with nandarray.serve(store, pace=True, metrics="127.0.0.1:0") as server, nandarray.open(server.url) as remote:
            remote["m"][...]
            pace = server.status()["pace"]
            assert server.metrics_address is not None
            seen = samples(http(server.metrics_address)[1])
            assert seen["nandarray_paced_completions_total"] >= pace["completions"] > 0
            assert 0 <= pace["late"] <= seen["nandarray_paced_late_completions_total"]


def test_logins_that_are_refused_are_logged_once_in_a_while(path: Path, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text(f"nqn.2026-01.org.a:a {new_secret()}\n")
    secrets.chmod(0o600)
    evil = "nqn.2026-01.org.e:\x1b[31m\u202e\n"
    with Served(path, "--listen", "127.0.0.1:0", "--secret-file", str(secrets)) as served:
        url = served.word("url")
        with pytest.raises(InvalidError):
            connect(url, hostnqn="nqn.2026-01.org.x:x", secret=new_secret())
        with pytest.raises(InvalidError):
            connect(url, hostnqn="nqn.2026-01.org.a:a", secret=new_secret())
        host, port = served.word("address").rsplit(":", 1)
        native = _nandarray.NvmeHost
        with pytest.raises(InvalidError):
            native.connect(f"{host}:{port}", served.word("NQN"), hostnqn=evil)
        lines = served.end()
    assert [line.split(maxsplit=3)[1:] for line in lines] == [
        ["warning", "login_refused", 'host=nqn.2026-01.org.x:x why="unknown host"'],
        ["warning", "login_refused", 'host=nqn.2026-01.org.a:a why="wrong secret"'],
        ["warning", "login_refused", r'host="nqn.2026-01.org.e:\u001b[31m\u202e\n" why="unknown host"'],
    ]


# --- attacked ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def endpoint(path: Path) -> Iterator[nandarray.nvme.Server]:
    with nandarray.open(path, "r+") as store, nandarray.serve(store, metrics="127.0.0.1:0") as server:
        yield server


def test_an_endpoint_answers_beside_clients_that_do_not_speak(endpoint: nandarray.nvme.Server) -> None:
    assert endpoint.metrics_address is not None
    host, port = endpoint.metrics_address.rsplit(":", 1)
    silent = [socket.create_connection((host, int(port))) for _ in range(100)]
    for number, one in enumerate(silent):
        if number % 2:
            one.sendall(b"GET /metrics HT")
    begin = time.monotonic()
    assert http(endpoint.metrics_address)[0].startswith("HTTP/1.1 200")
    assert time.monotonic() - begin < answers.SECONDS_MAX
    with connect(endpoint.url) as remote:
        assert remote.submit(Flush(1)).ok
    # All of them end: those beyond the limit at once, the others in time.
    for one in silent:
        one.settimeout(answers.SECONDS_MAX + 10)
        with one, contextlib.suppress(ConnectionResetError):
            assert one.recv(1) == b""


def test_an_endpoint_refuses_what_is_no_request_for_metrics(endpoint: nandarray.nvme.Server) -> None:
    address = endpoint.metrics_address
    assert address is not None
    for request, status in [
        (b"GET /metrics HTTP/1.1\r\n\r\n", 200),
        (b"GET /metrics?x=1 HTTP/1.0\r\nhost: [::1]:9464\r\n\r\n", 200),
        (b"HEAD /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.1\r\nHost: evil.example:9464\r\n\r\n", 403),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 403),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"\xff\x00\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
    ]:
        assert http(address, request)[0].startswith(f"HTTP/1.1 {status} "), request
    long = b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (answers.REQUEST_BYTES_MAX + 1)
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        assert http(address, long) == ("", "")


@pytest.mark.parametrize(
    "address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:9464", "example.org:1", "127.0.0.1:x", "m.sock", ""]
)
def test_metrics_are_not_served_to_other_machines(path: Path, address: str) -> None:
    with nandarray.open(path, "r+") as store:
        with pytest.raises(InvalidError, match="metrics is .*must be"):
            nandarray.serve(store, metrics=address)
        with nandarray.serve(store) as server:  # nothing is left of the one that failed
            assert server.metrics_address is None


@pytest.mark.parametrize("what", ["file", "link", "dangling", "folder", "live"])
def test_nothing_that_is_there_makes_room_for_a_socket(tmp_path: Path, what: str) -> None:
    place, other = tmp_path / "s.sock", tmp_path / "other"
    other.write_text("keep")
    made: socket.socket | None = None
    if what == "file":
        place.write_text("keep")
    elif what == "link":
        place.symlink_to(other)
    elif what == "dangling":
        place.symlink_to(tmp_path / "nothing")
    elif what == "folder":
        place.mkdir()
    else:
        made = answers.bind_path(place)
    before = place.lstat()
    with pytest.raises(InvalidError, match="is there, and is no socket|another server listens"):
        answers.bind_path(place)
    assert place.lstat() == before
    assert other.read_text() == "keep"
    assert not (tmp_path / "nothing").exists()
    if made is not None:
        made.close()
        again = answers.bind_path(place)  # its server has ended
        assert stat.S_IMODE(place.lstat().st_mode) == 0o600
        again.close()


def test_control_answers_only_orders_that_it_has(path: Path) -> None:
    killed = []
    one = control.ControlSocket(path, "tcp", {"kill": lambda run: killed.append(run) or {"text": "x"}})
    try:
        assert one.address is not None
        place = Path(one.address)
        assert place == path.with_name(path.name + ".serve.sock")

        def ask(request: bytes) -> Any:
            return json.loads(answers.ask(place, request, users={os.geteuid()}))

        for wrong in [
            b"", b"\n", b"[]\n", b"7\n", b'"kill"\n', b"{}\n", b"\xff\n", b'{"command": []}\n',
            b'{"command": "halt"}\n',
            b'{"command": "kill"}\n', b'{"command": "kill", "run": true}\n', b'{"command": "kill", "run": "1"}\n',
            b'{"command": "kill", "run": 1, "more": 1}\n', b"[" * 8000 + b"\n", b'{"command": "status"}\n',
        ]:  # fmt: skip
            answer = ask(wrong)
            assert (answer["ok"], answer["kind"]) == (False, "invalid"), wrong
        assert ask(b'{"command": "reload"}') == {"ok": True, "text": "nothing to reload"}
        assert ask(b'{"command": "kill", "run": 7}\n') == {"ok": True, "text": "x"}
        assert killed == [7]
        with pytest.raises(PermissionError):
            answers.ask(place, b"\n", users=set())
        # A second server of the store has its socket elsewhere; the first one keeps its own.
        second = control.ControlSocket(path, "tcp", {})
        assert second.address != one.address
        second.stop()
        assert ask(b'{"command": "reload"}\n')["ok"]
    finally:
        one.stop()
    assert not place.exists()
    with pytest.raises(NotFoundError):
        control.send(path, "tcp", "status")


def test_a_folder_without_rights_ends_no_server(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status file and the socket beside the store cannot be: the socket is in a folder of this user."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    long = path.rename(path.with_name("a" * 100 + ".nand"))  # longer than a socket's name may be
    with Served(long, "--listen", "127.0.0.1:0") as served:
        found = until(lambda: list(runtime.rglob("*.sock")))
        assert stat.S_IMODE(found[0].parent.stat().st_mode) == 0o700
        assert json.loads(cli("serve", long, "--status"))["pid"] == served.process.pid
        assert served.end() == []
    assert not list(runtime.rglob("*.sock"))
    # A planted folder that others may write is not used.
    (runtime / "nandarray").chmod(0o777)
    assert control._own_folder(make=True) is None


# --- lines and pages --------------------------------------------------------------------------------------------------


def test_every_event_of_the_engine_has_a_line() -> None:
    assert set(_nandarray.nvme_event_kinds()) <= set(LINES)
    for name, kind in LINES.items():
        assert kind.level in LEVELS, name
        assert set(kind.fields) <= set(FIELDS), name
    assert {one for kind in LINES.values() for one in kind.fields} == set(FIELDS)


def test_lines_hold_no_characters_that_a_terminal_obeys() -> None:
    evil = "a\x1b]0;x\x07\x9b\x7f\u202eb\nc\"'=\\ "
    for form in ("text", "json"):
        line = ServerLog(io.StringIO(), form).line("login_refused", 0.5, {"host": evil, "why": ""})
        assert line.endswith("\n")
        assert re.fullmatch(r"[ -~]+", line[:-1]), line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.500Z", "level": "warning", "event": "login_refused", "host": evil, "why": "",
    }  # fmt: skip


def test_a_log_that_cannot_be_written_ends_nothing() -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    log = ServerLog(Full(), level="info")
    for number in range(1000):
        log.add("start", store=str(number))
    log.stop()
    # Nor does it end what is passed on.
    passed: list[str] = []
    log = ServerLog(Full(), level="info")
    log.pass_to(lambda kind, _at, _fields: passed.append(kind))
    log.add("start", store="a")
    until(lambda: passed == ["start"])
    log.add("stop")
    log.stop()
    assert passed == ["start", "stop"]


def test_the_page_is_that_of_the_tables() -> None:
    page = PAGE.read_text()
    for table in (metrics.page_table(), *page_tables().split("\n\n")):
        assert table.strip() in page, "python -m nandarray.serving.metrics and .log print the tables"
    for name, command in control.COMMANDS.items():
        assert f"| `{name}` |" in page
        assert command.help in page
