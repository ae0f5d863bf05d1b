"""Scores on disk: bit for bit, whole or not at all, and readable without the package."""

import math
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tube_lightning.records import named_tensors
from tube_lightning.scores import BlockScores, RegimeScores, ScoreFiles

ROOT = Path(__file__).parent.parent
BATCH, BLOCKS, ORDERINGS, SEEDS = 2, 3, 5, 2
TENSORS = ("scores", "exact", "exact_elbo", "left_to_right", "continuous_elbo")


def numbers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def some_regimes():
    """One regime with everything, one with the least, one between: as plans make them."""
    per_block, per_draw = (BATCH, BLOCKS), (BATCH, BLOCKS, ORDERINGS)
    full = RegimeScores(
        scores=numbers(*per_draw, seed=1),
        exact=numbers(*per_block, seed=2),
        exact_elbo=numbers(*per_block, seed=3),
        continuous_elbo=numbers(*per_block, SEEDS, seed=4),
        left_to_right=numbers(*per_block, seed=5),
    )
    bare = RegimeScores(numbers(*per_draw, seed=7))
    some = RegimeScores(
        numbers(*per_draw, seed=8),
        exact=numbers(*per_block, seed=9),
        left_to_right=numbers(*per_block, seed=10),
    )
    return {"nfe_1": bare, "ao_arm": full, "chunks_2": some}


def some_scores(regimes=None, sequences=(3, 2**40), known_bytes=True):
    num_tokens = torch.tensor([[3, 4, 1], [3, 0, 0]])[: len(sequences)]
    num_bytes = torch.tensor([[9, 14, 0], [2**31 - 1, 0, 0]])[: len(sequences)]
    regimes = some_regimes() if regimes is None else regimes
    arms = {"arm": numbers(len(sequences), BLOCKS, seed=6)}
    known = num_bytes if known_bytes else None
    return BlockScores(torch.tensor(sequences), num_tokens, regimes, arms, known, seconds=1.25)


def same_bits(ours, theirs):
    """Equal as bytes: 0.0 is not -0.0."""
    if ours is None or theirs is None:
        return ours is theirs
    return (
        ours.dtype == theirs.dtype
        and ours.shape == theirs.shape
        and ours.numpy().tobytes() == theirs.numpy().tobytes()
    )


def assert_same(ours, theirs):
    assert same_bits(ours.sequences, theirs.sequences)
    assert same_bits(ours.num_tokens, theirs.num_tokens)
    assert same_bits(ours.num_bytes, theirs.num_bytes)
    assert ours.seconds == theirs.seconds
    assert list(ours.regimes) == list(theirs.regimes)
    assert list(ours.arms) == list(theirs.arms)
    assert all(same_bits(ours.arms[name], theirs.arms[name]) for name in ours.arms)
    for name, regime in ours.regimes.items():
        other = theirs.regimes[name]
        for tensor in TENSORS:
            assert same_bits(getattr(regime, tensor), getattr(other, tensor)), (name, tensor)


@pytest.mark.parametrize("known_bytes", [False, True])
@pytest.mark.parametrize("chosen", [["nfe_1"], ["ao_arm"], ["chunks_2", "nfe_1"], None])
def test_round_trip(tmp_path, chosen, known_bytes):
    """With and without each optional column, in some regimes or in all of them."""
    regimes = some_regimes()
    chosen = {name: regimes[name] for name in chosen or regimes}
    scores = some_scores(chosen, known_bytes=known_bytes)
    files = ScoreFiles(tmp_path / "made" / "scores")
    files.write(12, scores)
    assert_same(files.read(12), scores)


def test_round_trip_of_extreme_numbers(tmp_path):
    values = [-math.inf, -0.0, 0.0, 5e-324, -1e308, -1 / 3]
    extreme = torch.tensor(values, dtype=torch.float64).view(1, 3, 2)
    regime = RegimeScores(extreme, exact=extreme[..., 0], left_to_right=extreme[..., 1])
    scores = some_scores({"ao_arm": regime}, sequences=(0,))
    files = ScoreFiles(tmp_path)
    files.write(0, scores)
    assert_same(files.read(0), scores)


