"""``map_blocks``, ``reduce``, ``filter`` and ``select``: from the arguments of a call to a program and its run."""
