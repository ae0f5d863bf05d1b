"""Draw sequences from a block model into a parquet or jsonl file: python sample.py --help."""

from tube_lightning.programs import run_program

if __name__ == "__main__":
    run_program("sample")
