"""Block models -> token sequences, and files of them."""

from tube_lightning.sampling.sample_file import write_samples
from tube_lightning.sampling.sequences import sample_sequences
from tube_lightning.sampling.token_draws import draw_tokens

__all__ = ["draw_tokens", "sample_sequences", "write_samples"]
