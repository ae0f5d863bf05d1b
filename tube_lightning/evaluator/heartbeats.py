"""Whether the other ranks of an evaluation live: a thread of each tells, and listens."""

import threading
import time
from typing import Any

BEAT_SECONDS = 1.0
LOST_SECONDS = 60.0
"""A rank that is not heard of for so long is gone."""
LOST_SECONDS_AT_THE_END = 10.0
"""The same once ranks were asked to stop: whoever asks soon kills (torchrun after 30 s)."""
STORE_GONE = "the process in which ranks meet is gone"
"""Rank 0, or torchrun."""


class Heartbeats:
    """The signs of life of all ranks, in the store through which they met.

    A thread of its own beats while the rank is busy with a batch, however long that takes, by a
    connection of its own. Where the store is gone, so is the process that had it.
    """

    def __init__(self, store: Any, rank: int, world_size: int, name: str) -> None:  # noqa: ANN401
        self._store, self._rank = store, rank
        self._keys = [f"{name}/alive/{number}" for number in range(world_size)]
        self._heard_at = [time.monotonic()] * world_size
        self._store_gone: str | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat_and_listen, daemon=True)

    def register(self) -> None:
        """Make the signs of all ranks, before anybody looks for them."""
        self._store.multi_set(self._keys, ["0"] * len(self._keys))

    def start(self) -> None:
        """Begin to beat and to listen."""
        self._thread.start()

    def stop(self) -> None:
        """End both; ranks that are not there any more are then not missed."""
        self._over.set()
        self._thread.join(2 * BEAT_SECONDS)

    def find_lost(self, stopping: bool) -> str | None:
        """Say who is gone; None as long as nobody is."""
        if self._store_gone is not None:
            return self._store_gone
        most = LOST_SECONDS_AT_THE_END if stopping else LOST_SECONDS
        mine = self._heard_at[self._rank]  # not the clock: this thread, too, may have been asleep
        gone = [str(rank) for rank, at in enumerate(self._heard_at) if mine - at > most]
        return f"rank {' and '.join(gone)} is gone (not heard of for {most:g} s)" if gone else None

    def _beat_and_listen(self) -> None:
        beats, before = 0, [b""] * len(self._keys)
        try:
            store = self._store.clone()
            while not self._over.wait(BEAT_SECONDS):
                beats += 1
                store.set(self._keys[self._rank], str(beats))
                signs, now = store.multi_get(self._keys), time.monotonic()
                heard = zip(self._heard_at, signs, before, strict=True)
                self._heard_at = [at if sign == old else now for at, sign, old in heard]
                before = signs
        except RuntimeError as error:
            self._store_gone = f"{STORE_GONE} ({type(error).__name__})"
