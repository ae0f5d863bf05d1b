#!/usr/bin/env bash
# One of our programs on every task of a SLURM job: bash slurm/job.sh NAME [key=value ...]
#
# A preempted job is queued again by SLURM, and one that runs out of time by this script: SLURM
# warns it (--signal=B:TERM@120), it warns the tasks, and they stop where they can be resumed.
# A failure of the program is never queued again, nor is a job that somebody cancelled.
# Environment: PYTHON (default: python), MASTER_ADDR (default: the first node), OMP_NUM_THREADS
# (default: what SLURM grants a task), MAX_REQUEUES (default: 100).
set -uo pipefail

readonly INTERRUPTED=143 # 128 + SIGTERM
warned=false

still_ours() { # not so when the job was cancelled or preempted: then SLURM has told the tasks
  [[ $(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T) == RUNNING ]]
}

# shellcheck disable=SC2329 # called by the trap
warn_tasks() {
  warned=true woken=true
  if still_ours; then scancel --signal=TERM "$SLURM_JOB_ID"; fi
}
trap warn_tasks TERM

wait_for() { # the exit code of process $1, which signals to this shell do not cut short
  local status
  while true; do
    woken=false
    wait "$1"
    status=$?
    "$woken" || return "$status"
  done
}

main() {
  local program=$1 status
  shift
  if [[ -n ${SLURM_CPUS_PER_TASK:-} ]]; then
    export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK" # srun no longer takes it from sbatch
  fi

  srun --kill-on-bad-exit=1 "${PYTHON:-python}" -m tube_lightning.programs "$program" \
    trainer.devices="$SLURM_NTASKS_PER_NODE" trainer.num_nodes="$SLURM_NNODES" "$@" &
  wait_for $!
  status=$?

  if "$warned" && still_ours &&
    ((status == INTERRUPTED && ${SLURM_RESTART_COUNT:-0} < ${MAX_REQUEUES:-100})); then
    scontrol requeue "$SLURM_JOB_ID"
  fi
  return "$status"
}

main "$@"; exit # on one line: bash must not read on in a file that changed while the job ran
