"""Draw sequences from a block model into a parquet or jsonl file: python sample.py --help."""

import sys
from pathlib import Path

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from tube_lightning.usage import help_or_check


@hydra.main(version_base="1.3", config_path="configs", config_name="sample")
def main(config: DictConfig) -> None:
    """Instantiate and call, in two steps: errors then reach users as they were raised."""
    from tube_lightning.pipeline import errors_in_a_line  # slow to import: not for --help

    write = instantiate(config, _partial_=True)
    with errors_in_a_line():
        write()


if __name__ == "__main__":
    help_or_check(sys.argv[1:], Path(__file__).parent / "configs", "sample")
    main()
