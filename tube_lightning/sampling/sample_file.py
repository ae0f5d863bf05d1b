"""A checkpoint in, a file of samples out: what ``python sample.py`` does."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text
from torch import Tensor, nn

from tube_lightning.checkpoints import Checkpoint, load_block_model_on
from tube_lightning.data import TextTokenizer, fitting_tokenizer
from tube_lightning.networks import model_identity
from tube_lightning.orderings import EqualChunks, Steps
from tube_lightning.sampling.part_files import PartFiles, check_output
from tube_lightning.sampling.sequences import sample_sequences
from tube_lightning.terminal import bar_console


def write_samples(
    *,
    checkpoint: str,
    plugin: str | None,
    tokenizer: str,
    num_sequences: int,
    first_sequence: int,
    length: int | None,
    steps: int | None,
    equal_chunks: bool,
    temperature: float,
    nucleus: float,
    seed: int,
    batch_size: int,
    device: str,
    output: str,
    overwrite: bool,
    weights: str = "ema",
    family: str | None = None,
    block_size: int | str | None = None,
    mask_id: int | None = None,
) -> None:
    """Draw sequences of a checkpoint into a file, and print the first.

    The arguments are the keys of ``configs/sample.yaml``, and are explained there. Token 0 is given
    and not drawn: the token that starts or separates documents. Every finished batch is on disk,
    and a rerun continues behind the last.
    """
    options: dict[str, Any] = {
        "num_sequences": num_sequences,
        "first_sequence": first_sequence,
        "length": length,
        "steps": steps,
        "temperature": temperature,
        "nucleus": nucleus,
        "seed": seed,
        "batch_size": batch_size,
    }
    _check_numbers(options)
    path = Path(output).expanduser()
    check_output(path, overwrite)
    loading = {"plugin": plugin, "family": family, "block_size": block_size, "mask_id": mask_id}
    named = Checkpoint.of(checkpoint, loading | {"weights": weights})
    model = _load_model(named, _device(device))
    texts = fitting_tokenizer(tokenizer, model.vocab_size)
    options["length"] = model.max_length if length is None else length
    start = texts.eos_id if texts.bos_id is None else texts.bos_id
    given = [] if start is None else [start]
    settings = options | {"equal_chunks": equal_chunks, "tokenizer": texts.name, "given": given}
    settings |= {"model": model_identity(model)}
    options |= {"steps": _regime(steps, equal_chunks), "prompt": torch.tensor(given).long()}
    draw = partial(sample_sequences, model, **options)
    draw()  # draws nothing yet, but refuses bad options before the folder of parts is theirs
    parts = PartFiles(path.with_name(f"{path.name}.parts"), settings, {"checkpoint": checkpoint})
    _draw_parts(draw, parts, texts, options)
    first = parts.first_text()
    parts.merge(path)
    print(f"{num_sequences} sequences in {path}. The first:\n{_printable(first)}")


def _load_model(checkpoint: Checkpoint, device: torch.device) -> Any:  # noqa: ANN401
    """Load a block model; whether it can be sampled is for ``sample_sequences`` to say."""
    model = load_block_model_on(device, checkpoint)
    return model.to(device) if isinstance(model, nn.Module) else model


def _draw_parts(
    draw: Callable[..., Iterator[Int64[Tensor, "batch length"]]],
    parts: PartFiles,
    texts: TextTokenizer,
    options: dict[str, Any],
) -> None:
    """Draw the batches that are not on disk yet, under a progress bar."""
    end = options["first_sequence"] + options["num_sequences"]
    length, num_given = options["length"], len(options["prompt"])
    first = options["first_sequence"] + parts.num_parts * options["batch_size"]
    if first >= end:
        return
    with _progress_bar() as progress:
        total = options["num_sequences"] * length
        task = progress.add_task("sampling", total=total, completed=total - (end - first) * length)
        batches = draw(
            num_sequences=end - first,
            first_sequence=first,
            on_tokens=lambda count: progress.advance(task, count),
        )
        for tokens in batches:
            rows = tokens.tolist()
            sequences = list(range(first, first + len(rows)))
            parts.append(sequences, rows, [texts.decode(row[num_given:]) for row in rows])
            first += len(rows)


class _TokensPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.finished_speed or task.speed or 0:,.0f} tokens/s")


def _progress_bar() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%")
    return Progress(*columns, _TokensPerSecond(), TimeRemainingColumn(), console=bar_console())


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device: expected auto, cpu, cuda or cuda:N, got {name!r}") from error


def _regime(steps: int | None, equal_chunks: bool) -> Steps:
    if not equal_chunks:
        return steps
    if steps is None:
        raise ValueError("equal_chunks: expected a number of steps with it, got steps=null")
    return EqualChunks(steps)


def _check_numbers(options: dict[str, Any]) -> None:
    """Refuse what a command line can hold in place of a number."""
    for name, value in options.items():
        kinds = (int, float) if name in ("temperature", "nucleus") else (int,)
        optional = name in ("length", "steps")
        if not (type(value) in kinds or (value is None and optional)):
            kind = "a number" if len(kinds) == 2 else "an integer"
            raise ValueError(f"{name}: expected {kind}{' or null' * optional}, got {value!r}")


def _printable(text: str) -> str:
    """Keep samples of an unfinished model from steering the terminal."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
