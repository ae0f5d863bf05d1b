"""What scoring takes of a device's memory, and how many tokens go through a network at once.

All of this is arithmetic on sizes. A device that runs out all the same halves the number of tokens.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from tube_lightning.checks import check_whole_number
from tube_lightning.networks import HELD_LOGITS, DecoderBlockModel, Trunk
from tube_lightning.records import named_tensors

CPU_TOKENS = 1024
"""On CPUs activations should stay in the cache. The last digits of results depend on it."""
MOST_TOKENS = 32_768
"""Enough to fill any device: of a layer 768 wide one product has 155 GFLOP then, a millisecond's
work, against some microseconds to launch it."""
LEAST_TOKENS = 256
USABLE = 0.85
"""Of the memory: the rest is the driver's, the libraries', and lost between pieces."""
BYTES_AN_ENTRY = 20
"""Of the table of a batch while a network fills it: float64 twice, and which positions are revealed
and needed. Sums over all orders hold more copies of it, when what the network held is free."""
HEAD_BYTES = 2 * 4 * HELD_LOGITS
"""Of the logits that an accelerator's head holds at once, and of their log-softmax."""
_RAN_OUT = ("out of memory", "status_alloc_failed")


@dataclass(frozen=True)
class PeakMemory:
    """Bytes that are there at once, when rows follow a clean text: arithmetic."""

    networks: int
    kept: int
    """keys and values of clean tokens"""
    passing: int
    """the tokens of a micro-batch"""
    head: int
    """a piece of their logits"""
    table: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.networks + self.kept + self.passing + self.head + self.table


@dataclass(frozen=True)
class Footprint:
    """Bytes of one network on a device: once, and for each token in it."""

    weights: int
    kept: int
    """of a clean token: keys and values of all layers"""
    passing: int
    """of a token on its way: its stream twice, what it attended to, the normed one, and the MLP's
    four times wider layer before and after the GELU. Attention's own is not counted."""

    def peak(
        self,
        token_budget: int,
        *,
        length: int,
        batch_size: int,
        beside: int,
        num_entries: int,
        head: int = HEAD_BYTES,
    ) -> PeakMemory:
        """Add up the bytes, beside those of other networks and with the table of a batch.

        As many sequences as the budget has tokens for are read together, at least one. The ``head``
        of a CPU holds next to nothing.
        """
        sequences = min(batch_size, max(1, token_budget // length))
        return PeakMemory(
            self.weights + beside,
            sequences * length * self.kept,
            max(token_budget, length) * self.passing,
            head,
            num_entries * BYTES_AN_ENTRY,
        )


def network_footprint(
    num_layers: int, dim: int, vocab_size: int, dtype: torch.dtype, weights: int | None = None
) -> Footprint:
    """Return the footprint of a transformer by its sizes: matmuls in ``dtype``, the rest fp32.

    ``weights`` are its bytes, if they have been counted.
    """
    width = dtype.itemsize
    if weights is None:
        weights = num_layers * 12 * dim**2 * width + 2 * vocab_size * dim * 4
    kept = num_layers * 2 * dim * width
    passing = dim * (2 * 4 + 10 * width)
    return Footprint(weights, kept, passing)


def model_footprint(model: object) -> Footprint | None:
    """Return the footprint of a model, or None for one whose layers we cannot see."""
    if isinstance(model, DecoderBlockModel):
        return decoder_footprint(model)
    trunk = getattr(model, "trunk", None)
    if not isinstance(trunk, Trunk):
        return None
    vocab_size, dim = trunk.embedding.shape
    dtype = trunk.layers[0].qkv.dtype
    return network_footprint(len(trunk.layers), dim, vocab_size, dtype, weight_bytes(model))


def decoder_footprint(model: DecoderBlockModel) -> Footprint:
    """Return the footprint of a network of transformers; its head is widened to fp32 when it runs.

    Of a token on its way: its stream twice, the normed one, queries and keys, and the MLP's two
    layers with their product. Experts pass as a layer as wide as theirs together.
    """
    config, head = model.network.config, model.head[0]
    width, heads = head.dtype.itemsize, config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    kept = config.num_hidden_layers * 2 * key_heads * head_dim * width
    passing = width * (3 * config.hidden_size + 2 * heads * head_dim + 3 * inner)
    widened = 0 if width == 4 else 4 * head.numel()
    return Footprint(weight_bytes(model) + widened, kept, passing)


def weight_bytes(model: object) -> int:
    """Count the bytes of a model's weights, as far as they can be seen."""
    trunk = getattr(model, "trunk", None)
    if isinstance(trunk, Trunk):
        return sum(tensor.nbytes for _, tensor in named_tensors(trunk))
    if isinstance(model, nn.Module):
        return sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])
    return 0


