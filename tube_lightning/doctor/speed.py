"""Rows a second: of the embedded model, and of a random network of the published size."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tube_lightning.checkpoints import load_block_model
from tube_lightning.doctor.devices import synchronize
from tube_lightning.networks import BlockDiffusion, BlockModel, DiT, DiTConfig
from tube_lightning.orderings import RevealedSets, all_sets
from tube_lightning.scoring import conditional_rows

PUBLISHED = DiTConfig(vocab_size=50_258, model_length=1024, block_size=4)
_EMBEDDED = "demo:bd3lm_l4"
_BLOCKS = {"cpu": 17}
"""Blocks of the published network's text to time, all sets of each: a micro-batch on a CPU."""
_BLOCKS_ELSEWHERE = 1024  # two micro-batches of 32,768 tokens, nearly
_EMBEDDED_BLOCKS = {"cpu": 256}


@dataclass(frozen=True)
class NetworkSpeed:
    """One network, timed."""

    network: str
    dtype: str
    rows: int
    """revealed sets of blocks of 4 tokens, whose clean tokens are read as well"""
    seconds: float
    rows_per_second: float
    flop_per_second: float
    """of the linear maps"""
    peak_bytes: int | None
    """of what torch allocated on an accelerator meanwhile"""


def measure_speeds(device: torch.device, say: Callable[[str], None]) -> list[NetworkSpeed]:
    """Time what an evaluation does most: rows behind a clean prefix."""
    embedded = load_block_model(_EMBEDDED)
    if not isinstance(embedded, BlockDiffusion):
        raise TypeError(f"{_EMBEDDED}: expected a network of ours, got another family")
    blocks = _EMBEDDED_BLOCKS.get(device.type, _BLOCKS_ELSEWHERE)
    speeds = [_time_network(_EMBEDDED, embedded.to(device), "float32", device, blocks)]
    blocks = _BLOCKS.get(device.type, _BLOCKS_ELSEWHERE)
    for dtype in ("float32", "bfloat16") if device.type == "cuda" else ("float32",):
        say(f"timing a network of the published size in {dtype}")
        model = random_model(PUBLISHED, device, getattr(torch, dtype))
        speeds.append(_time_network("published size", model, dtype, device, blocks))
        del model
    return speeds


def random_model(
    config: DiTConfig, device: torch.device, dtype: torch.dtype = torch.float32
) -> BlockDiffusion:
    """Make a network with random weights (all of them, so that nothing is trivially zero)."""
    with torch.device("meta"):
        network = DiT(config)
    network = network.to_empty(device=device)
    generator = torch.Generator(device).manual_seed(0)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.02, generator=generator)
    return BlockDiffusion.from_network(network, dtype)


def middle_rows(config: DiTConfig, num_blocks: int) -> tuple[Tensor, RevealedSets]:
    """Return tokens of full length and all sets of the middle blocks, of as many texts as needed.

    Prefixes are half of the text on average, as they are in an evaluation.
    """
    generator = torch.Generator().manual_seed(0)
    each = config.model_length // config.block_size
    texts = -(-num_blocks // each)
    tokens = torch.randint(0, config.mask_id, (texts, config.model_length), generator=generator)
    here = -(-num_blocks // texts)
    first = (each - here) // 2
    block = torch.arange(texts)[:, None] * each + first + torch.arange(here)
    sets = all_sets(config.block_size)[:-1]  # the last hides nothing
    revealed = sets.repeat(block.numel(), 1)
    return tokens, RevealedSets(
        revealed, ~revealed, block.flatten().repeat_interleave(len(sets)), index=()
    )


def linear_flop(config: DiTConfig, clean: int, noisy: int, needed: int) -> int:
    """Count the linear maps' floating-point operations (attention itself not counted)."""
    dim, layers = config.hidden_dim, config.n_blocks
    projections, rest = 2 * 3 * dim**2, 2 * 9 * dim**2
    trunk = (clean + noisy) * (layers * projections + (layers - 1) * rest) + needed * rest
    return trunk + needed * 2 * dim * config.vocab_size


def _time_network(
    name: str, model: BlockDiffusion, dtype: str, device: torch.device, num_blocks: int
) -> NetworkSpeed:
    tokens, sets = middle_rows(model.config, num_blocks)
    tokens = tokens.to(device)
    if device.type == "cpu":
        _run(model, *_few(model.config))
    else:  # kernels are chosen by shape
        _run(model, tokens, sets)
    synchronize(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    start = time.perf_counter()
    _run(model, tokens, sets)
    synchronize(device)
    seconds = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    rows, needed = len(sets.block), int(sets.needed.sum())
    flop = linear_flop(model.config, tokens.numel(), sets.needed.numel(), needed)
    return NetworkSpeed(name, dtype, rows, seconds, rows / seconds, flop / seconds, peak)


def _few(config: DiTConfig) -> tuple[Tensor, RevealedSets]:
    """Return a text of eight tokens and the sets of its last block: a warm-up."""
    tokens = torch.arange(8)[None]
    sets = all_sets(config.block_size)[:-1]
    return tokens, RevealedSets(sets, ~sets, torch.ones(len(sets), dtype=torch.int64), index=())


def _run(model: BlockModel[Any], tokens: Tensor, sets: RevealedSets) -> Tensor:
    with torch.no_grad():
        return conditional_rows(model, tokens, sets)
