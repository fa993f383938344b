"""An encrypted array beside a plain one: what needs the key, and what a thief of the file sees.

python examples/encrypted.py [store]
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

import nandarray


def main(path: Path) -> None:
    """Store patients' scans under a key that a passphrase gives."""
    salt = os.urandom(16)
    key = hashlib.scrypt(b"correct horse battery staple", salt=salt, n=2**14, r=8, p=1, dklen=32)
    scan = np.full((256, 256, 64), 1234, "i2")
    with nandarray.open(path, "w") as store:
        store.attrs["scrypt_salt"] = salt.hex()  # not a secret
        store.create("patients/0001/scan", data=scan, compression="zstd+shuffle", encryption_key=key)
        store.create("phantom/scan", data=scan)

    with nandarray.open(path) as store:
        print(store.tree())
        try:
            store["patients/0001/scan"]
        except nandarray.WrongKeyError as error:
            print(error)
        mine = store.open_array("patients/0001/scan", encryption_key=key)
        print("with the key:", mine[0, 0, :3], "stored in", mine.stat()["bytes_stored"] >> 10, "KiB")

    raw = path.read_bytes()
    print("names are readable:", b"patients/0001/scan" in raw)
    plain = raw.count(scan[0].tobytes()[:4096])
    print("elements:", plain, "pages readable, all of the plain array:", plain == scan.nbytes // 4096)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "data.nand")
