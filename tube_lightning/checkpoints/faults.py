"""What is wrong with the tensors of a file, in a few lines."""

_MAX_LISTED = 10


def list_faults(expected: dict[str, list[int]], found: dict[str, list[int]]) -> list[str]:
    """List the first differences of two sets of shapes, and say how many more there are."""
    faults = [f"missing {name} {expected[name]}" for name in expected if name not in found]
    faults += [f"unexpected {name} {found[name]}" for name in found if name not in expected]
    faults += [
        f"{name}: expected {shape}, got {found[name]}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    return shorten(faults)


def shorten(faults: list[str]) -> list[str]:
    """Keep the first, and say how many more there are."""
    if len(faults) > _MAX_LISTED:
        return [*faults[:_MAX_LISTED], f"and {len(faults) - _MAX_LISTED} more"]
    return faults
