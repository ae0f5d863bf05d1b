"""Decoders of transformers as block models: the clean tokens once, then only the noisy rows."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor, nn

from tube_lightning.networks.attention import default_attention
from tube_lightning.networks.decoder_attention import KEYWORD, NAME, register
from tube_lightning.networks.decoder_context import DecoderContext, Heads, trim_rows
from tube_lightning.networks.decoder_facts import DecoderFacts
from tube_lightning.networks.dense_attention import attend_densely
from tube_lightning.networks.head import token_log_probs
from tube_lightning.networks.precision import device_only, own_precision
from tube_lightning.networks.products import use_own_products
from tube_lightning.networks.protocols import NoisyRows
from tube_lightning.networks.shared_prefix import PlanAttention
from tube_lightning.networks.trunk import AttendInLayer, Projections

T = TypeVar("T")
P = ParamSpec("P")


def _without_gradients(
    method: Callable[Concatenate["DecoderBlockModel", P], T],
) -> Callable[Concatenate["DecoderBlockModel", P], T]:
    """Run a method without gradients, in the weights' own dtypes whatever autocast and TF32 say."""

    @wraps(method)
    def run(self: "DecoderBlockModel", /, *args: P.args, **kwargs: P.kwargs) -> T:
        with torch.no_grad(), own_precision(self.device):
            return method(self, *args, **kwargs)

    return run


