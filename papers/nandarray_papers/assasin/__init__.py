"""ASSASIN's SSD in the lab: its compute engines, the functions and scans that they run, and how a run is measured.

``engines`` has the configurations of the dissertation's Table 7.3; ``work`` the functions of Figure 7.12 and the scans
of Figure 7.13; ``measure`` runs one on the other on the modelled device. Experiments put them together; nothing here
knows a claim.
"""
