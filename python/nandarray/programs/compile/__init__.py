"""Compilers: from C, or from functions of Python, to RISC-V and to libraries of the host.

:mod:`.zig` is the C compiler, :mod:`.cache` keeps programs on disk. :mod:`.functions`, :mod:`.loops` and
:mod:`.riscv` compile functions of Python; :mod:`.riscv` and :mod:`.streams` alone depend on Numba's internals.
:mod:`.native` and :mod:`.host` compile for this machine.
"""
