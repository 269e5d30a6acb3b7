/* weft doctor */
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/build.h"
#include "cli/cli.h"
#include "comm/rdzv.h"
#include "comm/token.h"
#include "launch/dumps.h"
#include "launch/launch.h"
#include "launch/living.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_doctor = {
    .name  = "doctor",
    .usage = "[DUMPS] [options]",
    .about = "what is wrong: with a job that hung (its dumps), or with this host for a "
             "job",
    .more =
        "DUMPS is a folder of dumps that weft run has written when a rank failed or "
        "hung\n"
        "(OUTPUT/dumps, of which the newest counts, or one in it): the first collective "
        "or "
        "message\n"
        "that some rank has begun and another one has not is named, with what each rank "
        "did.\n"
        "Without it this host is looked at: limits, shared memory, cores, network, and "
        "what the\n"
        "options name.  Exit code 1: something is wrong.",
    .example = "weft doctor out/dumps",
    .run     = run,
};

typedef struct findings {
    weft_text text;
    int       n_problem;
} findings;

typedef struct doctor_options {
    const char             *output, *rdzv;
    weft_comm_token_options token;
} doctor_options;

static void note(findings *f, const char *level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* level: "ok", "warning", "problem". */
static void note(findings *f, const char *level, const char *fmt, ...)
{
    char    text[1200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    weft_text_add(&f->text, "%-8s %s\n", level, text);
    f->n_problem += !strcmp(level, "problem");
}

/* ---- this host ---- */

static void check_limits(findings *f)
{
    static const struct {
        int         which;
        const char *name, *remedy;
        double      least; /* what a run of some ranks needs; 0: it must not be limited */
    } list[] = {
        {RLIMIT_NOFILE, "open files", "ulimit -n 4096", 256},
        {RLIMIT_NPROC, "processes and threads", "ulimit -u 4096", 256},
        {RLIMIT_AS, "address space", "ulimit -v unlimited", 0},
        {RLIMIT_FSIZE, "file size", "ulimit -f unlimited", 0},
        {RLIMIT_DATA, "data", "ulimit -d unlimited", 0},
    };
    int n = f->n_problem;
    for (size_t k = 0; k < WEFT_COUNT(list); k++) {
        struct rlimit r;
        if (getrlimit((__rlimit_resource_t)list[k].which, &r)) continue;
        if (r.rlim_cur == RLIM_INFINITY ||
            (list[k].least > 0 && (double)r.rlim_cur >= list[k].least))
            continue;
        note(f, "problem", "limit of %s is %llu; %s", list[k].name,
             (unsigned long long)r.rlim_cur, list[k].remedy);
    }
    if (f->n_problem == n) note(f, "ok", "limits of files, processes and memory");
}

static void check_shared_memory(findings *f)
{
    enum {
        BYTES = 1 << 20
    };
    int   fd = memfd_create("weft-doctor", MFD_CLOEXEC);
    void *p  = MAP_FAILED;
    if (fd >= 0 && !ftruncate(fd, BYTES))
        p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        note(f, "problem",
             "shared memory: %s; ranks of one host need memfd_create and mmap, which a "
             "container's seccomp profile may refuse",
             strerror(errno));
    else
        note(f, "ok", "shared memory");
    if (p != MAP_FAILED) munmap(p, BYTES);
    if (fd >= 0) close(fd);
}

static void check_cores(findings *f)
{
    cpu_set_t set;
    long      online = sysconf(_SC_NPROCESSORS_ONLN);
    int       own    = sched_getaffinity(0, sizeof set, &set) ? 0 : CPU_COUNT(&set);
    double    quota = 0, period = 0;
    FILE     *g = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (g && fscanf(g, "%lf %lf", &quota, &period) != 2) quota = 0;
    if (g) fclose(g);
    if (own && own < online)
        note(f, "warning",
             "this process may use %d of %ld cores; ranks share those (taskset, "
             "--cpus-per-task)",
             own, online);
    else if (quota > 0 && period > 0 && quota / period < (double)online)
        note(f, "warning",
             "the control group has %.2g of %ld cores; ranks that take more are slowed "
             "down",
             quota / period, online);
    else
        note(f, "ok", "%ld cores", online);
}

static void check_environment(findings *f)
{
    static const char *const list[] = {
        "WEFT_RANK",  "WEFT_SHM_FD",  "WEFT_LINE_FD",        "RANK",
        "WORLD_SIZE", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"};
    for (size_t k = 0; k < WEFT_COUNT(list); k++)
        if (getenv(list[k])) {
            note(f, "warning",
                 "%s is set: weft run without --nproc-per-node would be a rank of a "
                 "launcher; unset it where this is none",
                 list[k]);
            return;
        }
}

static void check_network(findings *f)
{
    struct ifaddrs *all        = NULL;
    char            names[512] = "", wanted[64] = "";
    const char     *device = getenv("UCX_NET_DEVICES");
    bool            found  = false;
    if (device)
        snprintf(wanted, sizeof wanted, "%.*s", (int)strcspn(device, ",:"), device);
    if (getifaddrs(&all)) all = NULL;
    for (struct ifaddrs *a = all; a; a = a->ifa_next) {
        if (!a->ifa_addr || !(a->ifa_flags & IFF_UP)) continue;
        found = found || !strcmp(a->ifa_name, wanted);
        if (a->ifa_addr->sa_family != AF_INET || (a->ifa_flags & IFF_LOOPBACK)) continue;
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n ? " " : "", a->ifa_name);
    }
    freeifaddrs(all);
    if (*wanted && !found)
        note(f, "problem",
             "UCX_NET_DEVICES names %s, which is no interface that is up here; ip link "
             "lists them",
             wanted);
    else if (*names)
        note(f, "ok", "interfaces: %s", names);
    else
        note(f, "warning", "no interface but loopback is up: jobs of this host only");
}

/* ---- what options name ---- */

static bool is_shared_kind(const char *dir, char *kind, size_t n)
{
    char                     line[4096], at[1024], type[64], path[4096];
    size_t                   best     = 0;
    static const char *const shared[] = {"nfs",      "nfs4",      "lustre", "gpfs",
                                         "ceph",     "beegfs",    "cifs",   "9p",
                                         "virtiofs", "glusterfs", "smb3",   "afs"};
    FILE *f = realpath(dir, path) ? fopen("/proc/self/mounts", "re") : NULL;
    snprintf(kind, n, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%*s %1023s %63s", at, type) != 2) continue;
        size_t length = strlen(at);
        bool   inside = !strncmp(path, at, length) &&
                      (path[length] == 0 || path[length] == '/' || length == 1);
        if (!inside || length < best) continue;
        best = length;
        snprintf(kind, n, "%s", type);
    }
    if (f) fclose(f);
    for (size_t k = 0; k < WEFT_COUNT(shared); k++)
        if (!strcmp(kind, shared[k])) return true;
    return !strncmp(kind, "fuse", 4);
}

static void check_output(findings *f, const doctor_options *o)
{
    char           path[4200], kind[64];
    struct statvfs v;
    struct stat    s;
    const char    *dir = o->output;
    if (stat(dir, &s)) { /* it is made by the job: what is above it counts */
        char *slash;
        snprintf(path, sizeof path, "%s", dir);
        slash = strrchr(path, '/');
        if (slash && slash != path)
            *slash = 0;
        else
            snprintf(path, sizeof path, "%s", slash ? "/" : ".");
    } else {
        snprintf(path, sizeof path, "%s", dir);
    }
    char folder[4200], probe[4300];
    snprintf(folder, sizeof folder, "%s", path);
    snprintf(probe, sizeof probe, "%s/.weft-doctor.%d", folder, (int)getpid());
    weft_status st = weft_io_replace_file(probe, "probe", 5); /* write, sync, rename */
    (void)unlink(probe);
    if (st != WEFT_OK) {
        note(f, "problem", "output: %s; give a folder that you may write: output=DIR",
             weft_error_text());
        return;
    }
    bool shared = is_shared_kind(folder, kind, sizeof kind);
    if (!statvfs(folder, &v) && (double)v.f_bavail * (double)v.f_frsize < 1e9)
        note(f, "warning",
             "output: %s has %.3g GB left; a checkpoint takes 12 bytes a parameter",
             folder, 1e-9 * (double)v.f_bavail * (double)v.f_frsize);
    if (o->rdzv && !shared)
        note(f, "warning",
             "output: %s is a local file system (%s): other hosts do not see it, and "
             "rank 0's host is a single point; use shared storage",
             folder, kind);
    else
        note(f, "ok", "output: %s can be written (%s)", folder, kind);
}

static void check_token(findings *f, const doctor_options *o)
{
    weft_comm_token token;
    if (!o->rdzv && !o->token.file) return;
    if (weft_comm_token_find(&o->token, &token) != WEFT_OK)
        note(f, "problem", "%s", weft_error_text());
    else
        note(f, "ok", "token");
    weft_comm_token_wipe(&token);
}

/* Somebody answers there, or refuses: the way is open. */
static int try_connect(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), why = 0;
    if (fd < 0) return errno;
    if (connect(fd, a->ai_addr, a->ai_addrlen) && errno == EINPROGRESS) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        socklen_t     n = sizeof why;
        if (poll(&p, 1, 3000) <= 0)
            why = ETIMEDOUT;
        else
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n);
    }
    close(fd);
    return why;
}

