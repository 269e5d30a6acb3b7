"""Collectives of gloo through torch.distributed, timed as `weft bench comm` times ours.

    python comm_torch.py RANKS BYTES SECONDS
"""
import json
import os
import sys
import time


def once(dist, op, x, out, parts, turn):
    x.fill_(turn % 100)
    dist.barrier()
    t0 = time.perf_counter()
    if op == 'all_reduce':
        dist.all_reduce(x)
    else:
        dist.all_gather(parts, x[:x.numel() // len(parts)])
    t0 = time.perf_counter() - t0
    dist.barrier()
    return t0


def rank_main(rank, world, size, seconds, port):
    import torch
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group('gloo', rank=rank, world_size=world)
    x = torch.zeros(size // 4)
    out = torch.zeros(size // 4)
    parts = list(out.chunk(world))
    for op in ('all_reduce', 'all_gather'):     # what gloo has of ours
        warm = 3 if size < 64 << 20 else 1
        for i in range(warm):
            once(dist, op, x, out, parts, i)
        t0 = time.perf_counter()
        for i in range(warm):
            once(dist, op, x, out, parts, i)
        n = torch.tensor([max(5, min(5000, int(seconds / ((time.perf_counter() - t0) / warm))))])
        dist.broadcast(n, 0)
        t = torch.tensor([once(dist, op, x, out, parts, i) for i in range(int(n))], dtype=torch.float64)
        dist.all_reduce(t, op=dist.ReduceOp.MAX)
        t = sorted(t.tolist())
        if rank == 0:
            print(json.dumps({'op': op, 'bytes': size, 'calls': len(t), 'median_us': 1e6 * t[len(t) // 2],
                              'best_us': 1e6 * t[0]}), flush=True)
    dist.destroy_process_group()


if __name__ == '__main__':
    import multiprocessing as mp
    mp.set_start_method('fork')
    world, size, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    port = 20000 + os.getpid() % 20000
    ranks = [mp.Process(target=rank_main, args=(r, world, size, seconds, port)) for r in range(world)]
    for p in ranks:
        p.start()
    for p in ranks:
        p.join()
    sys.exit(any(p.exitcode for p in ranks))
