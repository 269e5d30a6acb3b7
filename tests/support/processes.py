"""What /proc says of processes, for tests, tools and measurements."""
import os

TICK = os.sysconf("SC_CLK_TCK")


def children(pid):
    """Those that its threads have started and that are there; none of a process that is gone."""
    found = []
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return found
    for thread in threads:
        try:
            with open("/proc/%d/task/%s/children" % (pid, thread)) as f:
                found += [int(x) for x in f.read().split()]
        except OSError:  # it has ended
            pass
    return found


def descendants(pid):
    """The same, and theirs."""
    found = children(pid)
    return found + [x for child in found for x in descendants(child)]


def cpu_s(pid):
    """Processor time so far; 0 of a process that is gone."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            fields = f.read().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / TICK
    except OSError:
        return 0.0
