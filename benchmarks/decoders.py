"""How fast are diffusion decoders scored, against the plain forward of transformers?

python -m benchmarks.scoring --family sdar     # blocks: about three minutes on two cores
python -m benchmarks.scoring --family llada    # the whole sequence is one block
OMP_NUM_THREADS=1 python -m benchmarks.scoring --family sdar --cpu-time    # on a busy machine

The shape is Qwen3-0.6B's with 8 of its 28 layers (LLaDA's names have no small model: the same shape
read as one block). Naive: every ordering, every step of every regime, one forward of transformers
under an explicit mask with the full head and the products that ours has; blocks run as two streams.
A few such calls are timed and multiplied by their number. Same weights, same tokens; results are
compared before anything is timed.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.naive import two_stream_mask
from benchmarks.timing import Clock, seconds
from tube_lightning.memory import CPU_TOKENS
from tube_lightning.networks import DecoderBlockModel, DecoderFacts, linear
from tube_lightning.orderings import RevealedSets, distinct_sets, reveal_steps, reveal_times
from tube_lightning.scoring import conditional_rows, conditional_table

DIM, INNER, LAYERS, HEADS, KEY_HEADS, WIDTH, VOCAB = 1024, 3072, 8, 16, 8, 128, 151_936
MASK = 151_669
FAMILIES: dict[str, Any] = {
    "sdar": {"block_size": 4, "context": "block"},
    "llada": {"block_size": None, "context": "none"},
}
TARGETS = {"sdar": 25.0, "llada": 1.5}
TARGET_SHARE = 0.6
NUM_ORDERINGS = 24
ROWS_TIMED = 12
"""of the rows of one draw, where the block is the whole sequence"""
_LINEAR = DIM * (HEADS + 2 * KEY_HEADS) * WIDTH + HEADS * WIDTH * DIM + 3 * DIM * INNER


@dataclass(frozen=True)
class Result:
    """One row of the result."""

    what: str
    naive_calls: int
    naive_seconds: float
    our_seconds: float
    our_flop: float
    matmul_rate: float


def make_model(family: str, length: int) -> DecoderBlockModel:
    """Make a network with random weights."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=DIM,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        head_dim=WIDTH,
        tie_word_embeddings=False,
    )
    facts = DecoderFacts(mask_id=MASK, max_length=length, **FAMILIES[family])
    return DecoderBlockModel(Qwen3ForCausalLM(config), facts)


@torch.inference_mode()
def run_naive(model: DecoderBlockModel, tokens: Tensor, masked: Tensor) -> Tensor:
    """Call the plain forward once: log p(true token) at every masked position."""
    network, length = model.network, tokens.shape[1]
    noisy = tokens.masked_fill(masked, MASK)
    places = torch.arange(length)
    sees = torch.ones(length, length, dtype=torch.bool)
    ids = noisy
    if model.config.block_size is not None:
        ids, places = torch.cat([noisy, tokens], dim=1), places.repeat(2)
        sees = two_stream_mask(length, model.config.block_size)
    logits = network(
        ids, attention_mask=sees[None, None], position_ids=places[None], use_cache=False
    ).logits[:, :length]
    log_probs: Tensor = logits.log_softmax(dim=-1).gather(-1, tokens[..., None])[..., 0]
    return log_probs.where(masked, 0.0)


def time_naive(model: DecoderBlockModel, tokens: Tensor, repeats: int, clock: Clock) -> float:
    """Return the seconds of one plain forward, with transformers' own attention."""
    masked = torch.rand(tokens.shape) < 0.5
    model.network.set_attn_implementation("sdpa")
    run_naive(model, tokens, masked)
    taken = statistics.median(seconds(partial(run_naive, model, tokens, masked), repeats, clock))
    model.network.set_attn_implementation("tube_lightning")
    return taken


def check_equal(model: DecoderBlockModel, tokens: Tensor) -> float:
    """Compare with the plain forward on one random mask; return the largest error in nats."""
    masked = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(1)) < 0.5
    model.network.set_attn_implementation("sdpa")
    naive = run_naive(model, tokens, masked)
    model.network.set_attn_implementation("tube_lightning")
    rows = masked.view(-1, model.config.block_size or tokens.shape[1])
    sets = RevealedSets(~rows, rows, torch.arange(len(rows)), index=())
    worst = (conditional_rows(model, tokens, sets).view_as(naive) - naive).abs().max().item()
    if worst > 1e-3:
        raise SystemExit(f"results differ by {worst:.2e} nats: nothing to time")
    return worst


