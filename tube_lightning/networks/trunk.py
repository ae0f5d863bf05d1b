"""The network as inference sees it: a plain pre-norm transformer, its modulation folded in."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar, runtime_checkable

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor, nn

from tube_lightning.networks.precision import own_precision
from tube_lightning.networks.products import linear, linear_gelu
from tube_lightning.records import map_tensors

ROTARY_BASE = 10_000
_MATMULS = frozenset(("qkv", "out", "mlp_in", "mlp_out"))
"""Fields of a layer that are weights and biases of its matmuls."""

T = TypeVar("T")
M = TypeVar("M", bound="HasTrunk")
P = ParamSpec("P")


class Projections(NamedTuple):
    """Queries, keys and values of some tokens, rotated to their positions."""

    queries: Float[Tensor, "*tokens heads width"]
    keys: Float[Tensor, "*tokens kv_heads width"]
    values: Float[Tensor, "*tokens kv_heads width"]


AttendInLayer = Callable[[int, Projections], Tensor | None]
"""(number of the layer, projections) -> what each token attended to; None if nobody reads on."""


class Rotary(NamedTuple):
    """Cosines and sines of some positions, for rotating half-split heads."""

    cos: Float[Tensor, "*positions 1 half"]
    sin: Float[Tensor, "*positions 1 half"]

    def rotate(self, heads: Float[Tensor, "*tokens heads width"]) -> Float[Tensor, "..."]:
        """Turn the pairs (i, i + width/2) of each head by the angle of its position."""
        first, second = heads.chunk(2, dim=-1)
        return torch.cat(
            [
                torch.addcmul(first * self.cos, second, self.sin, value=-1),
                torch.addcmul(second * self.cos, first, self.sin),
            ],
            dim=-1,
        )


@dataclass(frozen=True)
class Layer:
    """One transformer layer with its modulation folded in.

    The residual stream is fp32; matmuls run in the dtype of the weights.
    """

    norm1: tuple[Tensor, Tensor]
    qkv: Float[Tensor, "three_dim dim"]
    out: Float[Tensor, "dim dim"]
    norm2: tuple[Tensor, Tensor]
    mlp_in: tuple[Tensor, Tensor]
    mlp_out: tuple[Tensor, Tensor]
    n_heads: int
    dropout: float = 0.0

    def project(self, x: Float[Tensor, "*tokens dim"], rotary: Rotary) -> Projections:
        """Read queries, keys and values off the stream."""
        normed = F.layer_norm(x, x.shape[-1:], *self.norm1).to(self.qkv.dtype)
        queries, keys, values = rearrange(
            linear(normed, self.qkv),
            "... (three heads width) -> three ... heads width",
            three=3,
            heads=self.n_heads,
        )
        return Projections(rotary.rotate(queries), rotary.rotate(keys), values)

    def finish(
        self,
        x: Float[Tensor, "*tokens dim"],
        attended: Float[Tensor, "*tokens heads width"],
    ) -> Float[Tensor, "*tokens dim"]:
        """Write what attention found to the stream, then the MLP's answer."""
        x = x + self._drop(linear(attended.flatten(-2), self.out))
        normed = F.layer_norm(x, x.shape[-1:], *self.norm2).to(self.qkv.dtype)
        hidden = linear_gelu(normed, *self.mlp_in)
        return x + self._drop(linear(hidden, *self.mlp_out))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout) if self.dropout else x


@dataclass(frozen=True)
class Trunk:
    """The whole network as constants: what inference needs, and nothing else."""

    embedding: Float[Tensor, "vocab dim"]
    layers: tuple[Layer, ...]
    norm_final: tuple[Tensor, Tensor]
    head: tuple[Tensor, Tensor]
    n_heads: int

    def freeze(self, dtype: torch.dtype = torch.float32) -> "Trunk":
        """Detach from the parameters, with the layers' matmuls in ``dtype`` and the rest fp32."""

        def convert(path: str, tensor: Tensor) -> Tensor:
            matmul = not _MATMULS.isdisjoint(path.split("."))
            return tensor.detach().to(dtype if matmul else torch.float32).contiguous()

        return map_tensors(convert, self)

    def to(self, device: torch.device) -> "Trunk":
        """Return the trunk on a device."""
        return map_tensors(lambda _, tensor: tensor.to(device), self)

    def rotary(self, positions: Int64[Tensor, "*positions"]) -> Rotary:
        """Return the rotations of some positions (base 10,000), in the trunk's dtype."""
        width = self.embedding.shape[1] // self.n_heads
        exponent = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
        angles = positions[..., None, None].float() / ROTARY_BASE**exponent
        dtype = self.layers[0].qkv.dtype
        return Rotary(angles.cos().to(dtype), angles.sin().to(dtype))

    def run(
        self,
        tokens: Int64[Tensor, "*tokens"],
        positions: Int64[Tensor, "*positions"],
        attend: AttendInLayer,
        places: Int64[Tensor, " needed"] | None = None,
    ) -> Float[Tensor, "*selected dim"]:
        """Embed tokens and run them through the layers; return their stream.

        ``attend`` is called once a layer, in order; where it returns None the stream ends as it is.
        After the last attention each token is on its own: only those at ``places`` go on, numbered
        through all of them, as one axis. Differentiable.
        """
        x, rotary = F.embedding(tokens, self.embedding), self.rotary(positions)
        last = len(self.layers) - 1
        for number, layer in enumerate(self.layers):
            attended = attend(number, layer.project(x, rotary))
            if attended is None:
                break
            if number == last and places is not None:
                x, attended = x.flatten(0, -2)[places], attended.flatten(0, -3)[places]
            x = layer.finish(x, attended)
        return x

    def final_norm(self, x: Float[Tensor, "*tokens dim"]) -> Float[Tensor, "*tokens dim"]:
        """Normalise the stream for the head."""
        return F.layer_norm(x, x.shape[-1:], *self.norm_final)

    def logits(self, x: Float[Tensor, "*tokens dim"]) -> Float[Tensor, "*tokens vocab"]:
        """Return fp32 logits; the mask token's is -inf, for nothing is ever revealed as a mask."""
        return linear(self.final_norm(x), *self.head)


@runtime_checkable
class HasTrunk(Protocol):
    """A model on a trunk."""

    @property
    def trunk(self) -> Trunk:
        """The network."""
        ...


def in_own_precision(
    method: Callable[Concatenate[M, P], T],
) -> Callable[Concatenate[M, P], T]:
    """Run a model's method without gradients, in the dtypes of its trunk."""

    @wraps(method)
    def run(self: M, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with torch.no_grad(), own_precision(self.trunk.embedding.device):
            return method(self, *args, **kwargs)

    return run


class FrozenTrunk(nn.Module):
    """A trunk that moves with the module that holds it, and keeps its dtypes.

    It has no parameters: what is loaded to be evaluated is neither trained nor saved again.
    """

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.constants = trunk

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "FrozenTrunk":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.constants = self.constants.to(fn(self.constants.embedding[:0]).device)
        return self
