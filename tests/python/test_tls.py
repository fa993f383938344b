"""TLS 1.3 of served stores: our initiator, OpenSSL's client as a foreign host, files of keys, two paths.

OpenSSL's client does the handshake with what Linux derives of a key, and speaks NVMe/TCP over it byte by byte.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from typer.testing import CliRunner

import nandarray
from nandarray import _nandarray
from nandarray.cli import app
from nandarray.errors import InvalidError
from nandarray.nvme import Server, connect, new_secret, new_tls_key, read_tls_keys

HOST, OTHER = "nqn.2026-01.org.example:host", "nqn.2026-01.org.example:other"
SUITES = {"sha256": "TLS_AES_128_GCM_SHA256", "sha384": "TLS_AES_256_GCM_SHA384"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[nandarray.Store]:
    with nandarray.open(tmp_path / "a.nand", "w") as made:
        made["m"] = np.arange(24, dtype="<i4").reshape(4, 6)
        yield made


def read_keys(store: nandarray.Store) -> dict[str, str]:
    return {HOST: new_tls_key(), OTHER: new_tls_key("sha384") + " compat"}


def test_a_store_is_used_over_tls(store: nandarray.Store) -> None:
    keys = read_keys(store)
    with nandarray.serve(store, tls=keys) as server:
        assert server.url.startswith("nvme+tls://127.0.0.1:")
        assert server.connect_line is not None
        assert server.connect_line.endswith(" -q HOSTNQN --tls")
        for host, key in keys.items():
            with connect(server.url, hostnqn=host, tls=key) as remote:
                assert (remote["m"][1:3, 2:4] == [[8, 9], [14, 15]]).all()
                values = np.random.default_rng(5).integers(0, 99, (4000, 500))
                remote["large"] = values
                assert (remote["large"][::-1, 3:] == values[::-1, 3:]).all()
                assert remote["m"].reduce("sum") == 276
                del remote["large"]
            remote = connect(server.url, hostnqn=host, tls=key, mode="r")
            with remote, pytest.raises(TypeError, match="secret"):
                pickle.dumps(remote["m"])
        assert server.status()["refused_logins"] == 0


def test_what_is_wrong_is_told(store: nandarray.Store) -> None:
    keys, secret = read_keys(store), new_secret()
    with nandarray.serve(store, tls=keys, secrets={HOST: secret}) as server, nandarray.serve(store) as plain:
        plain_url = server.url.replace("nvme+tls", "nvme+tcp")
        for url, options, expected in [
            (server.url, {"tls": new_tls_key()}, f"it has no key, or another one, of host {HOST}"),
            (server.url, {"tls": keys[OTHER]}, "it has no key, or another one"),
            (server.url, {}, "a key of TLS must be given for"),
            (plain_url, {}, "refuses a connection without TLS"),
            (plain_url, {"tls": keys[HOST]}, "a URL with a key of TLS must begin with nvme+tls://"),
            (plain.url.replace("nvme+tcp", "nvme+tls"), {"tls": keys[HOST]}, "answered without TLS"),
            (server.url, {"tls": keys[HOST]}, "there is no secret for it"),
            (server.url, {"tls": keys[HOST], "secret": new_secret()}, "authentication failed"),
            (server.url, {"tls": "NVMeTLSkey-1:01:AAAA:"}, f"the key of {HOST}: a key of TLS must have 32 bytes"),
            (server.url, {"tls": b"x"}, "tls must be a text, not bytes"),
            (server.url, {"tls": keys[HOST], "secret": 5}, "secret must be a text, not int"),
            (server.url, {"tls": secret}, "must have the form NVMeTLSkey-1:hh:BASE64:"),
        ]:
            with pytest.raises(InvalidError) as caught:
                connect(url, hostnqn=HOST, **options)
            assert expected in str(caught.value), (url, options)
        with connect(server.url, hostnqn=HOST, tls=keys[HOST], secret=secret) as remote:
            assert remote["m"][3, 5] == 23
        # The secret is a host's that has one; a key is every host's.
        with connect(server.url, hostnqn=OTHER, tls=keys[OTHER]) as remote:
            assert remote["m"][3, 5] == 23
        with pytest.raises(InvalidError, match="a key of TLS must be given for"):
            nandarray.open(server.url)
        with pytest.raises(InvalidError, match="keep its keys of TLS"):
            server.reload(secrets={HOST: secret})
    for options, expected in [
        ({"tls": {}}, "tls is empty"),
        ({"tls": keys[HOST]}, "tls must be a mapping from names of hosts, not str"),
        ({"tls": {"host": keys[HOST]}}, "host"),
        ({"tls": {"nqn.2026-01.org.example:*": keys[HOST]}}, "stands for many hosts"),
        ({"tls": {HOST: 5}}, f"the key of {HOST} must be a text, not int"),
        ({"tls": keys, "hosts": ["nqn.2026-01.org.example:third"]}, "third has no key of TLS"),
        ({"fallback": ["unix:/tmp/x"]}, "a unix socket is one path"),
    ]:
        with pytest.raises(InvalidError, match=expected):
            nandarray.serve(store, **options)  # type: ignore[arg-type]  # wrong on purpose


def test_a_key_is_proof_enough_for_any_address(store: nandarray.Store) -> None:
    with pytest.raises(InvalidError, match="needs a secret or a key of TLS, or insecure"):
        nandarray.serve(store, "0.0.0.0:0")
    with nandarray.serve(store, "0.0.0.0:0", tls=read_keys(store)) as server:
        assert ":0/" not in server.url


def test_a_key_proves_nothing_by_a_unix_socket(tmp_path: Path, store: nandarray.Store) -> None:
    key, secret, rules = new_tls_key(), new_secret(), tmp_path / "node.toml"
    rules.write_text(f'[tenants.one]\nhosts = ["{HOST}"]\nread = ["*"]\n')
    listen = ["127.0.0.1:0", f"unix:{tmp_path / 'socket'}"]
    with pytest.raises(InvalidError, match=f"{HOST}, a host of a tenant .* by a unix socket, which has no TLS, anyone"):
        nandarray.serve(store, listen, tls={HOST: key}, config=rules)
    with nandarray.serve(store, listen, tls={HOST: key}, secrets={HOST: secret}, config=rules) as server:
        for url, tls in zip(server.urls, (key, None), strict=True):
            with pytest.raises(InvalidError, match="there is no secret for it"):
                connect(url, hostnqn=HOST, tls=tls)
            with connect(url, hostnqn=HOST, tls=tls, secret=secret, mode="r") as remote:
                assert remote["m"][3, 5] == 23
    with nandarray.serve(store, tls={HOST: key}, config=rules) as server:
        assert server.reload(tls={HOST: key}, config=rules) == []


def test_a_token_and_a_key_of_one_host_are_given_together(tmp_path: Path, store: nandarray.Store) -> None:
    """The file of secrets has a beginning of names, that of keys one such name: the host is this one."""
    token, key, begins, rules = new_secret(), new_tls_key(), HOST[:-2], tmp_path / "node.toml"
    rules.write_text(f'[tenants.one]\nhosts = ["{begins}*"]\nread = ["*"]\n')
    for name, text in ("token", f"{begins}* {token}"), ("key", f"{HOST} {key}"), ("other", f"{OTHER} {key}"):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    for config in (None, rules):
        with nandarray.serve(store, tls={HOST: key}, secrets={f"{begins}*": token}, config=config) as server:
            line = ["nvme", "list", server.url, "--secret-file", str(tmp_path / "token"), "--tls"]
            done = CliRunner().invoke(app, [*line, str(tmp_path / "key")])
            assert done.exit_code == 0, done.output
            wrong = CliRunner().invoke(app, [*line, str(tmp_path / "other")])
            told = " ".join((wrong.output + wrong.stderr).split())
            assert wrong.exit_code != 0
            assert f"the key of {OTHER}" in told
            with pytest.raises(InvalidError, match="no secret for it"):
                connect(server.url, hostnqn=HOST, tls=key)
    with pytest.raises(InvalidError, match="lab-\\* has no key of TLS"):
        nandarray.serve(store, tls={HOST: key}, secrets={"nqn.lab-*": token})
    rules.write_text('[tenants.one]\nhosts = ["nqn.lab-*"]\n')
    with pytest.raises(InvalidError, match="host is a host of no tenant"):
        nandarray.serve(store, tls={HOST: key}, secrets={"nqn.lab-*": token}, config=rules)


def psk_session(key: bytes, suite: bytes) -> str:
    """Return a session of OpenSSL (its SSL_SESSION, in PEM) with a pre-shared key of a cipher suite."""
    parts = (
        b"\x02\x01\x01" + b"\x02\x02\x03\x04" + b"\x04\x02" + suite + b"\x04\x00" + b"\x04" + bytes([len(key)]) + key
    )
    text = base64.encodebytes(b"\x30" + bytes([len(parts)]) + parts).decode()
    return f"-----BEGIN SSL SESSION PARAMETERS-----\n{text}-----END SSL SESSION PARAMETERS-----\n"


def openssl(server: Server, psk: tuple[str, bytes], file: Path, *, suite: str, sent: bytes) -> tuple[bytes, str]:
    """Return what the server sends to OpenSSL's client, and what the client says of it."""
    line = ["openssl", "s_client", "-connect", server.address, "-tls1_3", "-ciphersuites", suite, "-quiet"]
    line += ["-psk_identity", psk[0]]
    if suite == SUITES["sha384"]:
        file.write_text(psk_session(psk[1], b"\x13\x02"))
        line += ["-psk_session", str(file)]
    else:
        line += ["-psk", psk[1].hex()]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(sent)
            process.stdin.flush()
        found = b""
        while len(found) < 128 + 24 and (piece := os.read(process.stdout.fileno(), 4096)):
            found += piece
        process.kill()
        told = process.stderr.read().decode()
    return found, told


