"""What the ranks of an evaluation let each other know while they score: nobody waits for it.

Each rank pins up one notice and replaces it after every batch; whoever wants to know reads those of
all. They are in the store through which the process group met: a server in the process of rank 0,
asked over TCP, so that nodes need share nothing for it. Ranks meet once, when they leave.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, cast, get_args
from uuid import uuid4

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Float64
from torch import Tensor

from tube_lightning.cluster import LostProcessError
from tube_lightning.evaluator.heartbeats import STORE_GONE, Heartbeats

if TYPE_CHECKING:
    from lightning.pytorch.strategies import Strategy

PATIENCE = timedelta(minutes=30)
"""A rank without news for so long is lost: the time that a collective would wait for it."""
PATIENCE_IN_BATCHES = 4
"""So many batches of who waits may take longer: then it waits as long for another's."""
GOODBYE_SECONDS = 10.0
"""How long rank 0 keeps the board for ranks that are about to look at it for the last time."""
_POLL_SECONDS = 0.05

State = Literal["scoring", "done", "stopped"]
"""A rank leaves when it has no batches left, or because some rank was asked to stop."""
_STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True, eq=False)
class Notice:
    """What one rank has pinned up last."""

    num_batches: int
    """finished in this run"""
    state: State
    sums: Float64[Tensor, "sums metrics"]
    """the running sums of all its metrics"""

    def encode(self) -> bytes:
        """Write it as numbers."""
        head = [self.num_batches, _STATES.index(self.state), len(self.sums)]
        return np.concatenate([head, self.sums.flatten().numpy()]).astype(np.float64).tobytes()

    @staticmethod
    def decode(data: bytes) -> "Notice":
        """Read it back."""
        numbers = np.frombuffer(data, np.float64).copy()
        num_batches, state, num_sums = map(int, numbers[:3])
        sums = torch.from_numpy(numbers[3:])
        return Notice(num_batches, _STATES[state], sums.view(num_sums, -1))


_NOTHING_YET = Notice(0, "scoring", torch.zeros(1, 0, dtype=torch.float64))


