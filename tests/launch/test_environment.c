/* Which rank a process is, in the words of each launcher. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "launch/environment.h"

static weft_launch_environment p;

static weft_status detect(const char *const *env)
{
    clearenv();
    for (int i = 0; env[i]; i += 2) setenv(env[i], env[i + 1], 1);
    return weft_launch_detect(&p);
}

#define DETECT(...) detect((const char *const[]){__VA_ARGS__, NULL})

static void want(const char *by, int rank, int world, int local_rank, int local_world)
{
    assert_string_equal(p.by, by);
    assert_int_equal(p.rank, rank);
    assert_int_equal(p.world, world);
    assert_int_equal(p.local_rank, local_rank);
    assert_int_equal(p.local_world, local_world);
}

static void every_launcher(void **state)
{
    (void)state;
    assert_int_equal(DETECT("HOME", "/"), WEFT_OK);
    want("alone", 0, 1, 0, 1);
    assert_int_equal(DETECT("RANK", "5", "WORLD_SIZE", "8", "LOCAL_RANK", "1",
                            "LOCAL_WORLD_SIZE", "4", "MASTER_PORT", "29500"),
                     WEFT_OK);
    want("torchrun", 5, 8, 1, 4);
    assert_non_null(strstr(p.key, "29500"));
    assert_int_equal(DETECT("SLURM_PROCID", "4", "SLURM_NTASKS", "5", "SLURM_LOCALID",
                            "0", "SLURM_NODEID", "2", "SLURM_STEP_TASKS_PER_NODE",
                            "2(x2),1", "SLURM_JOB_ID", "7", "SLURM_STEP_ID", "0"),
                     WEFT_OK);
    want("slurm", 4, 5, 0, 1);
    assert_int_equal(DETECT("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "1",
                            "OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
                     WEFT_OK);
    want("openmpi", 1, 2, 1, 2);
    assert_int_equal(DETECT("PMI_RANK", "1", "PMI_SIZE", "3"), WEFT_OK);
    want("pmi", 1, 3, 1, 3);
    /* ours wins over what surrounds it, torchrun's over Slurm's */
    assert_int_equal(DETECT("WEFT_RANK", "1", "WEFT_WORLD_SIZE", "2", "WEFT_SHM_FD", "9",
                            "SLURM_PROCID", "0", "SLURM_NTASKS", "1"),
                     WEFT_OK);
    want("weft run", 1, 2, 1, 2);
    assert_int_equal(p.shm_fd, 9);
    assert_int_equal(
        DETECT("RANK", "1", "WORLD_SIZE", "2", "SLURM_PROCID", "0", "SLURM_NTASKS", "1"),
        WEFT_OK);
    want("torchrun", 1, 2, 1, 2);
}

static void nonsense(void **state)
{
    (void)state;
    assert_int_equal(DETECT("RANK", "2", "WORLD_SIZE", "2"), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "RANK is '2'"));
    assert_int_equal(DETECT("RANK", "x", "WORLD_SIZE", "2"), WEFT_ERR_ARG);
    assert_int_equal(DETECT("RANK", "0", "WORLD_SIZE", "0"), WEFT_ERR_ARG);
    assert_int_equal(DETECT("WEFT_RANK", "0"), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "WEFT_WORLD_SIZE"));
    assert_int_equal(DETECT("RANK", "0", "WORLD_SIZE", "4", "LOCAL_RANK", "2",
                            "LOCAL_WORLD_SIZE", "2"),
                     WEFT_ERR_ARG);
}

/* Launchers that srun starts one a host: the same address on all of them. */
static void one_launcher_a_host(void **state)
{
    char at[2][280], name[64];
    int  node = 7;
    (void)state;
    assert_int_equal(DETECT("PATH", "/bin"), WEFT_OK);
    assert_false(weft_launch_detect_hosts(at[0], sizeof at[0], &node));
    assert_int_equal(node, -1);
    (void)DETECT("SLURM_JOB_ID", "7", "SLURM_JOB_NODELIST", "localhost,b", "SLURM_PROCID",
                 "3", "SLURM_NODEID", "1", "SLURMD_NODENAME", "n[1]");
    assert_true(weft_launch_detect_hosts(at[0], sizeof at[0], &node));
    assert_int_equal(node, 1);
    assert_memory_equal(at[0], "localhost:", 10);
    weft_launch_host_name(name, sizeof name);
    assert_string_equal(name, "n[1]");
    (void)DETECT("SLURM_JOB_ID", "7", "SLURM_JOB_NODELIST", "no.such.host.invalid",
                 "SLURM_LAUNCH_NODE_IPADDR", "localhost");
    assert_true(weft_launch_detect_hosts(at[1], sizeof at[1], &node));
    assert_int_equal(node, -1); /* not of a step */
    assert_string_equal(at[0], at[1]);
    (void)DETECT("SLURM_JOB_ID", "8", "SLURM_JOB_NODELIST", "localhost");
    assert_true(weft_launch_detect_hosts(at[1], sizeof at[1], &node));
    assert_string_not_equal(at[0], at[1]);
    (void)DETECT("WEFT_RDZV", "a:1", "SLURM_JOB_ID", "8", "SLURM_JOB_NODELIST", "b");
    assert_true(weft_launch_detect_hosts(at[1], sizeof at[1], &node));
    assert_string_equal(at[1], "a:1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launcher),
        cmocka_unit_test(nonsense),
        cmocka_unit_test(one_launcher_a_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
