"""The command line: ``nandarray``; :mod:`nandarray.cli.commands` has its commands."""

from nandarray.cli.commands import app, main

__all__ = ["app", "main"]
