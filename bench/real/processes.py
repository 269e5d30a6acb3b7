"""What bench/real asks of /proc."""
import os

TICK = os.sysconf("SC_CLK_TCK")


def children(pid):
    """None of a process that is gone."""
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            return [int(x) for x in f.read().split()]
    except OSError:
        return []


def cpu_s(pid):
    """Processor time so far; 0 of a process that is gone."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            fields = f.read().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / TICK
    except OSError:
        return 0.0