def test_one_sequence_block_and_ordering(tmp_path):
    regime = RegimeScores(numbers(1, 1, 1))
    scores = BlockScores(torch.tensor([7]), torch.tensor([[1]]), {"nfe_1": regime})
    ScoreFiles(tmp_path).write(0, scores)
    assert_same(ScoreFiles(tmp_path).read(0), scores)


@pytest.mark.parametrize("known_bytes", [False, True])
def test_layout(tmp_path, known_bytes):
    """One row a sequence and block, in that order; a column for each tensor there is."""
    scores = some_scores(known_bytes=known_bytes)
    ScoreFiles(tmp_path).write(7, scores)
    (path,) = tmp_path.iterdir()
    assert path.name == "batch_000007.parquet"
    rows = pq.read_table(path).to_pylist()
    tensors = {f"arms.{name}": values for name, values in scores.arms.items()}
    for name, regime in scores.regimes.items():
        there = {tensor: getattr(regime, tensor) for tensor in TENSORS}
        tensors |= {f"regimes.{name}.{k}": v for k, v in there.items() if v is not None}
    if known_bytes:
        tensors = {"num_bytes": scores.num_bytes, **tensors}
    assert list(rows[0])[:4] == ["sequence", "block", "num_tokens", next(iter(tensors))]
    assert set(rows[0]) == {"sequence", "block", "num_tokens", *tensors}
    expected = [(sequence, block) for sequence in (3, 2**40) for block in range(BLOCKS)]
    assert [(row["sequence"], row["block"]) for row in rows] == expected
    for row in rows:
        at = [3, 2**40].index(row["sequence"]), row["block"]
        assert row["num_tokens"] == scores.num_tokens[at]
        for name, values in tensors.items():
            assert row[name] == values[at].tolist()


def test_some_rows_and_some_orderings():
    scores = some_scores()
    second = scores.rows(slice(1, 2))
    assert second.sequences.tolist() == [2**40]
    assert second.num_bytes.tolist() == [[2**31 - 1, 0, 0]]
    for (path, one), (_, whole) in zip(named_tensors(second), named_tensors(scores), strict=True):
        assert torch.equal(one, whole[1:2]), path
    assert (scores.rows(slice(0, 1)).seconds, second.seconds) == (1.25, 0.0)
    assert some_scores(known_bytes=False).rows(slice(1, 2)).num_bytes is None
    few = scores.first_orderings(2)
    assert few.num_bytes is scores.num_bytes
    for name, regime in scores.regimes.items():
        assert torch.equal(few.regimes[name].scores, regime.scores[..., :2])
        assert few.regimes[name].exact is regime.exact
    with pytest.raises(ValueError, match="at most the 5 that were scored, got 6"):
        scores.first_orderings(6)


def test_what_is_finished(tmp_path):
    files = ScoreFiles(tmp_path / "scores")
    assert files.finished() == []
    for batch in (10, 2, 1_234_567):
        files.write(batch, some_scores(sequences=(batch, batch + 1)))
    (files.folder / ".batch_000003.parquet.ab12.unfinished").write_bytes(b"PAR1")
    (files.folder / "batch_000002 (copy).parquet").write_bytes(b"PAR1")
    (files.folder / "notes.txt").write_text("mine")
    assert files.finished() == [2, 10, 1_234_567]
    assert [scores.sequences.tolist()[0] for scores in files.read_all()] == [2, 10, 1_234_567]


def test_a_write_replaces_the_part(tmp_path):
    files = ScoreFiles(tmp_path)
    files.write(0, some_scores())
    files.write(0, some_scores(sequences=(8, 9)))
    assert files.read(0).sequences.tolist() == [8, 9]
    assert files.finished() == [0]


