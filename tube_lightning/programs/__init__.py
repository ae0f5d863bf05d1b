"""The programs: evaluate, train, sample, report, compare, doctor, slurm, by one command.

``tube-lightning evaluate ...`` of an installed package is ``python evaluate.py ...`` of a clone.
"""

from tube_lightning.programs.command import run_program

__all__ = ["run_program"]
