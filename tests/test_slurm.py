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


def finish_well(cluster, job, log):
    """Let a job that is queued again run to its end."""
    cluster.start_now(job)
    fields = cluster.finish(job, 600)
    assert fields["JobState"] == "COMPLETED", log.read_text()
    assert fields["Restarts"] == "1"


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
    resumed, plain = (
        load_file(tmp_path / run / "model" / "model.safetensors") for run in ("job", "plain")
    )
    for name in plain:
        assert plain[name].equal(resumed[name]), name


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


@pytest.fixture
def stand_in(tmp_path):
    """Lay out a folder in which train.py is what a test writes to it."""
    shutil.copytree(ROOT / "slurm", tmp_path / "slurm")
    return tmp_path / "train.py"


@pytest.mark.slow
def test_the_failure_of_one_task_ends_the_job_for_good(cluster, stand_in):
    """SLURM then sends SIGTERM to the other tasks, and reports that instead of the failure."""
    stand_in.write_text(
        "import os, sys, time\n"
        "print(*sys.argv[1:], flush=True)\n"
        "sys.exit('broken') if os.environ['SLURM_PROCID'] == '1' else time.sleep(100)\n"
    )
    job = cluster.submit(*TWO_TASKS, "slurm/train.sbatch", "a=b c", cwd=stand_in.parent, **PLAIN)
    fields = cluster.finish(job, 60)
    log = (stand_in.parent / f"slurm-train-{job}.out").read_text()
    assert (fields["JobState"], fields["Restarts"]) == ("FAILED", "0"), log
    assert log.count("trainer.devices=2 trainer.num_nodes=1 a=b c\n") == 2
    assert "broken" in log


@pytest.mark.slow
def test_a_cancelled_job_stays_cancelled(cluster, stand_in):
    stand_in.write_text(
        "import pathlib, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "pathlib.Path('started').touch()\n"
        "signal.pause()\n"
    )
    nodes = ["--nodes=2", "--ntasks-per-node=1"]
    job = cluster.submit(*nodes, "slurm/train.sbatch", cwd=stand_in.parent, **PLAIN)
    wait_for((stand_in.parent / "started").exists, 60, "start of the job")
    cluster.run("scancel", job)
    fields = cluster.finish(job, 60)
    wait_for(cluster.ready, 60, "end of the job's shell")
    assert cluster.job(job)["JobState"] == "CANCELLED"
    assert fields["Restarts"] == "0"
