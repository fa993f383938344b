"""``python -m nandarray`` is the command line, where the ``nandarray`` command is not on the path."""

from __future__ import annotations

from nandarray.cli import main

if __name__ == "__main__":
    main()
