"""What is this machine, does it compute what the CPU does, and how fast? A program of its own.

``python -m tube_lightning.doctor`` looks around (versions, devices, quotas, SLURM, hubs), compares
the device with a plain loop on the CPU, times the networks, and says what the paper's experiments
would take. Every check stands alone: one that fails says why in a line, and the others go on.
"""
