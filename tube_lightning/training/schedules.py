"""Learning-rate factors as functions of the step."""

import math


def constant_after_warmup(step: int, *, warmup_steps: int) -> float:
    """Rise linearly to 1 and stay there.

    >>> [constant_after_warmup(s, warmup_steps=4) for s in (0, 1, 3, 9)]
    [0.25, 0.5, 1.0, 1.0]
    """
    return min(1.0, (step + 1) / max(warmup_steps, 1))


def cosine_after_warmup(step: int, *, warmup_steps: int, total_steps: int) -> float:
    """Rise linearly to 1, then fall along a cosine to 0 at ``total_steps``.

    >>> [round(cosine_after_warmup(s, warmup_steps=2, total_steps=10), 3) for s in (0, 1, 5, 9)]
    [0.5, 1.0, 0.587, 0.03]
    """
    if step < warmup_steps:
        return constant_after_warmup(step, warmup_steps=warmup_steps)
    progress = min(1.0, (step - warmup_steps + 1) / max(total_steps - warmup_steps + 1, 1))
    return 0.5 * (1 + math.cos(math.pi * progress))


def linear_after_warmup(step: int, *, warmup_steps: int, total_steps: int) -> float:
    """Rise linearly to 1, then fall linearly to 0 at ``total_steps``.

    >>> [linear_after_warmup(s, warmup_steps=2, total_steps=9) for s in (0, 1, 5, 8)]
    [0.5, 1.0, 0.5, 0.125]
    """
    if step < warmup_steps:
        return constant_after_warmup(step, warmup_steps=warmup_steps)
    return max(0.0, (total_steps - step) / max(total_steps - warmup_steps + 1, 1))
