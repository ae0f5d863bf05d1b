"""Train a block diffusion model, a masked diffusion model or an ARM: python train.py --help."""

from tube_lightning.programs import run_program

if __name__ == "__main__":
    run_program("train")
