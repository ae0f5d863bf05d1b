"""Draw sequences from a block model into a parquet or jsonl file: sample.py."""

from hydra.utils import instantiate

from tube_lightning.programs.composed import Config, run_composed


def main(words: list[str]) -> None:
    """Sample as the words of the command line say."""
    run_composed(_sample, "sample", words)


def _sample(config: Config) -> None:
    """Instantiate and call, in two steps: errors then reach users as they were raised."""
    from tube_lightning.machine import use_granted_threads
    from tube_lightning.pipeline import errors_in_a_line  # slow to import: not for --help

    use_granted_threads()
    write = instantiate(config, _partial_=True)
    with errors_in_a_line():
        write()
