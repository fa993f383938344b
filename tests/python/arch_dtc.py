"""A compiler of device trees, as far as Spike needs one: ``dtc`` for machines that have none.

    python arch_dtc.py -O dtb -I dts < SOURCE > BLOB

It knows nodes, labels, references to labels, strings and cells; no includes, no directives, no expressions. Spike runs
it by the name ``dtc`` for the tree that it made itself (``arch_run.fetch_spike``).
"""

from __future__ import annotations

import re
import struct
import sys

__all__ = ["compile_tree"]

TOKENS = re.compile(r'/\*.*?\*/|"[^"]*"|[\w,.#+@-]+:|&[\w-]+|[\w,.#+?@/-]+|[{}<>;=]', re.S)


class Tree:
    """The tokens of a source, and the blob as far as it is made."""

    def __init__(self, source: str) -> None:
        """Begin at the root."""
        self.tokens = [t for t in TOKENS.findall(source) if not t.startswith("/*") and t != "/dts-v1/"]
        self.at = 0
        self.structure, self.strings = bytearray(), bytearray()
        labels = [t for t in self.tokens if t.endswith(":")]
        self.phandles = {label[:-1]: number for number, label in enumerate(labels, 1)}

    def take(self) -> str:
        """The next token."""
        self.at += 1
        return self.tokens[self.at - 1]

    def property(self, name: str, value: bytes) -> None:
        """Add a property."""
        where = (bytes(self.strings) + b"\0").find(name.encode() + b"\0")
        if where < 0 or where >= len(self.strings):
            where = len(self.strings)
            self.strings += name.encode() + b"\0"
        self.structure += struct.pack(">III", 3, len(value), where) + value + bytes(-len(value) % 4)

    def value(self) -> bytes:
        """The value behind ``=``, up to its semicolon."""
        value = b""
        while (token := self.take()) != ";":
            if token.startswith('"'):
                value += token[1:-1].encode() + b"\0"
            elif token.startswith("&"):
                value += struct.pack(">I", self.phandles[token[1:]])
            elif token not in ("<", ">", ","):
                value += struct.pack(">I", int(token.strip(","), 0))
        return value

    def node(self, name: str, label: str | None) -> None:
        """A node whose brace was taken."""
        self.structure += struct.pack(">I", 1) + name.encode() + bytes(4 - len(name) % 4)
        if label:
            self.property("phandle", struct.pack(">I", self.phandles[label]))
        inner: str | None = None
        while (token := self.take()) != "}":
            if token.endswith(":"):
                inner = token[:-1]
                continue
            following = self.take()
            if following == "{":
                self.node(token, inner)
                inner = None
            elif following == "=":
                self.property(token, self.value())
            else:
                self.property(token, b"")
        self.structure += struct.pack(">I", 2)
        if self.at < len(self.tokens) and self.tokens[self.at] == ";":
            self.at += 1


def compile_tree(source: str) -> bytes:
    """The blob of a device tree's source."""
    tree = Tree(source)
    while tree.take() != "{":
        pass
    tree.node("", None)
    tree.structure += struct.pack(">I", 9)
    head, reserved = 40, bytes(16)
    structure = head + len(reserved)
    strings = structure + len(tree.structure)
    total = strings + len(tree.strings)
    numbers = (0xD00DFEED, total, structure, strings, head, 17, 16, 0, len(tree.strings), len(tree.structure))
    return struct.pack(">10I", *numbers) + reserved + bytes(tree.structure) + bytes(tree.strings)


if __name__ == "__main__":
    sys.stdout.buffer.write(compile_tree(sys.stdin.read()))
