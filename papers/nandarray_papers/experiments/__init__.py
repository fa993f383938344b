"""The experiments, a module each; ``nandarray lab list`` finds them here, their claims in ``claims.toml``."""

__all__ = ["SETS"]

#: Sets of experiments, by name: patterns of their ids. A set that is run gets one page.
SETS: dict[str, tuple[str, ...]] = {"assasin-coden": ("assasin.*", "coden.*", "model.beside")}
