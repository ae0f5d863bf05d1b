"""Train a block diffusion model, a masked diffusion model or an ARM: train.py."""

from hydra.utils import instantiate
from omegaconf import OmegaConf

from tube_lightning.checks import refuse_renamed_key
from tube_lightning.programs.composed import Config, plain_values, run_composed


def main(words: list[str]) -> None:
    """Train as the words of the command line say."""
    refuse_renamed_key(words, old="model", new="network")
    run_composed(_train, "train", words)


def _train(config: Config) -> None:
    """Instantiate the parts and train."""
    from tube_lightning.cluster import check_processes  # slow to import: not for --help
    from tube_lightning.machine import use_granted_threads
    from tube_lightning.pipeline import errors_in_a_line, quiet_lightning
    from tube_lightning.training import check_texts, settle, train_to_end

    with quiet_lightning(), errors_in_a_line():
        given = plain_values(config)
        check_texts(given)
        for key, value in settle(given).items():
            OmegaConf.update(config, key, value)
        trainer = instantiate(config.trainer)
        check_processes(trainer)
        use_granted_threads(trainer.num_devices)
        train_to_end(
            module=instantiate(config.module),
            data=instantiate(config.datamodule),
            trainer=trainer,
            output_dir=config.output_dir,
            config=plain_values(config),
        )