class DecoderBlockModel(nn.Module):
    """A causal language model class of transformers, read as its family's ``facts`` say.

    ``plan_attention`` overrides the implementation of attention that the device suggests.
    """

    network: Any
    fingerprint: str
    """Set where the weights cannot tell this model from others: no process has them all."""

    def __init__(
        self,
        network: nn.Module,
        facts: DecoderFacts,
        plan_attention: PlanAttention | None = None,
    ) -> None:
        super().__init__()
        register()
        self.network = network.eval().requires_grad_(False)
        use_own_products(self.network)
        self.network.set_attn_implementation(NAME)
        self.config = facts
        self.plan_attention = plan_attention

    @property
    def mask_id(self) -> int:
        """The token that stands for "hidden"."""
        return self.config.mask_id

    @property
    def vocab_size(self) -> int:
        """Number of token ids, the mask token's included."""
        return int(self.network.config.vocab_size)

    @property
    def block_size(self) -> int:
        """Number of positions in a block; the most there can be if it is the whole sequence."""
        return self.config.block_size or self.max_length

    @property
    def own_length(self) -> bool:
        """Tell whether the block is the whole sequence, with as many positions as that has."""
        return self.config.block_size is None

    @property
    def first_is_given(self) -> bool:
        """Tell whether nobody predicts the first token of a sequence: outputs are of the next."""
        return self.config.shift

    @property
    def first_goes_first(self) -> bool:
        """Tell whether only orders are meant that begin with the first token of a block."""
        return self.config.first_goes_first

    @property
    def max_length(self) -> int:
        """Longest sequence the model was made for."""
        return self.config.max_length

    @property
    def device(self) -> torch.device:
        """Where the network is, and expects tokens and rows."""
        weight: Tensor = self.network.get_input_embeddings().weight
        return weight.device

    @property
    def head(self) -> tuple[Float[Tensor, "vocab dim"], Float[Tensor, " vocab"]]:
        """The output layer; suppressed ids have a bias of -inf."""
        output = self.network.get_output_embeddings()
        weight: Tensor = output.weight
        bias = torch.zeros(len(weight), device=weight.device)
        if getattr(output, "bias", None) is not None:
            bias = output.bias.float()
        if self.config.suppressed:
            bias = bias.index_fill(0, bias.new_tensor(self.config.suppressed).long(), -torch.inf)
        return weight, bias

    @_without_gradients
    def encode(self, tokens: Int64[Tensor, "batch length"]) -> DecoderContext:
        """Read all blocks that some row has before it, once."""
        size = tokens.shape[1] if self.own_length else self.block_size
        num_clean = (-(-tokens.shape[1] // size) - 1) * size
        nothing = self.empty_context(len(tokens))
        return self._read(nothing, tokens[:, :num_clean]) if num_clean else nothing

    def empty_context(self, batch: int) -> DecoderContext:
        """Return the context of sequences that have no clean tokens yet."""
        weight = self.network.get_input_embeddings().weight
        return DecoderContext((), (), weight.new_empty(batch, 0, weight.shape[1]))

    @_without_gradients
    def extend(
        self, context: DecoderContext, tokens: Int64[Tensor, "batch size"]
    ) -> DecoderContext:
        """Read one more clean block of every sequence: what ``encode`` gives, block by block."""
        batch = len(context.ends)
        if self.own_length or tokens.shape != (batch, self.block_size):
            raise ValueError(
                f"tokens: expected a block of {self.config.block_size} (None: there is no second) "
                f"for each of {batch} sequences, got shape {tuple(tokens.shape)}"
            )
        return self._read(context, tokens)

    @_without_gradients
    def log_probs(self, context: DecoderContext, rows: NoisyRows) -> Float[Tensor, " needed"]:
        """Return the log-probability of the true token at each needed position, in row order."""
        stream = self._predict(context, rows).float()
        return token_log_probs(stream, self.head, rows.tokens.flatten()[rows.places])

    @_without_gradients
    def logits(self, context: DecoderContext, rows: NoisyRows) -> Float[Tensor, "needed vocab"]:
        """Return fp32 logits at each needed position, in row order; -inf for suppressed tokens."""
        weight, bias = self.head
        return F.linear(self._predict(context, rows).float(), weight.float(), bias)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "DecoderBlockModel":
        """Follow a trainer to its device, never to its precision."""
        super()._apply(device_only(fn, self.device), recurse)  # type: ignore[no-untyped-call]
        return self

    def _read(self, context: DecoderContext, tokens: Int64[Tensor, "batch more"]) -> DecoderContext:
        """Read clean tokens behind those of a context, each seeing what the family lets it."""
        end = context.length + tokens.shape[1]
        places = torch.arange(end, device=tokens.device)
        number = places if self.config.context == "causal" else places // self.block_size
        sees = number[context.length :, None] >= number
        layers: list[tuple[Heads, Heads]] = []

        def attend(layer: int, own: Projections) -> Tensor:
            keys, values = own.keys, own.values
            if context.keys:
                keys = torch.cat([context.keys[layer], keys], dim=1)
                values = torch.cat([context.values[layer], values], dim=1)
            layers.append((keys, values))
            return attend_densely(own.queries, keys, values, sees)

        stream = self.run(tokens, places[context.length :].expand_as(tokens), attend)
        ends = context.ends
        if self.config.first == "previous":
            ends = torch.cat([ends, stream[:, self.block_size - 1 :: self.block_size]], dim=1)
        keys, values = zip(*layers, strict=True)
        return DecoderContext(keys, values, ends)

    def _predict(self, context: DecoderContext, rows: NoisyRows) -> Float[Tensor, "needed dim"]:
        """Run rows behind their clean tokens; return the outputs that predict what is needed."""
        self._check_needed(rows)
        rows = trim_rows(rows)
        offsets = torch.arange(rows.tokens.shape[1], device=rows.tokens.device)
        stream = self.run(
            rows.tokens.where(rows.revealed, self.mask_id),
            rows.start[:, None] + offsets,
            self._attend_rows(context, rows),
        )
        if self.config.shift:
            stream = torch.cat([stream[:, :1], stream[:, :-1]], dim=1)
        if self.config.first == "previous" and context.ends.shape[1]:
            before = (rows.start // self.block_size - 1).clamp(min=0)
            ends = context.ends[rows.sequence, before]
            first = torch.where(rows.start[:, None] > 0, ends, stream[:, 0])
            stream = torch.cat([first[:, None], stream[:, 1:]], dim=1)
        return stream.flatten(0, 1)[rows.places]

    def _attend_rows(self, context: DecoderContext, rows: NoisyRows) -> AttendInLayer:
        """Let each row see itself, as far as it exists, and the clean tokens before its block."""
        if not context.keys:
            exists = None if rows.exists is None else rearrange(rows.exists, "r n -> r 1 1 n")
            return lambda _, own: attend_densely(*own, exists)
        plan = self.plan_attention or default_attention(rows.tokens.device)
        attend = plan(rows, context.length)
        return lambda layer, own: attend(own, context.keys[layer], context.values[layer])

    def run(
        self,
        tokens: Int64[Tensor, "rows size"],
        positions: Int64[Tensor, "rows size"],
        attend: AttendInLayer,
    ) -> Float[Tensor, "rows size dim"]:
        """Run tokens through the decoder, up to the head, each layer attending by ``attend``."""
        output: Tensor = self.network.base_model(
            input_ids=tokens, position_ids=positions, use_cache=False, **{KEYWORD: attend}
        ).last_hidden_state
        return output

    def _check_needed(self, rows: NoisyRows) -> None:
        """Refuse to predict a first token that nobody predicts."""
        if self.config.first == "own" or not self.config.shift:
            return
        first = rows.needed[:, 0]
        if self.config.first == "previous":
            first = first & (rows.start == 0)
        if first.any():
            raise ValueError(
                "roles: expected the first token of a sequence to be given: this model's outputs "
                "predict the next position, and none predicts the first"
            )
