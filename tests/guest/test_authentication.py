"""A stock kernel that proves its identity, and has the server prove its own, by DH-HMAC-CHAP."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from image import kernel
from machine import HOST, Guest

import nandarray
from nandarray.nvme import new_secret

NQN = "nqn.2026-01.org.example:guest"


@pytest.fixture(autouse=True)
def _able() -> None:
    configuration = next(kernel().parent.glob("config-*")).read_text()
    if "CONFIG_NVME_HOST_AUTH=y" not in configuration:
        pytest.skip(f"{kernel().name} is built without CONFIG_NVME_HOST_AUTH (GUEST_KERNEL names another package)")


@pytest.mark.parametrize("kind", ["none", "sha256", "sha384", "sha512"])
def test_a_kernel_authenticates(guest: Guest, tmp_path: Path, kind: str) -> None:
    mine, its, other = new_secret(kind), new_secret(kind), new_secret(kind)  # type: ignore[arg-type]
    with nandarray.open(tmp_path / "a.nand", mode="w") as store:
        assert store.nvme().create_namespace(1, 256, 4096).ok
        with nandarray.serve(store, secrets={NQN: (mine, its)}) as server:
            port = server.address.rpartition(":")[2]
            line = f"nvme connect -t tcp -a {HOST} -s {port} -n {server.nqn} -q {NQN}"
            assert guest.try_run(line)[0] != 0
            assert guest.try_run(f"{line} --dhchap-secret '{other}'")[0] != 0
            assert guest.try_run(f"{line} --dhchap-secret '{mine}' --dhchap-ctrl-secret '{other}'")[0] != 0
            for more in ("", f" --dhchap-ctrl-secret '{its}'"):
                guest.run(f"{line} --dhchap-secret '{mine}'{more}")
                disk = guest.run("for i in 1 2 3 4 5 6 7 8 9; do ls /dev/nvme?n? 2> /dev/null && break; sleep 1; done")
                assert re.fullmatch(r"/dev/nvme\dn\d\n", disk)
                guest.run("yes nandarray | head -c 65536 > /tmp/data")
                guest.run(f"dd if=/tmp/data of={disk.strip()} bs=4096 oflag=direct")
                guest.run(f"dd if={disk.strip()} of=/tmp/back bs=4096 count=16 iflag=direct && cmp /tmp/back /tmp/data")
                assert server.status()["associations"][0][1] == NQN
                guest.run(f"nvme disconnect -n {server.nqn}")
