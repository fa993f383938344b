"""A card of NVIDIA by its driver's interface (``libcuda``), with a limit of time for every kernel.

A kernel runs on one stream beside its caller, who looks whether it has ended and does what has to be done meanwhile.
One that does not end in time is ended by an abort word, and left alone if that does not help: its process is lost.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Card", "CardError", "HungError", "NoCardError", "Pinned"]

_U64, _U32, _INT, _PTR, _SIZE = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
_NOT_READY = 600
_HOST_MAPPED = 0x3
#: Attributes of a device: major and minor of its architecture.
_MAJOR, _MINOR = 75, 76
#: Errors after which a context takes no more work.
_LOST = range(700, 720)
#: Seconds that a kernel has to leave, once the abort word is set.
_GRACE_S = 5.0

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_U32,),
    "cuDriverGetVersion": (_PTR,),
    "cuDeviceGetCount": (_PTR,),
    "cuDeviceGet": (_PTR, _INT),
    "cuDeviceGetName": (_PTR, _INT, _INT),
    "cuDeviceGetAttribute": (_PTR, _INT, _INT),
    "cuDevicePrimaryCtxRetain": (_PTR, _INT),
    "cuCtxSetCurrent": (_PTR,),
    "cuGetErrorName": (_INT, _PTR),
    "cuMemGetInfo_v2": (_PTR, _PTR),
    "cuMemAlloc_v2": (_PTR, _SIZE),
    "cuMemFree_v2": (_U64,),
    "cuMemHostAlloc": (_PTR, _SIZE, _U32),
    "cuMemFreeHost": (_PTR,),
    "cuMemHostRegister_v2": (_PTR, _SIZE, _U32),
    "cuMemHostUnregister": (_PTR,),
    "cuMemHostGetDevicePointer_v2": (_PTR, _PTR, _U32),
    "cuMemcpyHtoD_v2": (_U64, _PTR, _SIZE),
    "cuMemcpyDtoH_v2": (_PTR, _U64, _SIZE),
    "cuMemcpyHtoDAsync_v2": (_U64, _PTR, _SIZE, _PTR),
    "cuMemcpyDtoHAsync_v2": (_PTR, _U64, _SIZE, _PTR),
    "cuMemsetD8_v2": (_U64, ctypes.c_ubyte, _SIZE),
    "cuStreamCreate": (_PTR, _U32),
    "cuStreamQuery": (_PTR,),
    "cuEventCreate": (_PTR, _U32),
    "cuEventRecord": (_PTR, _PTR),
    "cuEventElapsedTime": (_PTR, _PTR, _PTR),
    "cuEventDestroy_v2": (_PTR,),
    "cuModuleLoadData": (_PTR, _PTR),
    "cuModuleGetFunction": (_PTR, _PTR, ctypes.c_char_p),
    "cuLaunchKernel": (_PTR, *[_U32] * 7, _PTR, _PTR, _PTR),
}


class NoCardError(Exception):
    """There is no card here; the text says why."""


class CardError(Exception):
    """A call of the driver failed."""


class HungError(Exception):
    """A kernel did not end, though the abort word was set."""


@dataclass
class Pinned:
    """Memory of the host that kernels reach: as NumPy sees it, and its address on the device."""

    memory: np.ndarray[Any, Any]
    device: int
    host: int


class Card:
    """The first card, with its primary context current in this thread.

    Parameters
    ----------
    library : str
        The driver's library.

    Raises
    ------
    NoCardError
        There is no driver, or it finds no card.
    """

    def __init__(self, library: str = "libcuda.so.1") -> None:
        # Before the driver is loaded: a kernel that is loaded at its first launch waits for the kernels that run.
        os.environ["CUDA_MODULE_LOADING"] = "EAGER"
        self._cuda = _load(library)
        count, handle = _INT(), _INT()
        code = self._cuda.cuInit(0) or self._cuda.cuDeviceGetCount(ctypes.byref(count))
        if code or not count.value:
            raise NoCardError(f"the driver finds no GPU (code {code})")
        self._call("cuDeviceGet", ctypes.byref(handle), 0)
        self._device = handle.value
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, 256, self._device)
        self.name = name.value.decode()
        version = _INT()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        self.driver = f"{version.value // 1000}.{version.value % 1000 // 10}"
        self.architecture = f"sm_{self._attribute(_MAJOR)}{self._attribute(_MINOR)}"
        self._functions: dict[str, ctypes.c_void_p] = {}
        #: Whether the context takes no more work; nothing is given back then, since that would wait for it.
        self.lost = False
        self._context = _PTR()
        self._abort: Pinned | None = None

    def begin(self, cubin: bytes) -> None:
        """Make the context current and load the kernels.

        Parameters
        ----------
        cubin : bytes
            Compiled for this card's architecture.
        """
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        self.use()
        self._stream = _PTR()
        # In order with copies and fills that name no stream.
        self._call("cuStreamCreate", ctypes.byref(self._stream), 0)
        self._module = _PTR()
        self._image = ctypes.create_string_buffer(cubin, len(cubin) + 1)
        self._call("cuModuleLoadData", ctypes.byref(self._module), self._image)
        self._abort = self.pinned(64)

    def use(self) -> None:
        """Make the context current in the calling thread."""
        self._call("cuCtxSetCurrent", self._context)

    def _call(self, name: str, *words: Any) -> None:
        code = getattr(self._cuda, name)(*words)
        if code:
            self.lost |= code in _LOST
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorName(code, ctypes.byref(text))
            raise CardError(f"{name}: {(text.value or b'').decode() or code}")

    def _attribute(self, which: int) -> int:
        value = _INT()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), which, self._device)
        return value.value

    @property
    def abort(self) -> int:
        """Address on the device of the word that ends the waits of kernels."""
        assert self._abort
        return self._abort.device

    def free_bytes(self) -> int:
        """Return the bytes of device memory that are free."""
        free, every = _SIZE(), _SIZE()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(every))
        return free.value

    def allocate(self, nbytes: int) -> int:
        """Return the address of new device memory, all zeroes."""
        at = _U64()
        self._call("cuMemAlloc_v2", ctypes.byref(at), nbytes)
        self._call("cuMemsetD8_v2", at, 0, nbytes)
        return at.value

    def release(self, *addresses: int) -> None:
        """Give device memory back."""
        for at in () if self.lost else addresses:
            self._call("cuMemFree_v2", at)

    def pinned(self, nbytes: int) -> Pinned:
        """Return new memory of the host, pinned and mapped, all zeroes."""
        at = _PTR()
        self._call("cuMemHostAlloc", ctypes.byref(at), nbytes, _HOST_MAPPED)
        assert at.value
        memory = np.ctypeslib.as_array((ctypes.c_ubyte * nbytes).from_address(at.value))
        memory[:] = 0
        return Pinned(memory, self._seen(at.value), at.value)

    def unpin(self, *pinned: Pinned) -> None:
        """Give memory of :meth:`pinned` back; its array must not be used any more."""
        for one in () if self.lost else pinned:
            self._call("cuMemFreeHost", one.host)

    def register(self, address: int, nbytes: int) -> int:
        """Map memory of this process for kernels; its address on the device."""
        self._call("cuMemHostRegister_v2", address, nbytes, _HOST_MAPPED)
        return self._seen(address)

    def unregister(self, address: int) -> None:
        """End what :meth:`register` began."""
        if not self.lost:
            self._call("cuMemHostUnregister", address)

    def _seen(self, address: int) -> int:
        device = _U64()
        self._call("cuMemHostGetDevicePointer_v2", ctypes.byref(device), address, 0)
        return device.value

    def put(self, to: int, values: np.ndarray[Any, Any]) -> None:
        """Copy an array to the device, and wait for it."""
        self._call("cuMemcpyHtoD_v2", to, values.ctypes.data, values.nbytes)

    def get(self, at: int, count: int, dtype: Any = np.uint64) -> np.ndarray[Any, Any]:
        """Copy an array from the device."""
        values = np.empty(count, dtype)
        self._call("cuMemcpyDtoH_v2", values.ctypes.data, at, values.nbytes)
        return values

    def put_later(self, to: int, address: int, nbytes: int) -> None:
        """Begin a copy from pinned memory, in the order of the stream."""
        self._call("cuMemcpyHtoDAsync_v2", to, address, nbytes, self._stream)

    def get_later(self, to: int, address: int, nbytes: int) -> None:
        """Begin a copy to pinned memory, in the order of the stream."""
        self._call("cuMemcpyDtoHAsync_v2", to, address, nbytes, self._stream)

    def timed(
        self, work: Callable[[], None], limit_s: float = 20, meanwhile: Callable[[], None] = lambda: None,
        give_up: Callable[[], None] = lambda: None,
    ) -> float:  # fmt: skip
        """Do work on the stream, wait until it has ended, and return its seconds on the card.

        Parameters
        ----------
        work : callable
            Begins copies and kernels.
        limit_s : float
            Seconds after which the abort word is set; a kernel that stays then is an error.
        meanwhile : callable
            Called again and again until all has ended.
        give_up : callable
            Called with the abort word, for kernels that wait for something else.

        Raises
        ------
        CardError
            The work failed, or was ended at its limit.
        HungError
            The work does not end.
        """
        assert self._abort
        events = [_PTR(), _PTR()]
        for event in events:
            self._call("cuEventCreate", ctypes.byref(event), 0)
        self._call("cuEventRecord", events[0], self._stream)
        work()
        self._call("cuEventRecord", events[1], self._stream)
        began, told = time.monotonic(), False
        while (code := self._cuda.cuStreamQuery(self._stream)) == _NOT_READY:
            meanwhile()
            time.sleep(0.0001)
            late = time.monotonic() - began - limit_s
            if late > _GRACE_S:
                self.lost = True
                raise HungError(f"it did not end in {limit_s + _GRACE_S:.0f} s")
            if late > 0 and not told:
                self._abort.memory[0], told = 1, True
                give_up()
        self._abort.memory[0] = 0
        if code:
            self._call("cuStreamQuery", self._stream)
        if told:
            raise CardError(f"it was ended after {limit_s:.0f} s")
        ms = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(ms), *events)
        for event in events:
            self._call("cuEventDestroy_v2", event)
        return float(ms.value) / 1e3

    def launch(self, name: str, threads: int, block: int, parameters: Sequence[Any]) -> None:
        """Begin a kernel on the stream.

        Parameters
        ----------
        name : str
            Its name.
        threads, block : int
            Threads of the grid, a multiple of those of a block.
        parameters : sequence of ctypes values
            Its parameters.
        """
        if name not in self._functions:
            function = _PTR()
            self._call("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
            self._functions[name] = function
        words = (_PTR * len(parameters))(*[ctypes.addressof(p) for p in parameters])
        blocks = max(1, threads // block)
        self._call("cuLaunchKernel", self._functions[name], blocks, 1, 1, block, 1, 1, 0, self._stream, words, None)


def _load(library: str) -> ctypes.CDLL:
    try:
        cuda = ctypes.CDLL(library)
    except OSError:
        raise NoCardError(f"no driver of CUDA ({os.path.basename(library)})") from None
    for name, words in _SIGNATURES.items():
        # Newer drivers may have the later version of a call only.
        function = getattr(cuda, name, None) or getattr(cuda, f"{name}_v2", None)
        if function is None:
            raise NoCardError(f"the driver has no {name}")
        function.argtypes = words
        setattr(cuda, name, function)
    return cuda
