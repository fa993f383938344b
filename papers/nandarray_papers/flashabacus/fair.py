"""A fifth scheduler, in Python and from outside of the runtime: fair shares between applications.

It gives the next screen to the application that had the fewest; :func:`nandarray.array.session.register_scheduler`
makes it known to sessions and to the modelled accelerator.
"""

from __future__ import annotations

from nandarray.array.session import register_scheduler

__all__ = ["NAME", "FairShare", "known"]

#: Name of the scheduler.
NAME = "fair-share"


class FairShare:
    """Screens of the application that had the fewest, its oldest kernel first.

    Parameters
    ----------
    workers : int
        Not needed.
    """

    splits = True

    def __init__(self, workers: int) -> None:
        del workers
        self._served: dict[int, int] = {}
        self._application: dict[int, int] = {}
        self._ready: dict[int, dict[int, int]] = {}

    def arrived(self, number: int, application: int, priority: int, deadline: int | None, work: int) -> None:
        """A kernel may run. An application that comes late begins with the least that another had."""
        del priority, deadline, work
        self._application[number] = application
        self._served.setdefault(application, min((self._served[one] for one in self._ready), default=0))

    def ready(self, kernel: int, screens: int) -> None:
        """Note that more screens of a kernel may run."""
        kernels = self._ready.setdefault(self._application[kernel], {})
        kernels[kernel] = kernels.get(kernel, 0) + screens

    def next(self, worker: int) -> int | None:
        """Return the kernel whose next screen a worker runs."""
        del worker
        if not self._ready:
            return None
        application = min(self._ready, key=lambda one: (self._served[one], one))
        kernels = self._ready[application]
        kernel = min(kernels)
        kernels[kernel] -= 1
        if kernels[kernel] == 0:
            del kernels[kernel]
        if not kernels:
            del self._ready[application]
        self._served[application] += 1
        return kernel

    def ended(self, kernel: int) -> None:
        """A kernel is done, failed or cancelled."""
        application = self._application.pop(kernel)
        kernels = self._ready.get(application, {})
        kernels.pop(kernel, None)
        if application in self._ready and not kernels:
            del self._ready[application]

    def lost(self, worker: int) -> None:
        """A worker has failed; its screen comes again by :meth:`ready`."""


_KNOWN: list[str] = []


def known() -> str:
    """Make the scheduler known in this process, once; return its name."""
    if not _KNOWN:
        register_scheduler(NAME, FairShare)
        _KNOWN.append(NAME)
    return NAME
