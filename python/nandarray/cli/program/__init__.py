"""``nandarray program``: compile, list, run and profile programs beside the data."""
