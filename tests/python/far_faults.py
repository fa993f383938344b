"""Objects whose requests fail as a test says: before they are done, or with their answer lost; late listings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from nandarray.errors import MediaError
from nandarray.remote.objects import Facts, Objects


class FaultyObjects(Objects):
    """Objects that pass requests on to others.

    Parameters
    ----------
    inner : Objects
        The others.
    fault : callable, optional
        Called with the number of the request from 0, its name and its key. It returns None, ``"refused"`` (nothing is
        done, as by a 503), ``"lost"`` (it is done, and its answer is lost), ``"there"`` (a create that is refused
        though the key is free, as by a 409), or ``"late"`` (a listing that lacks the latest manifest). Its errors
        are the request's.
    """

    def __init__(self, inner: Objects, fault: Callable[[int, str, str], str | None] | None = None) -> None:
        super().__init__(inner.root)
        self.inner, self.fault = inner, fault
        self.requests: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def _asked(self, name: str, key: str, *given: Any) -> Any:
        with self._lock:
            number = len(self.requests)
            self.requests.append((name, key))
        fault = self.fault(number, name, key) if self.fault else None
        if fault == "refused":
            raise MediaError(f"{self.url(key)}: 503 SlowDown")
        if fault == "there":
            return False
        found = getattr(self.inner, name)(key, *given)
        if fault == "lost":
            raise MediaError(f"{self.url(key)}: the connection was closed")
        if fault == "late" and name == "listing":
            newest = min((key for key, _ in found if "/manifests/" in key), default="")
            return [one for one in found if one[0] != newest]
        return found

    def facts(self, key: str) -> Facts:
        return self._asked("facts", key)

    def get(self, key: str, most: int | None = None) -> tuple[memoryview, Facts]:
        return self._asked("get", key, most)

    def get_range(self, key: str, start: int, end: int, facts: Facts) -> memoryview:
        return self._asked("get_range", key, start, end, facts)

    def listing(self, folder: str) -> list[tuple[str, Facts]]:
        return self._asked("listing", folder)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        return self._asked("put_if_absent", key, data)

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._asked("put", key, data)

    def put_file(self, key: str, path: str) -> None:
        self._asked("put_file", key, path)

    def delete(self, key: str) -> None:
        self._asked("delete", key)