class Noticeboard:
    """The notices of all ranks. A process alone has its own and needs no store."""

    def __init__(
        self,
        store: Any = None,  # noqa: ANN401 (a dist.Store, where torch has them)
        rank: int = 0,
        world_size: int = 1,
        *,
        name: str = "",
        patience: timedelta = PATIENCE,
    ) -> None:
        if store is None and world_size > 1:
            raise ValueError(f"store: expected one for {world_size} ranks, got none")
        self._store, self.rank, self._patience = store, rank, patience
        self._keys = [f"{name}/{number}" for number in range(world_size)]
        self._stop_key, self._gone_key = f"{name}/stop", f"{name}/gone"
        self._pinned = [_NOTHING_YET.encode()] * world_size
        self._wants_stop = self._told_stop = self._closed = False
        self._heartbeats: Heartbeats | None = None
        self._pinned_at, self._longest = time.monotonic(), 0.0

    @staticmethod
    def open(strategy: "Strategy") -> "Noticeboard":
        """Put up a board for all ranks: a collective. Every call makes a new one."""
        world_size = dist.get_world_size() if _is_distributed() else 1
        if world_size == 1:
            return Noticeboard()
        store: Any = cast("Any", dist.group.WORLD).get_group_store()
        name, rank = f"noticeboard_{uuid4()}", dist.get_rank()
        if rank == 0:  # a notice of everybody is there before anybody can look
            Noticeboard(store, rank, world_size, name=name)._pin_all()
            Heartbeats(store, rank, world_size, name).register()
        name = strategy.broadcast(name)
        board = Noticeboard(store, rank, world_size, name=name)
        board.listen(Heartbeats(store, rank, world_size, name))
        return board

    def listen(self, heartbeats: Heartbeats) -> None:
        """Miss the ranks that are gone from now on: ``must_stop`` raises where one is."""
        self._heartbeats = heartbeats
        heartbeats.start()

    def _miss_nobody(self) -> None:
        stopping = self._told_stop or self._wants_stop
        if self._heartbeats is not None and (lost := self._heartbeats.find_lost(stopping)):
            raise LostProcessError(lost)

    def _ask(self, method: str, *arguments: Any) -> Any:  # noqa: ANN401 (the store's)
        try:
            return getattr(self._store, method)(*arguments)
        except RuntimeError as error:
            raise LostProcessError(f"{STORE_GONE} ({type(error).__name__})") from error

    def _pin_all(self) -> None:
        self._store.multi_set(self._keys, self._pinned)

    def pin(self, notice: Notice) -> None:
        """Replace this rank's notice; a closed board stays as it is."""
        if self._closed:
            return
        before, self._pinned_at = self._pinned_at, time.monotonic()
        self._longest = max(self._longest, self._pinned_at - before)
        self._pinned[self.rank] = notice.encode()
        if self._store is not None:
            self._ask("set", self._keys[self.rank], self._pinned[self.rank])

    def notices(self) -> list[Notice]:
        """Read what all ranks have pinned up last; after the end, what they had."""
        if self._store is not None and not self._closed:
            self._pinned = self._ask("multi_get", self._keys)
        return [Notice.decode(data) for data in self._pinned]

    def ask_to_stop(self) -> None:
        """Note that this rank is to stop: all a signal's handler may do. ``must_stop`` tells."""
        self._wants_stop = True

    def must_stop(self) -> bool:
        """Tell whether any rank was asked to stop, and let the others know.

        Raises if a rank is gone, which is known ``LOST_SECONDS`` after its last sign of life.
        """
        if self._store is None or self._closed:
            return self._wants_stop
        self._miss_nobody()
        if self._wants_stop and not self._told_stop:
            self._ask("set", self._stop_key, "1")
            self._told_stop = True
        return self._told_stop or bool(self._ask("check", [self._stop_key]))

    def wait_for_all_to_leave(self) -> Iterator[None]:
        """Wait until no rank's notice says that it is scoring; yield whenever one has changed.

        The board is closed then, and rank 0, whose process has the store, is the last to go. Raises
        if a rank that is waited for has had nothing new for too long.
        """
        news_at, seen = [time.monotonic()] * len(self._keys), list(self._pinned)
        patience = max(self._patience, PATIENCE_IN_BATCHES * timedelta(seconds=self._longest))
        while not self._closed:
            notices, now = self.notices(), time.monotonic()
            changed = [ours != theirs for ours, theirs in zip(seen, self._pinned, strict=True)]
            news_at = [now if new else at for new, at in zip(changed, news_at, strict=True)]
            seen = list(self._pinned)
            if any(changed):
                yield
            late = [rank for rank, notice in enumerate(notices) if notice.state == "scoring"]
            if not late:
                self._close()
                return
            quiet = now - min(news_at[rank] for rank in late)
            if quiet > patience.total_seconds():
                raise TimeoutError(
                    f"rank {min(late, key=news_at.__getitem__)}: expected to hear of it within "
                    f"{patience}, got nothing new in {timedelta(seconds=int(quiet))}"
                )
            self.must_stop()
            time.sleep(_POLL_SECONDS)

    def stop_listening(self) -> None:
        """Miss nobody any more."""
        if self._heartbeats is not None:
            self._heartbeats.stop()

    def _close(self) -> None:
        self._closed = True
        self.stop_listening()
        if self._store is None:
            return
        if self.rank > 0:
            self._ask("add", self._gone_key, 1)
            return
        deadline = time.monotonic() + GOODBYE_SECONDS
        while (
            self._ask("add", self._gone_key, 0) < len(self._keys) - 1
            and time.monotonic() < deadline
        ):
            time.sleep(_POLL_SECONDS / 10)


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()
