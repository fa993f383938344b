"""The dissertation's functions that were offloaded before, and the ready-made programs for them.

Zou, "High-Performance Architectures for Data Center Computational Storage" (Chicago, 2023), chapter 6: its section 6.2
gives each function of Table 6.1 a place in Figure 6.1, by size, direction and how hard it is to vectorise. The places
here are read from that text, since the figure itself is a picture. Nothing here goes into what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nandarray.programs.advise.flows import READ, WRITE

__all__ = ["BECAUSE", "FUNCTIONS", "PAPER", "Place"]


@dataclass(frozen=True)
class Place:
    """The place of a function in Figure 6.1: whether it changes the data's size, its path, how easily it vectorises.

    In the figure, vectorising ``"easily"`` has nothing, ``"moderately"`` a dashed line and ``"hardly"`` a full line
    below the name.
    """

    size: str
    direction: str
    vectorises: str


PAPER: Mapping[str, Place] = {
    "Compress": Place("reduces", WRITE, "hardly"),
    "Deduplicate": Place("reduces", WRITE, "easily"),
    "Decompress": Place("increases", READ, "moderately"),
    "Encrypt": Place("keeps", WRITE, "easily"),
    "Decrypt": Place("keeps", READ, "easily"),
    "Erasure coding": Place("increases", WRITE, "easily"),
    "Replicate": Place("increases", WRITE, "easily"),
    "Filter": Place("reduces", READ, "easily"),
    "Select": Place("reduces", READ, "easily"),
    "Statistics": Place("reduces", READ, "easily"),
    "Parse": Place("reduces", READ, "moderately"),
    "Write-ahead log replay": Place("increases", WRITE, "hardly"),
    "Statistical modelling": Place("reduces", READ, "easily"),
    "Neural networks": Place("reduces", READ, "easily"),
}

#: Ready-made programs that are one of these functions.
FUNCTIONS: Mapping[str, str] = {
    **dict.fromkeys(("sum", "mean", "minmax", "variance", "histogram"), "Statistics"),
    **dict.fromkeys(("filter", "filter_index", "filter_rows"), "Filter"),
    "select": "Select",
    "parse": "Parse",
    **dict.fromkeys(("raid4_encode", "raid5_encode", "raid6_encode"), "Erasure coding"),
    "aes128_encrypt": "Encrypt",
    "aes128_decrypt": "Decrypt",
    "lz4_decompress": "Decompress",
    "deduplicate": "Deduplicate",
    "replicate": "Replicate",
    "wal_replay": "Write-ahead log replay",
    "kmeans_assign": "Statistical modelling",
    "network": "Neural networks",
}

#: Why a ready-made program may be elsewhere than the function of the dissertation.
BECAUSE: Mapping[str, str] = {
    "sum": "sums of floats are exact, whose carries are a loop of their own",
    "mean": "as sum",
    "histogram": "counters are scattered: it would take conflict detection, or counters for each lane",
    "filter": "Clang uses no compressing store by itself; one is written out for AVX-512 alone",
    "filter_index": "Clang uses no compressing store by itself, and none is written out, as it is for filter",
    "filter_rows": "as filter_index",
    "aes128_encrypt": "tables; the dissertation has instructions for ciphers in mind",
    "aes128_decrypt": "as aes128_encrypt",
    "deduplicate": "XXH64 is one chain a block; Clang does not set blocks beside each other",
    "wal_replay": "the copies of pages vectorise, the log's CRC and parsing do not",
    "kmeans_assign": "distances are added in order, which keeps Clang from it",
}