static int try_bind(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    int why = bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 1) ? errno : 0;
    close(fd);
    return why;
}

/* file:DIR: can it be written, and do other hosts see it? */
static void check_register_folder(findings *f, const char *dir)
{
    char        kind[64], probe[4300];
    struct stat s;
    if (stat(dir, &s)) {
        note(f, "warning", "--rdzv file:%s: %s; weft run makes it", dir, strerror(errno));
        return;
    }
    snprintf(probe, sizeof probe, "%s/.weft-doctor.%d", dir, (int)getpid());
    weft_status st = weft_io_replace_file(probe, "probe", 5);
    (void)unlink(probe);
    if (st != WEFT_OK)
        note(f, "problem", "--rdzv file:%s: %s; give a folder that all hosts can write",
             dir, weft_error_text());
    else if (!is_shared_kind(dir, kind, sizeof kind))
        note(f, "warning",
             "--rdzv file:%s is on a local file system (%s): other hosts do not see it",
             dir, kind);
    else
        note(f, "ok", "--rdzv file:%s can be written (%s)", dir, kind);
}

/* etcd://host:port,..: does each answer? */
static void check_register_etcd(findings *f, const char *list)
{
    for (const char *at = list; *at && *at != '/';) {
        size_t           n = strcspn(at, ",/");
        char             host[280], *port;
        struct addrinfo *a = NULL, hints = {.ai_socktype = SOCK_STREAM};
        snprintf(host, sizeof host, "%.*s", (int)n, at);
        at += n + (at[n] == ',');
        port = strrchr(host, ':');
        if (port) *port++ = 0;
        int how = getaddrinfo(host, port ? port : "2379", &hints, &a);
        int why = how ? 0 : try_connect(a);
        if (how || why)
            note(f, "problem", "--rdzv: etcd at %s: %s; is it running, and reached?",
                 host, how ? gai_strerror(how) : strerror(why));
        else
            note(f, "ok", "--rdzv: etcd at %s answers", host);
        if (a) freeaddrinfo(a);
    }
}

