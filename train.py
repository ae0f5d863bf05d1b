"""Train a block diffusion model, a masked diffusion model or an ARM: python train.py --help."""

import sys
from pathlib import Path

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from tube_lightning.checks import refuse_renamed_key
from tube_lightning.usage import help_or_check


@hydra.main(version_base="1.3", config_path="configs", config_name="train")
def main(config: DictConfig) -> None:
    """Instantiate the parts and train."""
    from tube_lightning.cluster import check_processes  # slow to import: not for --help
    from tube_lightning.pipeline import errors_in_a_line, quiet_lightning
    from tube_lightning.training import check_texts, settle, train_to_end

    with quiet_lightning(), errors_in_a_line():
        given = OmegaConf.to_container(config, resolve=True)
        check_texts(given)
        for key, value in settle(given).items():
            OmegaConf.update(config, key, value)
        trainer = instantiate(config.trainer)
        check_processes(trainer)
        train_to_end(
            module=instantiate(config.module),
            data=instantiate(config.datamodule),
            trainer=trainer,
            output_dir=config.output_dir,
            config=OmegaConf.to_container(config, resolve=True),
        )


if __name__ == "__main__":
    refuse_renamed_key(sys.argv[1:], old="model", new="network")
    help_or_check(sys.argv[1:], Path(__file__).parent / "configs", "train")
    main()
