"""The embedded default: small trained checkpoints, so that nothing need be downloaded."""

from pathlib import Path

DEMO_CHECKPOINTS = ("arm", "arm_ft_l4", "bd3lm_l4", "bd3lm_l8", "bd3lm_l16")
"""An ARM, the ARM fine-tuned on samples of ``bd3lm_l4``, and BD3-LMs by their block size."""


def demo_checkpoint(name: str) -> Path:
    """Return the folder of a checkpoint that comes with the package.

    >>> demo_checkpoint("bd3lm_l4").name
    'bd3lm_l4'
    """
    if name not in DEMO_CHECKPOINTS:
        raise ValueError(
            f"demo checkpoint: expected one of {', '.join(DEMO_CHECKPOINTS)}, got {name!r}"
        )
    folder = Path(__file__).parent / name
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: this installation lacks its demo checkpoints")
    return folder
