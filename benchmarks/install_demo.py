"""Put trained demo models into the package, with a record of what they must compute.

    python -m benchmarks.install_demo outputs/demo

Reads ``outputs/demo/<name>/model`` of all demo models and writes ``tube_lightning/demo/<name>``
with the weights in float16, and ``tube_lightning/demo/recorded.json``: the SHA-256 of each file of
weights, and the log-likelihood of a fixed text under the weights as they are stored.
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track

from benchmarks.demo_models import make_estimator, trained_folder
from tube_lightning import demo
from tube_lightning.checkpoints import WEIGHTS_FILE, read_checkpoint, save_checkpoint
from tube_lightning.data import load_tokenizer
from tube_lightning.demo import DEMO_CHECKPOINTS

RECORD_FILE = "recorded.json"
NUM_ORDERINGS = 8
MAX_BYTES = 12_500_000
TEXT = (
    "The function returns a new list with the items of the first argument in ascending order. "
    'If "key" is given, it names a callable of one argument that is called once for each '
    "item first."
)
"""48 tokens with the document separator before them; it belongs to no release of Python."""


def install(runs: Path, destination: Path) -> dict[str, Any]:
    """Store every trained model in half precision, and record what it computes."""
    folders = {name: trained_folder(runs, name) for name in DEMO_CHECKPOINTS}
    if missing := [str(folder) for folder in folders.values() if not folder.is_dir()]:
        raise FileNotFoundError(f"runs: expected a trained model in {', '.join(missing)}")
    records: dict[str, Any] = {}
    for name, folder in track(
        folders.items(), description="installing", console=Console(stderr=True)
    ):
        save_checkpoint(destination / name, read_checkpoint(folder), torch.float16)
        records[name] = record(destination / name)
    total = sum(file.stat().st_size for file in destination.glob(f"*/{WEIGHTS_FILE}"))
    if total > MAX_BYTES:
        raise ValueError(f"{destination}: expected at most {MAX_BYTES:,} bytes, got {total:,}")
    recorded = {"text": TEXT, "checkpoints": records}
    (destination / RECORD_FILE).write_text(json.dumps(recorded, indent=2) + "\n")
    return recorded


def record(folder: Path) -> dict[str, Any]:
    """Score the fixed text with a stored checkpoint, and hash its weights."""
    tokenizer = load_tokenizer("demo")
    tokens = torch.tensor([tokenizer.eos_id, *tokenizer.encode(TEXT).ids])
    estimates = make_estimator(read_checkpoint(folder), NUM_ORDERINGS, seed=0)(tokens, 0)
    estimator, nats = next(iter(estimates.items()))
    digest = hashlib.sha256((folder / WEIGHTS_FILE).read_bytes()).hexdigest()
    return {"estimator": estimator, "log_likelihood_nats": nats, "weights_sha256": digest}


def main() -> None:
    """Install from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.install_demo",
        description="Put trained demo models into the package.",
    )
    parser.add_argument("runs", type=Path, help="folder of the training runs, outputs/demo")
    recorded = install(parser.parse_args().runs, Path(demo.__file__).parent)
    for name, values in recorded["checkpoints"].items():
        print(f"{name}: {values['estimator']} {values['log_likelihood_nats']:.3f} nats")


if __name__ == "__main__":
    main()
