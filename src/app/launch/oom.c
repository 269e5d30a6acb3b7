#include "launch/oom.h"

#include <stdio.h>
#include <string.h>

/* The number after a key at the beginning of a line; -1: it is not there. */
static int64_t find_number(const char *path, const char *key)
{
    char      line[512], name[64];
    long long value, found = -1;
    FILE     *f = fopen(path, "re");
    while (f && found < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "%63s %lld", name, &value) == 2 && !strcmp(name, key))
            found = value;
    if (f) fclose(f);
    return found;
}

/* The control group of this process, of the one hierarchy of version 2. */
static void find_group(const char *root, char *group, size_t n)
{
    char path[1024], line[1024];
    *group = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && !*group && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "0::/", 4)) snprintf(group, n, "%s", line + 3);
    }
    if (f) fclose(f);
}

int64_t weft_oom_count(const char *root)
{
    char group[1024], path[2200];
    find_group(root, group, sizeof group);
    snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/memory.events", root, group);
    int64_t n = *group ? find_number(path, "oom_kill") : -1;
    if (n >= 0) return n;
    snprintf(path, sizeof path, "%s/proc/vmstat", root);
    return find_number(path, "oom_kill");
}