def matmul_rate(clock: Clock, repeats: int = 8) -> float:
    """Measure the machine's fp32 rate on a layer's shapes, by the faster of two libraries."""
    tokens = CPU_TOKENS
    shapes = [(DIM, 2 * KEY_HEADS * WIDTH), (DIM, INNER), (INNER, DIM)]
    rates = []
    with torch.inference_mode():
        for product in (F.linear, linear):
            taken, flop = 0.0, 0
            for inputs, outputs in shapes:
                x, weight = torch.randn(tokens, inputs), torch.randn(outputs, inputs)
                call = partial(product, x, weight)
                taken += statistics.median(seconds(call, repeats, clock)[2:])
                flop += 2 * tokens * inputs * outputs
            rates.append(flop / taken)
    return max(rates)


def matmul_flop(tokens: int, needed: int) -> float:
    """Count the linear maps' floating-point operations (attention itself not counted)."""
    return 2.0 * tokens * LAYERS * _LINEAR + 2.0 * needed * DIM * VOCAB


def measure(family: str, length: int, repeats: int, clock: Clock) -> Result:
    """Time both ways of scoring all regimes."""
    model = make_model(family, length)
    tokens = torch.randint(0, MASK, (1, length))
    print(f"{family}: agrees with the plain forward to {check_equal(model, tokens):.1e} nats")
    size = model.config.block_size or length
    steps = [1 << power for power in range((size - 1).bit_length() + 1)]
    scale = 1.0
    if model.config.block_size is not None:
        calls = NUM_ORDERINGS * (size + sum(steps))
        what = f"exact table, {2**size - 1} sets a block"
        call: Callable[[], Tensor] = partial(conditional_table, model, tokens)
        num_blocks = length // size
        noisy, needed = num_blocks * (2**size - 1) * size, num_blocks * size << (size - 1)
        noisy += length - size  # the clean tokens, once
    else:
        calls = size + sum(steps)
        times = reveal_times(0, [0], num_orderings=1, size=size)[0]
        sets = distinct_sets(*(reveal_steps(times, regime) for regime in (None, *steps)))
        kept = torch.arange(0, len(sets.block), max(1, len(sets.block) // ROWS_TIMED))
        scale = len(sets.block) / len(kept)
        some = {name: getattr(sets, name)[kept] for name in ("revealed", "needed", "block")}
        some_sets = replace(sets, **some, index=())
        what = f"one draw, {len(sets.block)} sets ({len(kept)} timed)"
        call = partial(conditional_rows, model, tokens, some_sets)
        noisy, needed = some_sets.revealed.numel(), int(some_sets.needed.sum())
    rates, naive, taken = [matmul_rate(clock)], [], []
    call()
    for _ in range(repeats):  # in turns, so that both meet the machine in the same states
        naive.append(time_naive(model, tokens, 3, clock) * calls)
        taken += seconds(call, 1, clock)
        rates.append(matmul_rate(clock))
    flop = matmul_flop(noisy, needed) * scale
    ours = statistics.median(taken) * scale
    return Result(what, calls, statistics.median(naive), ours, flop, statistics.mean(rates))


def run(console: Console, family: str, length: int, repeats: int, clock: Clock) -> bool:
    """Measure one family and print it; return whether it meets its targets."""
    row = measure(family, length, repeats, clock)
    ratio, share = row.naive_seconds / row.our_seconds, row.our_flop / row.our_seconds
    share /= row.matmul_rate
    table = Table(title=f"{family}, one sequence of {length} tokens, all regimes")
    for column in ("ours", "naive calls", "naive s", "ours s", "ratio", "of GFLOP/s"):
        table.add_column(column, justify="left" if column == "ours" else "right")
    table.add_row(
        row.what,
        f"{row.naive_calls:,}",
        f"{row.naive_seconds:,.1f}",
        f"{row.our_seconds:,.2f}",
        f"{ratio:.1f}x (target {TARGETS[family]:g}x)",
        f"{share:.0%} of {row.matmul_rate / 1e9:.0f}",
    )
    console.print(table)
    return ratio >= TARGETS[family] and share >= TARGET_SHARE
