"""What is outside of the process: SLURM, the hub of models and texts, Weights & Biases."""

import netrc
import os
import shutil
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tube_lightning.doctor.findings import NotMeasuredError

HUB = "https://huggingface.co"
_HUB_SECONDS = 3.0
_YES = ("1", "ON", "YES", "TRUE")


@dataclass(frozen=True)
class Slurm:
    """Whether this is a job, and of how many tasks."""

    in_job: bool
    tasks: int | None
    nodes: int | None
    cpus_per_task: int | None
    srun: bool


@dataclass(frozen=True)
class Hub:
    """Whether the hub answers."""

    host: str
    token: bool
    """whether there is one, not which"""
    http_status: int


@dataclass(frozen=True)
class WandbAccount:
    """Whether curves would be logged to Weights & Biases; nobody is asked over the network."""

    mode: str
    login: bool


def look_for_slurm() -> Slurm:
    """Read the scheduler's variables."""

    def number(name: str) -> int | None:
        text = os.environ.get(name, "")
        return int(text) if text.isdecimal() else None

    return Slurm(
        "SLURM_JOB_ID" in os.environ,
        number("SLURM_NTASKS"),
        number("SLURM_NNODES"),
        number("SLURM_CPUS_PER_TASK"),
        shutil.which("srun") is not None,
    )


def ask_hub(seconds: float = _HUB_SECONDS) -> Hub:
    """Ask the hub for its front page, in a thread that is left behind if nothing comes back.

    A socket's timeout bounds neither the search for the host's name nor a server that sends a byte
    now and then.
    """
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in _YES:
            raise NotMeasuredError(f"offline by {name}")
    parts = urlsplit(os.environ.get("HF_ENDPOINT", HUB))
    host = parts.hostname or "no host"
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()  # no login is sent
    answers: list[int | Exception] = []

    def ask() -> None:
        request = urllib.request.Request(address, method="HEAD")
        try:
            with urllib.request.urlopen(request, timeout=2 * seconds) as answer:
                answers.append(answer.status)
        except urllib.error.HTTPError as error:  # it answered
            answers.append(error.code)
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    if not answers:
        raise TimeoutError(f"{host}: no answer in {seconds:g} s")
    if isinstance(answer := answers[0], Exception):
        raise ConnectionError(f"{host}: {answer}")
    return Hub(host, _has_hub_token(), answer)


def _has_hub_token() -> bool:
    from huggingface_hub import get_token

    return get_token() is not None


def look_for_wandb() -> WandbAccount:
    """Look for a login where W&B does: its variable, and netrc."""
    mode = os.environ.get("WANDB_MODE", "online")
    address = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    login = bool(os.environ.get("WANDB_API_KEY")) or _in_netrc(urlsplit(address).hostname or "")
    return WandbAccount(mode, login)


def _in_netrc(host: str) -> bool:
    named = os.environ.get("NETRC")
    files = [Path(named)] if named else [Path.home() / ".netrc", Path.home() / "_netrc"]
    return any(file.is_file() and host in netrc.netrc(file).hosts for file in files)