/* Another build or kernel set than this host's: a job may have to have one of them on all hosts. */
static void compare_hosts(findings *f, const char *at, const weft_launch_listener *x)
{
    const struct {
        const char *what, *there, *here;
    } list[]         = {{"build", x->hello.build, x->build},
                        {"kernel set", x->hello.kernels, x->kernels}};
    const char *host = *x->hello.host ? x->hello.host : "the host there";
    for (size_t k = 0; k < WEFT_COUNT(list); k++) {
        if (!*list[k].here) continue;
        note(f, x->hello.invariant ? "problem" : "warning",
             "--rdzv %s: %s has another %s: %s there, %s here; %s", at, host,
             list[k].what, list[k].there, list[k].here,
             x->hello.invariant ? "its job is reduction: invariant and refuses this "
                                  "host: install the same"
                                : "bits may differ from a run with one of them alone");
    }
}

/* Something listens there, on this host or another one. */
static void check_listener(findings *f, const doctor_options *o, const char *at,
                           bool here)
{
    weft_launch_listener x;
    if (weft_launch_ask_listener(at, &o->token, weft_cli_build(), &x) != WEFT_OK) {
        note(f, here ? "problem" : "warning",
             "--rdzv %s: a process listens there%s; without the token (above) it is not "
             "asked "
             "which",
             at, here ? ", on this host" : "");
    } else if (!x.is_agent) {
        note(f, "problem",
             "--rdzv %s: what listens there%s is no agent of weft with this token (%s); "
             "choose another port, or copy the job's token here",
             at, here ? ", on this host," : "", x.why);
    } else if (x.is_job) {
        char step[32] = "no step yet";
        if (x.step >= 0) snprintf(step, sizeof step, "step %lld", (long long)x.step);
        note(f, "ok",
             "--rdzv %s: an agent of %s listens there: job %s, %s, view %lld, %s; weft "
             "run of that job joins it",
             at, *x.hello.host ? x.hello.host : "a host",
             *x.output ? x.output : "without an output", x.state, (long long)x.view,
             step);
        compare_hosts(f, at, &x);
    } else {
        note(f, "ok", "--rdzv %s: an agent of %s listens there", at,
             *x.hello.host ? x.hello.host : "a host");
        compare_hosts(f, at, &x);
    }
}

