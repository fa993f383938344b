"""FlashAbacus' workloads: Table 2's kernels as phantoms at the paper's sizes, and its fourteen mixes."""
