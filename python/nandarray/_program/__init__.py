"""Programs that run beside the data: from C, or from Python functions, to RISC-V.

Read in this order: :mod:`abi` (what a program and its surroundings agree on), :mod:`program` (the class), :mod:`zig`
(the C compiler), :mod:`cache`, :mod:`elf`; then, for functions of Python, :mod:`annotations`, :mod:`forms`,
:mod:`functions`, :mod:`loops` and :mod:`riscv`, which with :mod:`streams` is all that knows Numba's inside. Public
names are in :mod:`nandarray` itself.
"""
