#!/bin/bash
# A job on 2 to 8 nodes under Slurm that outlives its nodes: one agent (weft run) on each.  sbatch examples/slurm.sh
#SBATCH --job-name=train
#SBATCH --nodes=2-8 --ntasks-per-node=1 --exclusive
#SBATCH --no-kill                     # a node that fails does not end the job
#SBATCH --signal=USR1@120             # all hosts save and stop two minutes before the time limit
#SBATCH --requeue --open-mode=append  # the same command goes on from the checkpoint

# Agents meet on the first node of the job; --nnodes is MIN:MAX hosts.  The token: weft token, once, in a folder that all nodes see.
srun --no-kill --kill-on-bad-exit=0 --ntasks-per-node=1 \
    weft run --nnodes 2:8 --nproc-per-node 8 --grace 100 job.yaml recover=on output=/shared/run

# Operators: weft status /shared/run (hosts and the addresses of their agents)
#            weft drain NODE /shared/run          before a node is taken away
# A node more, from a second job:
#            sbatch --nodes=1 --wrap 'srun weft run --rdzv ADDRESS --node-rank 1 --nnodes 2:8 ... (the rest as above)'
