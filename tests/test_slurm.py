"""The job scripts under a real SLURM: two tasks, one interruption, the results of a plain run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from evaluation_runs import parts, values
from safetensors.torch import load_file
from slurm_cluster import missing_programs, slurm_cluster, wait_for

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "slurm").iterdir())
TWO_TASKS = ["--ntasks-per-node=2", "--gres=gpu:2", "--cpus-per-task=1"]
PLAIN = {"PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
TRAINING = [
    *("network.hidden_dim=16", "network.n_blocks=1", "network.n_heads=2", "network.dropout=0.1"),
    *("batch_size=4", "trainer.max_steps=100", "checkpoint_every=5", "seed=3"),
    *("trainer.limit_val_batches=0", "trainer.accelerator=cpu"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if missing := missing_programs():
        pytest.skip(f"SLURM (Debian: slurm-wlm) is not installed: {', '.join(missing)} not found")
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running


def run_plainly(program, *options):
    command = [sys.executable, program, *options]
    subprocess.run(
        command, check=True, cwd=ROOT, env=os.environ | PLAIN, capture_output=True, timeout=600
    )


def finish_well(cluster, job, log, at_once=True):
    """Let a job that is queued again run to its end."""
    if at_once:
        cluster.start_now(job)
    fields = cluster.finish(job, 600)
    assert fields["JobState"] == "COMPLETED", log.read_text()
    assert fields["Restarts"] == "1"


def assert_same_weights(*runs):
    one, other = (load_file(run / "model" / "model.safetensors") for run in runs)
    for name in one:
        assert one[name].equal(other[name]), name


def test_scripts_are_clean():
    assert {path.name for path in SCRIPTS} == {"evaluate.sbatch", "job.sh", "train.sbatch"}
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, *SCRIPTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_training_that_runs_out_of_time_is_queued_again_and_ends_in_the_same_weights(
    cluster, tmp_path
):
    output, log = tmp_path / "job", tmp_path / "log"
    options = [*TRAINING, f"output_dir={output}"]
    script = [f"--output={log}", "slurm/train.sbatch"]
    job = cluster.submit(*TWO_TASKS, *script, *options, cwd=ROOT, **PLAIN)
    wait_for((output / "last.ckpt").exists, 600, "first state of the training")
    cluster.run("scancel", "--batch", "--signal=TERM", job)  # what --signal does near the end
    wait_for(lambda: cluster.job(job)["Restarts"] == "1", 300, "job queued again")
    assert not (output / "model").exists(), "the training was over before the warning"
    finish_well(cluster, job, log)

    run_plainly("train.py", "trainer.devices=2", *TRAINING, f"output_dir={tmp_path / 'plain'}")
    assert_same_weights(output, tmp_path / "plain")


@pytest.mark.slow
def test_a_preempted_evaluation_ends_in_the_results_of_a_single_process(cluster, tmp_path):
    output, log = tmp_path / "job", tmp_path / "log"
    options = ["trainer.accelerator=cpu", "batch_size=1", "num_batches=60"]  # of the demo
    script = [f"--output={log}", "slurm/evaluate.sbatch"]
    job = cluster.submit(*TWO_TASKS, *script, *options, f"output_dir={output}", cwd=ROOT, **PLAIN)
    wait_for(lambda: len(parts(output)) > 4, 600, "first scores of the evaluation")
    before = parts(output)
    cluster.run("scontrol", "requeue", job)
    assert not (output / "results.json").exists(), "the evaluation was over before it was preempted"
    finish_well(cluster, job, log)

    assert before.items() <= parts(output).items(), "a finished batch was scored again"
    run_plainly("evaluate.py", *options, f"output_dir={tmp_path / 'plain'}")
    assert values(output) == values(tmp_path / "plain")


TWO_NODES = ["--nodes=2", "--ntasks-per-node=1", "--gres=gpu:1", "--cpus-per-task=1"]


def lose_a_node(cluster, job, log):
    """Kill the second node in the middle of a job; wait until the job is queued again.

    SLURM still has a word for the job's step there, and says it when the node is back: that is
    what the two minutes are for that it holds the job.
    """
    cluster.lose_node("n2")
    wait_for(lambda: cluster.job(job)["Restarts"] == "1", 300, "job queued again")
    cluster.start_node("n2")
    lines = [line for line in log.read_text().splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, log.read_text()
    assert "Traceback" not in log.read_text()
    return lines[0]


@pytest.mark.slow
def test_an_evaluation_that_loses_a_node_ends_in_the_results_of_a_single_process(cluster, tmp_path):
    output, log = tmp_path / "job", tmp_path / "log"
    options = ["trainer.accelerator=cpu", "batch_size=1", "num_batches=60"]  # of the demo
    script = [f"--output={log}", "slurm/evaluate.sbatch"]
    job = cluster.submit(*TWO_NODES, *script, *options, f"output_dir={output}", cwd=ROOT, **PLAIN)
    wait_for(lambda: len(parts(output)) > 4, 600, "first scores of the evaluation")
    line = lose_a_node(cluster, job, log)
    assert line.startswith("error: rank 1 is gone (not heard of for 60 s); ")
    assert line.endswith(" of 60 batches are on disk; the same command continues")
    before = parts(output)
    finish_well(cluster, job, log, at_once=False)

    assert before.items() <= parts(output).items(), "a finished batch was scored again"
    run_plainly("evaluate.py", *options, f"output_dir={tmp_path / 'plain'}")
    assert values(output) == values(tmp_path / "plain")


@pytest.mark.slow
def test_a_training_that_loses_a_node_ends_in_the_same_weights(cluster, tmp_path):
    output, log = tmp_path / "job", tmp_path / "log"
    options = [*TRAINING, f"output_dir={output}"]
    script = [f"--output={log}", "slurm/train.sbatch"]
    job = cluster.submit(*TWO_NODES, *script, *options, cwd=ROOT, **PLAIN)
    wait_for((output / "last.ckpt").exists, 600, "first state of the training")
    line = lose_a_node(cluster, job, log)
    assert line.startswith("error: another process is gone (")
    assert line.endswith(f"the newest state is in {output}/last.ckpt; the same command continues")
    assert not (output / "model").exists(), "the training was over before the node was"
    finish_well(cluster, job, log, at_once=False)
    run_plainly("train.py", "trainer.devices=2", *TRAINING, f"output_dir={tmp_path / 'plain'}")
    assert_same_weights(output, tmp_path / "plain")


@pytest.fixture
def stand_in(tmp_path):
    """Lay out a folder in which our programs are what a test writes to it."""
    shutil.copytree(ROOT / "slurm", tmp_path / "slurm")
    (tmp_path / "tube_lightning").mkdir()
    (tmp_path / "tube_lightning" / "__init__.py").touch()
    return tmp_path / "tube_lightning" / "programs.py"


@pytest.mark.slow
def test_the_failure_of_one_task_ends_the_job_for_good(cluster, stand_in):
    """SLURM then sends SIGTERM to the other tasks, and reports that instead of the failure."""
    stand_in.write_text(
        "import os, sys, time\n"
        "print(*sys.argv[1:], flush=True)\n"
        "sys.exit('broken') if os.environ['SLURM_PROCID'] == '1' else time.sleep(100)\n"
    )
    folder = stand_in.parent.parent
    job = cluster.submit(*TWO_TASKS, "slurm/train.sbatch", "a=b c", cwd=folder, **PLAIN)
    fields = cluster.finish(job, 60)
    log = (folder / f"slurm-train-{job}.out").read_text()
    assert (fields["JobState"], fields["Restarts"]) == ("FAILED", "0"), log
    assert log.count("train trainer.devices=2 trainer.num_nodes=1 a=b c\n") == 2
    assert "broken" in log


FAILS_AFTER_A_BATCH = """
import os, pathlib, sys, time
run = pathlib.Path("run").absolute()
(run / "scores").mkdir(parents=True, exist_ok=True)
(run / ".started").touch()
pathlib.Path(os.environ["TUBE_LIGHTNING_RUN_OF_JOB"]).write_text(f"{run}\\n")
time.sleep(0.1)
if "SLURM_RESTART_COUNT" not in os.environ:
    (run / "scores" / "batch_000000.parquet").touch()
