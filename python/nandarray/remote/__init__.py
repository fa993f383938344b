"""Objects far away: in buckets and behind HTTP, by any object store of obstore or file system of fsspec.

:mod:`nandarray.remote.objects` is what the rest of the package asks of them; :mod:`nandarray.remote.places` finds it
for a URL.
"""
