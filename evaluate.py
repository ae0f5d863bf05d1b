"""Bracket the likelihood of a block diffusion model on a text: python evaluate.py --help."""

import hydra
from hydra.core.config_store import ConfigStore
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from tube_lightning.bounds import EstimatorSettings

RECORDED = ("model", "arm", "arm_ft", "protocol", "estimators", "batch_size", "num_batches")
ConfigStore.instance().store("estimators", {"estimators": dict(EstimatorSettings())})


@hydra.main(version_base="1.3", config_path="configs", config_name="evaluate")
def main(config: DictConfig) -> None:
    """Instantiate the parts and evaluate."""
    from tube_lightning.checkpoints import Checkpoint, companion  # slow to import: not for --help
    from tube_lightning.cluster import check_processes
    from tube_lightning.machine import use_granted_threads
    from tube_lightning.pipeline import errors_in_a_line, quiet_lightning, run_evaluation

    values = OmegaConf.to_container(config, resolve=True)
    settings = {key: values[key] for key in RECORDED} | {
        "data": {**values["data"]["test"], "order": values["data"]["order"]}
    }
    with quiet_lightning(), errors_in_a_line():
        model = Checkpoint(**values["model"])
        trainer = instantiate(config.trainer)
        check_processes(trainer)
        use_granted_threads(trainer.num_devices)
        run_evaluation(
            model=model,
            arm=companion("arm", model, **values["arm"]),
            arm_ft=companion("arm_ft", model, **values["arm_ft"]),
            data=instantiate(config.data.test),
            protocol=instantiate(config.protocol),
            estimators=EstimatorSettings(**values["estimators"]),
            trainer=trainer,
            output_dir=config.output_dir,
            batch_size=config.batch_size,
            length=config.length,
            num_batches=config.num_batches,
            order=config.data.order,
            paper_table=config.paper_table,
            settings=settings,
        )


if __name__ == "__main__":
    main()
