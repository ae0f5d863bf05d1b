"""A real SLURM cluster of two nodes on this machine: daemons of our own, state in one folder."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "setpriv")
SBIN = "/usr/sbin:/sbin"  # where Debian keeps the daemons

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
ReturnToService=2
KillWait=10
OverTimeLimit=0
MinJobAge=3600
InactiveLimit=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 Gres=gpu:4
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 Gres=gpu:4
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def missing_programs():
    """Name what a cluster needs and this machine lacks."""
    return [p for p in PROGRAMS if shutil.which(p, path=f"{os.environ['PATH']}:{SBIN}") is None]


def wait_for(condition, seconds, what):
    """Return the first true value of ``condition()``."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.1)
    return value


def running():
    """List the ids of all processes."""
    return {int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()}


def status(pid):
    """Return what the kernel tells of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.replace("\t", "").split(":", 1) for line in lines)


class Cluster:
    """Commands as a user gives them, in an environment that points to the cluster."""

    def __init__(self, folder):
        self.nodes = {}  # the daemons, by name
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")} | {
            "PATH": f"{os.environ['PATH']}:{SBIN}",
            "SLURM_CONF": str(folder / "slurm.conf"),
            "MASTER_ADDR": "127.0.0.1",  # n1 and n2 are no host names
        }

    def run(self, *command, cwd=None, **variables):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=cwd,
            env=self.environment | variables,
            timeout=60,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    def lose_node(self, name):
        """Kill the daemon of a node and all that it runs, as if its power were cut."""
        tasks = [pid for pid in running() if self._runs_on(pid, name)]
        parents = {int(status(pid)["PPid"]) for pid in tasks}
        keepers = [pid for pid in parents if pid in running() and "stepd" in status(pid)["Name"]]
        for pid in (self.nodes[name].pid, *keepers, *tasks):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _runs_on(self, pid, node):
        """Tell whether a process is of a job of ours on a node."""
        try:
            entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:  # over, or somebody else's
            return False
        ours = {"SLURMD_NODENAME": node, "SLURM_CONF": self.environment["SLURM_CONF"]}
        return {f"{name}={value}".encode() for name, value in ours.items()} <= set(entries)

    def ready(self):
        """Tell whether both nodes wait for work."""
        try:
            return self.run("sinfo", "--noheader", "--format=%D %t").strip() == "2 idle"
        except RuntimeError:  # nobody answers yet
            return False

    def submit(self, *arguments, cwd, **variables):
        """Return the id of a new job."""
        output = self.run("sbatch", "--parsable", *arguments, cwd=cwd, **variables)
        return output.strip().split(";")[0]

    def job(self, job_id):
        """Return the fields of ``scontrol show job``."""
        words = self.run("scontrol", "show", "job", job_id).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def start_now(self, job_id):
        """Lift the two minutes that SLURM holds a job after it was queued again."""
        wait_for(lambda: self.job(job_id)["JobState"] == "PENDING", 60, f"job {job_id} pending")
        time.sleep(2)  # nodes refuse a job that starts in the second in which they ended it
        self.run("scontrol", "update", f"JobId={job_id}", "StartTime=now")

    def finish(self, job_id, seconds):
        """Wait for the end of a job; return its fields."""
        over = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}

        def end():
            job = self.job(job_id)
            return job if job["JobState"] in over else None

        return wait_for(end, seconds, f"job {job_id} over")


def free_ports(count):
    """Return ports that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


def write_configuration(folder):
    user, host = pwd.getpwuid(os.getuid()).pw_name, socket.gethostname().split(".")[0]
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(folder=folder, user=user, host=host, ports=free_ports(3))
    )
    for number in range(4):
        (folder / f"nvidia{number}").touch()  # devices that are none: jobs that ask for them start
    (folder / "gres.conf").write_text(f"NodeName=n[1-2] Name=gpu File={folder}/nvidia[0-3]\n")
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)


@contextmanager
def daemon(folder, *command):
    """Run a daemon in a session of its own; end it by its id, or with this process if killed."""
    with (folder / f"{Path(command[0]).name}.out").open("ab") as output:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=os.environ | {"PATH": f"{os.environ['PATH']}:{SBIN}"},
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def slurm_cluster(folder):
    """Start a cluster whose state is in ``folder``; stop it, and its jobs, in the end."""
    write_configuration(folder)
    cluster, configuration = Cluster(folder), str(folder / "slurm.conf")
    files = [f"--{f}-file={folder}/munge.{f}" for f in ("key", "pid", "log", "seed")]
    munged = ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files]
    with ExitStack() as stack:
        stack.enter_context(daemon(folder, *munged))
        wait_for((folder / "munge.socket").exists, 20, "munged")
        stack.enter_context(daemon(folder, "slurmctld", "-D", "-c", "-f", configuration))

        def start_node(name):
            slurmd = daemon(folder, "slurmd", "-D", "-N", name, "-f", configuration)
            cluster.nodes[name] = stack.enter_context(slurmd)

        cluster.start_node = start_node
        for node in ("n1", "n2"):
            start_node(node)
        wait_for(cluster.ready, 60, "nodes")
        try:
            yield cluster
        finally:
            cluster.run("scancel", "--full", "--user", pwd.getpwuid(os.getuid()).pw_name)
            wait_for(lambda: not cluster.run("squeue", "-h").strip(), 60, "end of all jobs")
