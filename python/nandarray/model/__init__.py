"""The modelled clock: a store under it, reports of it, and replays of workloads on described devices."""