def greeting(hostnqn: str, subnqn: str) -> bytes:
    """Return the PDUs that open an admin queue: ICReq, and a capsule with Connect."""
    ic = struct.pack("<BBBBI", 0, 0, 128, 0, 128).ljust(128, b"\0")
    data = b"h" * 16 + struct.pack("<H", 0xFFFF)
    data = data.ljust(256, b"\0") + subnqn.encode().ljust(256, b"\0") + hostnqn.encode().ljust(256, b"\0")
    data = data.ljust(1024, b"\0")
    entry = struct.pack("<BBHB19x", 0x7F, 0x40, 7, 1) + struct.pack("<QIBBBB", 0, 1024, 0, 0, 0, 1)
    entry += struct.pack("<HHHBBI", 0, 0, 31, 0, 0, 0)
    return ic + struct.pack("<BBBBI", 4, 0, 72, 72, 72 + 1024) + entry.ljust(64, b"\0") + data


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs OpenSSL's program")
@pytest.mark.parametrize("hash", ["sha256", "sha384"])
def test_a_foreign_host_connects(tmp_path: Path, store: nandarray.Store, hash: Literal["sha256", "sha384"]) -> None:
    keys = {HOST: new_tls_key(hash), OTHER: new_tls_key(hash)}
    with nandarray.serve(store, tls=keys) as server:
        number, length = {"sha256": ("01", 32), "sha384": ("02", 48)}[hash]

        def shake(psk: tuple[str, bytes], sent: bytes = b"", suite: str = SUITES[hash]) -> tuple[bytes, str]:
            return openssl(server, psk, tmp_path / "session", suite=suite, sent=sent)

        psks = _nandarray.nvme_tls_psks(keys[HOST], HOST, server.nqn)
        assert [psk[0][:8] for psk in psks] == [f"NVMe1R{number}", f"NVMe0R{number}"]
        for psk in psks:
            found, told = shake(psk, greeting(HOST, server.nqn))
            assert (found[0], found[2], found[128], found[150:152]) == (1, 128, 5, b"\0\0"), (found, told)
            # A key is proof of its own host's name, and of no other's.
            found, told = shake(psk, greeting(OTHER, server.nqn))
            assert (found[128], int.from_bytes(found[150:152], "little") >> 1 & 0x7FF) == (5, 0x184), (found, told)
            for wrong in [(psk[0], bytes(length)), (psk[0].replace(HOST, OTHER), psk[1])]:
                found, told = shake(wrong)
                assert found == b"", told
        assert server.status()["refused_logins"] == 6