static void check_address(findings *f, const doctor_options *o, const char *at)
{
    char             host[280], *port;
    struct addrinfo *a = NULL, hints = {.ai_socktype = SOCK_STREAM};
    if (weft_comm_rdzv_check(at) != WEFT_OK) {
        note(f, "problem", "%s", weft_error_text());
        return;
    }
    snprintf(host, sizeof host, "%s", at);
    port       = strrchr(host, ':');
    *port++    = 0;
    char *name = host;
    if (*name == '[' && name[strlen(name) - 1] == ']') name++ [strlen(host) - 1] = 0;
    int how = getaddrinfo(name, port, &hints, &a);
    if (how) {
        note(f, "problem", "--rdzv %s: %s; give node 0's address in numbers", at,
             gai_strerror(how));
        return;
    }
    int why = try_bind(a);
    if (!why)
        note(f, "ok", "--rdzv %s: an address of this host, and the port is free", at);
    else if (why == EADDRINUSE)
        check_listener(f, o, at, true);
    else if (why == EACCES)
        note(f, "problem",
             "--rdzv %s: ports below 1024 are not for users; choose another one", at);
    else if (!(why = try_connect(a)))
        check_listener(f, o, at, false);
    else if (why == ECONNREFUSED)
        note(
            f, "ok",
            "--rdzv %s: another host, which answers; no process listens there yet: start "
            "node 0",
            at);
    else
        note(f, "problem",
             "--rdzv %s: %s; is it node 0's address, and does a firewall let the port "
             "through?",
             at, strerror(why));
    freeaddrinfo(a);
}

static void check_rdzv(findings *f, const doctor_options *o)
{
    char listed[WEFT_LAUNCH_MAX_RDZV][64];
    if (!o->rdzv) return;
    if (weft_launch_is_register(o->rdzv)) {
        const char *etcd = strstr(o->rdzv, "://");
        etcd ? check_register_etcd(f, etcd + 3) : check_register_folder(f, o->rdzv + 5);
        return;
    }
    int n = strchr(o->rdzv, ',') ? weft_launch_split_rdzv(o->rdzv, listed) : 1;
    if (n == 1) check_address(f, o, o->rdzv);
    for (int k = 0; n > 1 && k < n; k++) check_address(f, o, listed[k]);
    if (!n)
        note(f, "problem",
             "--rdzv: at most %d addresses host:port of at most 63 characters, with "
             "commas "
             "between",
             WEFT_LAUNCH_MAX_RDZV);
}

