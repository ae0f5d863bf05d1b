"""Bracket the likelihood of a block diffusion model on a text: python evaluate.py --help."""

import sys
from pathlib import Path

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.usage import help_or_check

RECORDED = ("model", "arm", "arm_ft", "protocol", "estimators", "batch_size", "num_batches")
ESTIMATORS = {"estimators": dict(EstimatorSettings())}
ConfigStore.instance().store("estimators", ESTIMATORS)


@hydra.main(version_base="1.3", config_path="configs", config_name="evaluate")
def main(config: DictConfig) -> None:
    """Instantiate the parts and evaluate."""
    from tube_lightning import pipeline  # slow to import: not for mistyped keys
    from tube_lightning.checkpoints import Checkpoint, companion
    from tube_lightning.cluster import check_processes

    values = OmegaConf.to_container(config, resolve=True)
    settings = {key: values[key] for key in RECORDED} | {
        "data": {**values["data"]["test"], "order": values["data"]["order"]}
    }
    with pipeline.quiet_lightning(), pipeline.errors_in_a_line():
        model = Checkpoint(**values["model"])
        if config.output_dir is None:
            names, path = HydraConfig.get().runtime.choices, values["data"].get("path")
            config.output_dir = pipeline.default_directory(model, names.data, path, names.protocol)
        trainer = instantiate(config.trainer)
        check_processes(trainer)
        pipeline.run_evaluation(
            model=model,
            arm=companion("arm", model, **values["arm"]),
            arm_tokenizer=config.arm.tokenizer,
            arm_length=config.arm.length,
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
            token_budget=config.token_budget,
            settings=settings,
        )


if __name__ == "__main__":
    help_or_check(sys.argv[1:], Path(__file__).parent / "configs", "evaluate", ESTIMATORS)
    main()