def test_a_failing_write_leaves_what_was_there(tmp_path):
    """A real limit, in a process of its own: files end at 2,000 bytes, half-way through a part."""
    files = ScoreFiles(tmp_path)
    files.write(4, some_scores())
    assert (tmp_path / "batch_000004.parquet").stat().st_size > 3000
    program = f"""
import resource
from tests.test_scores import ScoreFiles, some_scores
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
for batch in (4, 5):
    try:
        ScoreFiles({str(tmp_path)!r}).write(batch, some_scores(sequences=(8, 9)))
    except OSError as error:
        print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    for batch, message in zip((4, 5), ran.stdout.splitlines(), strict=True):
        assert message.startswith(f"{tmp_path}/batch_00000{batch}.parquet: cannot be written")
        assert "File too large" in message
    assert [path.name for path in tmp_path.iterdir()] == ["batch_000004.parquet"]
    assert_same(files.read(4), some_scores())


@pytest.mark.parametrize("below", [".", "deeper"])
def test_a_file_in_place_of_the_folder(tmp_path, below):
    (tmp_path / "scores").write_text("a file")
    files = ScoreFiles(tmp_path / "scores" / below)
    with pytest.raises(OSError, match=r"scores.*batch_000000\.parquet: cannot be written"):
        files.write(0, some_scores())
    assert (tmp_path / "scores").read_text() == "a file"


@pytest.fixture
def written(tmp_path):
    files = ScoreFiles(tmp_path)
    files.write(3, some_scores())
    return files, tmp_path / "batch_000003.parquet"


def test_a_flipped_bit_is_never_another_score(written):
    """All over the columns: the scores are the same, or the part is refused by its name."""
    files, path = written
    whole = path.read_bytes()
    (footer,) = struct.unpack("<i", whole[-8:-4])
    messages = []
    for position in range(4, len(whole) - 8 - footer, 13):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        try:
            scores = files.read(3)
        except ValueError as error:
            messages.append(str(error))
        else:
            assert_same(scores, some_scores())
    assert len(messages) > 80
    assert all(str(path) in message for message in messages)


@pytest.mark.parametrize("kept", [0, 3, 100, -1])
def test_a_part_that_was_cut(written, kept):
    files, path = written
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"batch_000003\.parquet: .*remove the file and evaluate"):
        files.read(3)


def test_a_part_that_is_not_there(written):
    files, _ = written
    with pytest.raises(ValueError, match=r"batch_000004\.parquet: expected scores"):
        files.read(4)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: pa.table({"text": ["something else"]}),
        lambda table: table.drop_columns(["regimes.ao_arm.scores"]),
        lambda table: table.drop_columns(["num_tokens"]),
        lambda table: table.append_column("regime", pa.array(["ao_arm"] * len(table))),
        lambda table: table.replace_schema_metadata(None),
        lambda table: table.slice(0, 4),
        lambda table: table.slice(0, 0),
    ],
    ids=["other", "no scores", "no counts", "of another version", "no metadata", "cut", "none"],
)
def test_tables_that_are_no_scores(written, change):
    files, path = written
    pq.write_table(change(pq.read_table(path)), path)
    with pytest.raises(ValueError, match=r"batch_000003\.parquet: expected scores"):
        files.read(3)


def test_moving_changes_no_value():
    scores = some_scores()
    assert_same(scores.to(torch.device("cpu")), scores)
    assert some_scores(known_bytes=False).to(torch.device("cpu")).num_bytes is None
    moved = scores.to(torch.device("meta"))
    assert moved.num_tokens.is_meta
    assert moved.num_bytes.is_meta
    full = moved.regimes["ao_arm"]
    assert all(getattr(full, tensor).is_meta for tensor in TENSORS)
    assert moved.arms["arm"].is_meta
    assert moved.sequences.tolist() == [3, 2**40]
