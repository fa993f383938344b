"""Each ready-made program in NumPy: the oracle of its tests, and the form for data that is in memory already.

A twin takes a program's inputs as arrays and its scalars in the same order, and gives its outputs as a tuple of arrays,
equal to the bit unless its module says otherwise. Where a program's result depends on how its input was cut into tasks,
its twin takes ``starts``: the records where tasks begin. One module a family, of NumPy alone.
"""
