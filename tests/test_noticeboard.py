"""Ranks that let each other know, and wait once: threads on a real store over TCP."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from tube_lightning.cluster import LostProcessError
from tube_lightning.evaluator.noticeboard import Notice, Noticeboard

SECONDS = 20


def notice(number, state="scoring", sums=((1.0,), (2.0,))):
    return Notice(number, state, torch.tensor(sums, dtype=torch.float64))


@pytest.fixture
def store():
    if not dist.is_available():
        pytest.skip("torch has no stores here")
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def boards(store, world_size, **options):
    """One board for each rank, by a connection of its own."""
    made = []
    for rank in range(world_size):
        mine = store if rank == 0 else dist.TCPStore("127.0.0.1", store.port, is_master=False)
        made.append(Noticeboard(mine, rank, world_size, name="test", **options))
    made[0]._pin_all()
    return made


def leave(board, state="done", number=0):
    """Leave with the others; return what was new meanwhile, and how everybody left."""
    board.pin(notice(number, state))
    news = [board.notices()[-1].num_batches for _ in board.wait_for_all_to_leave()]
    return news, [one.state for one in board.notices()]


@pytest.mark.parametrize("state", ["scoring", "done", "stopped"])
@pytest.mark.parametrize("shape", [(1, 0), (8, 3)])
def test_notices_are_read_back_bit_by_bit(state, shape):
    sums = torch.randn(shape, dtype=torch.float64).index_fill(0, torch.tensor([0]), -torch.inf)
    back = Notice.decode(Notice(10**9, state, sums).encode())
    assert (back.num_batches, back.state) == (10**9, state)
    assert torch.equal(back.sums, sums)


def test_a_process_alone_waits_for_nobody():
    board = Noticeboard()
    board.pin(notice(3))
    assert [one.num_batches for one in board.notices()] == [3]
    assert not board.must_stop()
    board.ask_to_stop()
    assert board.must_stop()
    assert leave(board, "stopped", 4) == ([], ["stopped"])
    with pytest.raises(ValueError, match="store: expected one for 2 ranks, got none"):
        Noticeboard(None, 0, 2)


def test_what_one_pins_all_read_and_nobody_waits(store):
    first, second, third = boards(store, 3)
    assert [one.num_batches for one in first.notices()] == [0, 0, 0]
    second.pin(notice(1))
    second.pin(notice(2, sums=[[5.0], [6.0]]))
    for board in (first, second, third):
        assert [one.num_batches for one in board.notices()] == [0, 2, 0]
        assert board.notices()[1].sums.tolist() == [[5.0], [6.0]]


@pytest.mark.parametrize("asked", [0, 2])
def test_one_that_is_asked_to_stop_stops_all(store, asked):
    ranks = boards(store, 3)
    assert not any(board.must_stop() for board in ranks)
    ranks[asked].ask_to_stop()
    assert ranks[asked].must_stop()
    assert all(board.must_stop() for board in ranks)


def test_ranks_leave_together_and_rank_0_last(store):
    ranks = boards(store, 3)
    gone = []

    def go(rank, delay):
        time.sleep(delay)
        found = leave(ranks[rank], number=rank)
        if rank == 0:
            gone.append(store.add("test/gone", 0))
        return found

    with ThreadPoolExecutor(3) as pool:
        going = [pool.submit(go, rank, delay) for rank, delay in enumerate((0.0, 0.1, 0.5))]
        found = [one.result(SECONDS) for one in going]
    assert [states for _, states in found] == [["done"] * 3] * 3
    assert gone == [2]  # nobody looks at the board any more when the process that has it goes
    assert found[0][0][-1] == 2  # the news of the last rank reached the one that waited
    ranks[0].pin(notice(7))
    assert [one.num_batches for one in ranks[1].notices()] == [0, 1, 2]  # the board is closed


def test_a_rank_that_waits_can_be_asked_to_stop(store):
    first, second = boards(store, 2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(leave, first)
        first.ask_to_stop()
        deadline = time.monotonic() + SECONDS
        while not second.must_stop():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        _, states = leave(second, "stopped")
        assert states == waiting.result(SECONDS)[1] == ["done", "stopped"]


def test_a_lost_rank_is_named_and_a_slow_one_is_not(store):
    """Rank 1 goes on finishing batches for longer than anybody would wait for one."""
    first, second, _lost = boards(store, 3, patience=timedelta(seconds=1))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(leave, first)
        begin = time.monotonic()
        while not waiting.done():
            second.pin(notice(int(1e3 * time.monotonic())))
            time.sleep(0.05)
            assert time.monotonic() - begin < SECONDS
        with pytest.raises(TimeoutError, match=r"rank 2: expected to hear of it within 0:00:0"):
            waiting.result()


def test_who_has_long_batches_waits_longer_for_those_of_others(store):
    first, second = boards(store, 2, patience=timedelta(seconds=0.1))
    time.sleep(0.5)
    first.pin(notice(1))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(leave, first)
        time.sleep(1)
        leave(second)
        waiting.result(SECONDS)


def test_without_rank_0_nobody_waits_for_ever():
    """Its process has the store: who asks a dead one is told so at once."""
    script = (
        "import time, torch.distributed as dist\n"
        "store = dist.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False)\n"
        "store.set('test/0', b''); print(store.port, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as first:
        mine = dist.TCPStore("127.0.0.1", int(first.stdout.readline()), is_master=False)
        board = Noticeboard(mine, 1, 2, name="test")
        board.pin(notice(1))
        first.kill()
        first.wait()
        begin = time.monotonic()
        with pytest.raises(LostProcessError, match="in which ranks meet is gone"):
            leave(board)
        assert time.monotonic() - begin < SECONDS