static void check_versions(findings *f)
{
    struct utsname u;
    if (uname(&u)) return;
    note(f, "ok", "weft %s, %s %s", weft_cli_build(), u.sysname, u.release);
}

static int examine_host(const doctor_options *o)
{
    findings f = {0};
    check_versions(&f);
    check_limits(&f);
    check_shared_memory(&f);
    check_cores(&f);
    check_network(&f);
    check_environment(&f);
    if (o->output) check_output(&f, o);
    check_token(&f, o);
    check_rdzv(&f, o);
    int code = weft_cli_put(&weft_cli_doctor, &f.text, NULL);
    return code ? code : f.n_problem ? WEFT_EXIT_FAILED : WEFT_EXIT_OK;
}

/* ---- dumps ---- */

static weft_status add_file(weft_dumps *d, const char *dir, const char *name)
{
    char   path[4352], *text = NULL;
    size_t n;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    WEFT_TRY(weft_io_read_file(path, &text, &n));
    weft_status st = weft_dumps_add(d, path, text, n);
    free(text);
    return st;
}

/* Files of ranks here; else *below is the newest folder, by name. */
static weft_status add_folder(weft_dumps *d, const char *dir, char *below, size_t n)
{
    DIR           *all = opendir(dir);
    struct dirent *e;
    weft_status    st = WEFT_OK;
    *below            = 0;
    if (!all) return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s", dir, strerror(errno));
    while (st == WEFT_OK && (e = readdir(all))) {
        size_t length = strlen(e->d_name);
        if (!strncmp(e->d_name, "rank", 4) && length > 5 &&
            !strcmp(e->d_name + length - 5, ".json"))
            st = add_file(d, dir, e->d_name);
        else if (!strncmp(e->d_name, "epoch-", 6) &&
                 (!*below || strverscmp(e->d_name, below) > 0))
            snprintf(below, n, "%s", e->d_name);
    }
    closedir(all);
    return st;
}

static int examine_dumps(const char *dir)
{
    const weft_cli_command *c = &weft_cli_doctor;
    weft_dumps             *d = NULL;
    weft_text               t = {0};
    char                    below[256], path[4352];
    bool                    mismatch = false;
    weft_status             st       = weft_dumps_create(&d);
    if (st == WEFT_OK) st = add_folder(d, dir, below, sizeof below);
    if (st == WEFT_OK && !weft_dumps_count(d) && *below) {
        snprintf(path, sizeof path, "%s/%s", dir, below);
        st = add_folder(d, path, below, sizeof below);
    }
    if (st == WEFT_OK && !weft_dumps_count(d))
        st = WEFT_FAIL(WEFT_ERR_ARG,
                       "%s: no dumps of ranks are there (OUTPUT/dumps of a job that "
                       "failed or hung)",
                       dir);
    if (st == WEFT_OK) mismatch = weft_dumps_explain(d, &t);
    weft_dumps_destroy(d);
    if (st != WEFT_OK) {
        weft_text_fini(&t);
        return weft_cli_fail(c, st);
    }
    int code = weft_cli_put(c, &t, NULL);
    return code ? code : mismatch ? WEFT_EXIT_FAILED : WEFT_EXIT_OK;
}

static int run(int argc, char **argv)
{
    const weft_cli_command *c        = &weft_cli_doctor;
    doctor_options          o        = {0};
    int                     n_word   = 0;
    const weft_cli_option   option[] = {
          {"output", 0, WEFT_CLI_TEXT, &o.output, "DIR", "a job's output folder"},
          {"rdzv", 0, WEFT_CLI_TEXT, &o.rdzv, "HOST:PORT[,...]|file:DIR|etcd://...",
           "where several hosts are to meet: ports, token, shared output"},
          {"token-file", 0, WEFT_CLI_TEXT, &o.token.file, "FILE",
           "the token of runs on several hosts"},
    };
    int code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word > 1) return weft_cli_usage(c, "expected one folder of dumps");
    return n_word ? examine_dumps(argv[0]) : examine_host(&o);
}
