"""Bracket the likelihood of a block diffusion model on a text: python evaluate.py --help."""

from tube_lightning.programs import run_program

if __name__ == "__main__":
    run_program("evaluate")
