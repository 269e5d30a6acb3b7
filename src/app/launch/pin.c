/* Which cores the ranks of a host run on: those that the launcher may use, shared out. */
#include <sched.h>

#include "launch/launch.h"

/* Those of a process, in their order; returns how many. */
static int find_cores(int of, cpu_set_t *all, int cpu[CPU_SETSIZE])
{
    int n = 0;
    if (sched_getaffinity(of, sizeof *all, all)) return 0;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, all)) cpu[n++] = i;
    return n;
}

int weft_launch_pin(int r, int n, int of)
{
    cpu_set_t all, own;
    int       cpu[CPU_SETSIZE], n_cpu = find_cores(of, &all, cpu);
    if (!n_cpu) return 1;
    if (n > n_cpu) { /* they share all of them */
        sched_setaffinity(0, sizeof all, &all);
        return 1;
    }
    CPU_ZERO(&own);
    int lo = r * n_cpu / n, hi = (r + 1) * n_cpu / n;
    for (int i = lo; i < hi; i++) CPU_SET((size_t)cpu[i], &own);
    sched_setaffinity(0, sizeof own, &own);
    return hi - lo;
}

int weft_launch_leave_cores(int r, int n)
{
    cpu_set_t all;
    int       cpu[CPU_SETSIZE], n_cpu = find_cores(0, &all, cpu);
    if (n < 2 || n > n_cpu || r < 0 || r >= n) return 0;
    int lo = r * n_cpu / n, hi = (r + 1) * n_cpu / n;
    for (int i = lo; i < hi; i++) CPU_CLR((size_t)cpu[i], &all);
    return sched_setaffinity(0, sizeof all, &all) ? 0 : hi - lo;
}