def test_files_of_keys(tmp_path: Path, store: nandarray.Store) -> None:
    run = CliRunner().invoke
    lines = [
        run(app, ["nvme", "tls-key", host, "--hash", hash]).output
        for host, hash in ((HOST, "sha256"), (OTHER, "sha384"))
    ]
    file = tmp_path / "keys"
    file.write_text("# of hosts\n\n" + "".join(lines))
    file.chmod(0o644)
    with pytest.raises(InvalidError, match="other users may read the keys"):
        read_tls_keys(file)
    file.chmod(0o600)
    keys = read_tls_keys(file)
    assert list(keys) == [HOST, OTHER]
    for text, expected in [
        ("", "has no key of TLS"),
        (f"{HOST}\n", "line 1 must be a host's NQN, its key of TLS and perhaps"),
        (f"{lines[0]}{lines[0]}", f"line 2: a second key of {HOST}"),
    ]:
        file.write_text(text)
        with pytest.raises(InvalidError, match=expected):
            read_tls_keys(file)
    assert "sha256, sha384" in run(app, ["nvme", "tls-key", "--hash", "md5"]).output
    with nandarray.serve(store, tls=keys) as server:
        file.write_text(lines[1])
        done = run(app, ["nvme", "create", server.url, "1", "1MiB", "--tls", str(file)])
        assert done.exit_code == 0, done.output
        assert '"nsid": 1' in run(app, ["nvme", "list", server.url, "--json", "--tls", str(file)]).output
        file.write_text("".join(lines))
        told = run(app, ["nvme", "list", server.url, "--tls", str(file)])
        assert "has keys of 2 hosts" in told.output


