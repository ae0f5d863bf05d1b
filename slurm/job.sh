#!/usr/bin/env bash
# One of our programs on every task of a SLURM job: bash slurm/job.sh NAME [key=value ...]
#
# A preempted job is queued again by SLURM. One that ends before its work is done (it ran out of
# time, of which SLURM warns it by --signal=B:TERM@120; a node or a task died) is queued again by
# this script if there is more on disk than when it started: a finished batch, a later checkpoint.
# So whatever fails again and again does not loop. A job that somebody cancelled stays cancelled.
# Environment: PYTHON (default: python), MASTER_ADDR (default: the first node), OMP_NUM_THREADS
# (default: what SLURM grants a task), MAX_REQUEUES (default: 100).
set -uo pipefail

export TUBE_LIGHTNING_RUN_OF_JOB="$PWD/.run-of-job-$SLURM_JOB_ID" # the program writes its directory
readonly PATIENCE=45                                              # more than SLURM's KillWait

still_ours() { # not so when the job was cancelled or preempted: then SLURM has told the tasks
  [[ $(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T) == RUNNING ]]
}

# shellcheck disable=SC2329 # called by the trap
warn_tasks() {
  woken=true
  if still_ours; then scancel --signal=TERM "$SLURM_JOB_ID"; fi
}
trap warn_tasks TERM

wait_for() { # the exit code of process $1, which signals to this shell do not cut short
  local status
  while true; do
    woken=false
    wait "$1" 2> /dev/null # what is said of a process that was killed
    status=$?
    "$woken" || return "$status"
  done
}

give_up_on() { # srun, process $1: it waits for a node that is gone, though its tasks have said so
  until [[ -e $TUBE_LIGHTNING_RUN_OF_JOB.lost ]]; do sleep 2; done
  sleep "$PATIENCE"
  kill -KILL "$1"
}

forget_run() { rm -f "$TUBE_LIGHTNING_RUN_OF_JOB" "$TUBE_LIGHTNING_RUN_OF_JOB.lost"; }

progressed() { # whether anything in the run's directory is newer than the start of the program
  local directory
  [[ -f $TUBE_LIGHTNING_RUN_OF_JOB ]] && directory=$(<"$TUBE_LIGHTNING_RUN_OF_JOB") &&
    [[ -n $(find "$directory" \( -path '*/scores/batch_*.parquet' -o -name last.ckpt \) \
      -newer "$directory/.started" -print -quit) ]]
}

main() {
  local program=$1 status steps watch
  shift
  if [[ -n ${SLURM_CPUS_PER_TASK:-} ]]; then
    export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK" # srun no longer takes it from sbatch
  fi
  forget_run

  srun --kill-on-bad-exit=1 "${PYTHON:-python}" -m tube_lightning.programs "$program" \
    trainer.devices="$SLURM_NTASKS_PER_NODE" trainer.num_nodes="$SLURM_NNODES" "$@" &
  steps=$!
  give_up_on "$steps" &
  watch=$!
  wait_for "$steps"
  status=$?
  kill "$watch" 2> /dev/null

  if ((status != 0 && ${SLURM_RESTART_COUNT:-0} < ${MAX_REQUEUES:-100})) &&
    progressed && still_ours; then
    echo "job.sh: ended with code $status, but got further: queued again" >&2
    forget_run
    scontrol requeue "$SLURM_JOB_ID"
  fi
  forget_run
  return "$status"
}

main "$@"; exit # on one line: bash must not read on in a file that changed while the job ran