sys.exit("killed for memory")
"""


@pytest.mark.slow
@pytest.mark.parametrize("most", ["0", "5"])
def test_a_job_is_queued_again_as_long_as_it_gets_further(cluster, stand_in, most):
    """Once, with a batch; the second time there is none, and it ends."""
    stand_in.write_text(FAILS_AFTER_A_BATCH)
    folder, one_task = stand_in.parent.parent, ["--gres=gpu:1", "slurm/evaluate.sbatch"]
    job = cluster.submit(*one_task, cwd=folder, MAX_REQUEUES=most, **PLAIN)
    if most != "0":
        wait_for(lambda: cluster.job(job)["Restarts"] == "1", 60, "job queued again")
        cluster.start_now(job)
    fields = cluster.finish(job, 60)
    assert (fields["JobState"], fields["Restarts"]) == ("FAILED", "0" if most == "0" else "1")
    assert not list(folder.glob(".run-of-job-*"))


@pytest.mark.slow
def test_a_cancelled_job_stays_cancelled(cluster, stand_in):
    stand_in.write_text(
        "import pathlib, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "pathlib.Path('started').touch()\n"
        "signal.pause()\n"
    )
    folder = stand_in.parent.parent
    job = cluster.submit(
        "--nodes=2", "--ntasks-per-node=1", "slurm/train.sbatch", cwd=folder, **PLAIN
    )
    wait_for((folder / "started").exists, 60, "start of the job")
    cluster.run("scancel", job)
    fields = cluster.finish(job, 60)
    wait_for(cluster.ready, 60, "end of the job's shell")
    assert cluster.job(job)["JobState"] == "CANCELLED"
    assert fields["Restarts"] == "0"