def device_memory(device: torch.device) -> int | None:
    """Return the memory of an accelerator in bytes, or None where torch does not tell."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if device.type == "mps":
        return torch.mps.recommended_max_memory()
    return None


def fitting_budget(
    memory: int | None, network: Footprint | None, beside: int, num_entries: int
) -> int:
    """Return how many tokens at once fit into a device's memory: a power of two, or the least.

    ``beside`` are the bytes of other networks, ``num_entries`` those of the table of a batch. What
    is not known counts as large enough; a device that is not runs out, and halves the number.
    """
    if memory is None or network is None:
        return MOST_TOKENS
    fixed = network.weights + beside + HEAD_BYTES + num_entries * BYTES_AN_ENTRY
    left = int(USABLE * memory) - fixed
    fitting = max(left // (network.kept + network.passing), LEAST_TOKENS)
    return min(MOST_TOKENS, 1 << (fitting.bit_length() - 1))


def choose_budget(
    device: torch.device, network: Footprint | None, beside: int = 0, num_entries: int = 0
) -> int:
    """Choose how many tokens go through a network at once, beside others and a table."""
    if device.type == "cpu":
        return CPU_TOKENS
    return fitting_budget(device_memory(device), network, beside, num_entries)


def default_token_budget(
    device: torch.device, model: object, others: Iterable[object] = (), num_entries: int = 0
) -> int:
    """Choose how many tokens go through a model at once, beside other models and a table."""
    beside = sum(weight_bytes(other) for other in others)
    return choose_budget(device, model_footprint(model), beside, num_entries)


class TokenBudget:
    """How many tokens go through a network at once; fewer when memory has run out.

    Unless they ``may_halve`` no more: processes that compute one micro-batch together would wait
    for each other if one of them made it smaller.
    """

    def __init__(self, tokens: int, *, may_halve: bool = True) -> None:
        check_whole_number("token_budget", tokens, least=1)
        self.tokens, self.may_halve = tokens, may_halve

    @staticmethod
    def of(asked: "int | TokenBudget | None", model: object, device: torch.device) -> "TokenBudget":
        """Return the budget that was asked for, or a new one by the device and the model."""
        if isinstance(asked, TokenBudget):
            return asked
        return TokenBudget(default_token_budget(device, model) if asked is None else asked)

    def rows(self, size: int) -> int:
        """Return how many blocks of a size go through together: one at least."""
        return max(1, self.tokens // size)

    def run_slices(
        self, run: Callable[[slice], None], tokens: Int64[Tensor, "batch length"], least: int
    ) -> None:
        """Call a function on as many sequences at a time as there is place for, one at least.

        If memory runs out, there is place for half as many tokens from then on, and the same
        sequences run again. Raises where less than ``least`` tokens would be left, or where it may
        not halve.
        """
        batch, length = tokens.shape
        first = 0
        while first < batch:
            past = first + self.rows(length)
            if _fits(run, slice(first, past)):
                first = past
            elif self.tokens <= least or not self.may_halve:
                raise torch.OutOfMemoryError(
                    f"token_budget: expected memory for {self.tokens} tokens on {tokens.device}, "
                    "got less"
                )
            else:
                self.tokens //= 2
                _give_back_cache(tokens.device)


def _fits(run: Callable[[slice], None], some: slice) -> bool:
    """Run, or tell that memory ran out: all that was made on the way is free again then."""
    try:
        run(some)
    except RuntimeError as error:
        if _ran_out(error):
            return False
        raise
    return True


def _ran_out(error: RuntimeError) -> bool:
    """Tell whether a device is out of memory: Apple's, and cuBLAS, say so in words alone."""
    said = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or any(words in said for words in _RAN_OUT)


def _give_back_cache(device: torch.device) -> None:
    give_back = getattr(getattr(torch, device.type, None), "empty_cache", None)
    if give_back is not None:
        give_back()
