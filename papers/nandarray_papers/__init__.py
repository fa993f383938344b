"""Experiments of papers for nandarray's lab: their workloads, their claims, their calibrations.

:mod:`nandarray_papers.experiments` has the experiments and the claims that they answer; the lab finds them by an entry
point. The other packages are what several experiments of one paper share. nandarray itself imports nothing of this.
"""
