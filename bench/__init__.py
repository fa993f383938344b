"""The benchmark: nandarray and its peers, side by side in one run, ratios rather than boasts.

Model ----- A *section* is one array (shape, data, compression). A *system* is one store in one configuration
(``tensorstore/256``), kept alive in a worker process of its own so that no system warms, slows or crashes another. A
*pattern* is a list of operations with a seed (``column-bands``); a *state* says what is cached when it starts
(``warm``, ``fresh``, ``cold``). The runner walks sections, then patterns, then rounds, and inside one round asks every
system in turn, so that a noisy minute of the machine falls on all of them alike; the figure of a cell is the median
over rounds.

Cut
---
``data`` makes the arrays, ``patterns`` the operations, ``systems`` the adapters (one file each), ``worker`` runs one
system in its process, ``runner`` drives workers, ``judge`` judges, ``report`` prints. ``opening``, ``memory``,
``geometry`` and ``parts`` are separate measurements with their own subcommands. ``python -m bench --help`` lists them.

Limits
------
It installs nothing, stores no figure as an answer, and compares only within one run: a ratio holds from machine to
machine, an absolute figure does not.
"""
