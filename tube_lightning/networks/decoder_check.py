"""Whether a decoder is read as its family says: tried on a few tokens when it is loaded.

The mistakes that this finds are silent otherwise: an attention mask that is causal where it should
not be, a missing shift, a suppressed logit, or a version of transformers that passes things on in
another way. Each changes log-probabilities by a nat or so, and nothing else.
"""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from tube_lightning.networks.decoder import DecoderBlockModel
from tube_lightning.networks.decoder_attention import NAME
from tube_lightning.networks.decoder_facts import DecoderFacts
from tube_lightning.networks.precision import own_precision
from tube_lightning.networks.protocols import NoisyRows

_WHOLE = 16
"""Tokens of a trial where the block is the whole sequence."""
_NOISE = {torch.float32: 1e-3}
_NOISE_OF_HALVES = 0.1
"""Mean difference of log-probabilities between two ways to compute them, in nats."""


def check_decoder(model: DecoderBlockModel, facts: DecoderFacts, source: str) -> None:
    """Refuse a model that is not read as ``facts`` say, by three trials on random tokens.

    Rows must agree with a plain forward of transformers under an explicit mask; hidden tokens must
    see later ones of their block and nothing of later blocks; the mask token must have a
    probability unless the facts suppress it. It costs a few short sequences. Blocks and sequences
    that are too short for a trial have nothing to mistake.
    """
    trial = _Trial(model, facts)
    if not trial.needed.any():
        return
    own, plain = trial.by_rows(trial.tokens), trial.by_plain_forward()
    limit = _NOISE.get(model.network.dtype, _NOISE_OF_HALVES)
    difference = (own - plain).abs().mean().item()
    if not difference <= limit:
        raise ValueError(
            f"{source}: expected the log-probabilities of a plain forward of transformers, got "
            f"others by {difference:.3g} nats on average: attention, shift or class are not those "
            "of its family (check=false skips this trial)"
        )
    last, after = trial.start + trial.size - 1, trial.start + trial.size
    if trial.sees_last and own.equal(trial.by_rows(trial.flip(last))):
        raise ValueError(f"{source}: expected hidden tokens to see later tokens of their block")
    if after < trial.tokens.shape[1] and not own.equal(trial.by_rows(trial.flip(after))):
        raise ValueError(f"{source}: expected hidden tokens not to see later blocks")
    suppressed = trial.mask_logits() == -torch.inf
    if suppressed.any() != (facts.mask_id in facts.suppressed):
        raise ValueError(
            f"{source}: expected the mask token {facts.mask_id} to be "
            f"{'suppressed' if facts.mask_id in facts.suppressed else 'predicted'}, as its family "
            "says, got the opposite"
        )


class _Trial:
    """Random tokens; in the block at ``start`` every other position is hidden, the last is not.

    Of a block of one position that one is hidden.
    """

    def __init__(self, model: DecoderBlockModel, facts: DecoderFacts) -> None:
        self.model, self.facts = model, facts
        whole = min(_WHOLE, facts.max_length)
        self.size = facts.block_size or whole
        num_blocks = 1 if facts.block_size is None else min(3, facts.max_length // self.size)
        self.start = self.size if num_blocks > 1 else 0
        host = torch.device("cpu")  # draws there, whatever torch's default device is
        generator = torch.Generator(host).manual_seed(0)
        shape = (1, num_blocks * self.size)
        ids = torch.randint(model.vocab_size - 1, shape, generator=generator, device=host)
        self.tokens = (ids + (ids >= facts.mask_id)).to(model.device)
        self.revealed = torch.arange(self.size, device=model.device) % 2 == (self.size - 1) % 2
        self.revealed &= self.size > 1
        self.needed = ~self.revealed
        if facts.shift and self.start == 0:
            self.needed[0] = False  # nobody predicts it

    @property
    def sees_last(self) -> bool:
        """Tell whether something that is needed is predicted with the block's last token in sight.

        What the clean tokens before the block predict sees nothing of it.
        """
        begin = int(self.facts.first == "previous")
        return bool(self.needed[begin:-1].any())

    def flip(self, position: int) -> Int64[Tensor, "1 length"]:
        """Return the tokens with another one at a position."""
        others = self.tokens.clone()
        taken = (int(others[0, position]), self.facts.mask_id)
        others[0, position] = next(token for token in range(3) if token not in taken)
        return others

    def rows(self, tokens: Int64[Tensor, "1 length"]) -> NoisyRows:
        """Return the one row of the trial."""
        number = torch.zeros(1, dtype=torch.int64, device=tokens.device)
        return NoisyRows(
            sequence=number,
            start=number + self.start,
            tokens=tokens[:, self.start : self.start + self.size],
            revealed=self.revealed[None],
            needed=self.needed[None],
        )

    def by_rows(self, tokens: Int64[Tensor, "1 length"]) -> Float[Tensor, " needed"]:
        """Ask the model, as an evaluation does."""
        return self.model.log_probs(self.model.encode(tokens), self.rows(tokens))

    def mask_logits(self) -> Float[Tensor, " needed"]:
        """Return the model's logits of the mask token."""
        logits = self.model.logits(self.model.encode(self.tokens), self.rows(self.tokens))
        return logits[:, self.facts.mask_id]

    @torch.no_grad()
    def by_plain_forward(self) -> Float[Tensor, " needed"]:
        """Run clean tokens and the block as one sequence through transformers' own attention."""
        network, facts, rows = self.model.network, self.facts, self.rows(self.tokens)
        noisy = rows.tokens.where(rows.revealed, facts.mask_id)
        network.set_attn_implementation("sdpa")
        try:
            with own_precision(self.model.device):
                logits = network(
                    torch.cat([self.tokens[:, : self.start], noisy], dim=1),
                    attention_mask=self.sees()[None, None],
                    position_ids=torch.arange(self.start + self.size, device=noisy.device)[None],
                    use_cache=False,
                ).logits[0]
        finally:
            network.set_attn_implementation(NAME)
        if facts.suppressed:
            logits[:, list(facts.suppressed)] = -torch.inf
        position = torch.nonzero(self.needed)[:, 0]
        at = self.start + position - int(facts.shift)
        if facts.first == "previous" and self.start:
            at = torch.where(position == 0, self.start - 1, at)
        log_probs: Tensor = logits[at].float().log_softmax(dim=-1)
        return log_probs.gather(-1, rows.tokens[0, position, None])[:, 0]

    def sees(self) -> Bool[Tensor, "seen seen"]:
        """Say which tokens each one sees, clean ones first."""
        place = torch.arange(self.start + self.size, device=self.model.device)
        is_row = place >= self.start
        number = place if self.facts.context == "causal" else place // self.size
        return (number[:, None] >= number) | is_row[:, None]