def test_two_paths_have_states(store: nandarray.Store) -> None:
    """A host reads of each controller the state of its port, and of discovery both ports."""
    identify = bytes([0x06]) + bytes(39) + b"\x01" + bytes(23)

    def page(address: str, nqn: str, entry: bytes) -> bytes:
        host = _nandarray.NvmeHost.connect(address, nqn, hostnqn=HOST)
        done, found = host.call(entry, None, 4096, admin=True)
        host.close()
        assert done[14:] == b"\0\0", done
        return found

    paths, discovery = _nandarray.nvme_log_entry(0x0C, 4096), _nandarray.nvme_log_entry(0x70, 4096)
    with nandarray.serve(store, fallback="127.0.0.1:0") as server:
        assert len(server.urls) == 2
        for address, state in zip(server.addresses, (1, 2), strict=True):
            found = page(address, server.nqn, paths)
            groups, group, count = struct.unpack_from("<8xH6xII", found)
            assert (groups, group, found[32]) == (1, 1, state)
            assert list(struct.unpack_from(f"<{count}I", found, 48)) == [1022, 1023, 1024]
            # CMIC with ports, controllers and states; ANACAP; ANAGRPMAX, NANAGRPID; MNAN, without which Linux refuses.
            found = page(address, server.nqn, identify)
            assert (found[76], found[343], *struct.unpack_from("<II", found, 344)) == (0b1011, 0b1000011, 1, 1)
            assert struct.unpack_from("<I", found, 540) == (1024,)
            log = page(address, "nqn.2014-08.org.nvmexpress.discovery", discovery)
            told = [log[1024 * i :][:1024] for i in range(1, 1 + int.from_bytes(log[8:16], "little"))]
            ports = [f"{one[512:768].decode().strip()}:{one[32:64].decode().strip()}" for one in told]
            assert ports == sorted(server.addresses, key=lambda one: one != address)
            assert [one[4] for one in told] == [1, 2]
    with nandarray.serve(store) as server:
        found = page(server.address, server.nqn, identify)
        assert (found[76], found[343]) == (0b10, 0)
        with pytest.raises(AssertionError):
            page(server.address, server.nqn, paths)
