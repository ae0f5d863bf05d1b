"""Write the job scripts where there is no clone: tube-lightning slurm --help."""

import argparse
import shutil
import sys
from pathlib import Path

from tube_lightning.programs.files import folder_of


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and write; 2 if it cannot be done."""
    _parser().parse_args(arguments)
    try:
        written = write_job_scripts(Path("slurm"))
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(f"slurm/{name}" for name in written))
    return 0


def write_job_scripts(directory: Path) -> list[str]:
    """Copy the scripts, and return their names; files of these names must not be there."""
    scripts = sorted(path for path in folder_of("slurm").iterdir() if path.is_file())
    for path in scripts:
        if (directory / path.name).exists():
            raise FileExistsError(f"{directory / path.name}: is there already, and may be yours")
    directory.mkdir(parents=True, exist_ok=True)
    for path in scripts:
        shutil.copyfile(path, directory / path.name)
    return [path.name for path in scripts]


def _parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog="tube-lightning slurm",
        description="Write slurm/evaluate.sbatch, slurm/train.sbatch, and slurm/job.sh, which both "
        "of them run. Change the #SBATCH lines as your cluster needs them, and submit from here: "
        "sbatch slurm/evaluate.sbatch model.checkpoint=CHECKPOINT",
    )
