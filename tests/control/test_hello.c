/* Hellos: there and back, what is none, and who may work with whom. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "control/hello.h"

static weft_control_hello make_hello(const char *host)
{
    weft_control_hello h = {.role = WEFT_CONTROL_AGENT, .invariant = true};
    snprintf(h.job, sizeof h.job, "gpt2");
    snprintf(h.host, sizeof h.host, "%s", host);
    snprintf(h.build, sizeof h.build, "0.1.0 1234567");
    snprintf(h.kernels, sizeof h.kernels, "avx2 mkl");
    return h;
}

static void a_hello_comes_back_as_it_was(void **state)
{
    weft_control_hello h = make_hello("alpha"), back;
    weft_text          t = {0};
    (void)state;
    snprintf(h.keys, sizeof h.keys, "batch is 8\nmodel is gpt2\n");
    weft_control_hello_print(&h, &t);
    assert_int_equal(weft_control_hello_parse(t.s, t.n, &back), WEFT_OK);
    assert_int_equal(back.wire, WEFT_CONTROL_WIRE);
    assert_true(back.role == h.role && back.invariant);
    assert_string_equal(back.job, h.job);
    assert_string_equal(back.host, h.host);
    assert_string_equal(back.build, h.build);
    assert_string_equal(back.kernels, h.kernels);
    assert_string_equal(back.keys, h.keys);
    for (size_t n = 0; n < t.n; n++) /* cut off: an error, or the lines before */
        if (weft_control_hello_parse(t.s, n, &back) == WEFT_OK)
            assert_true(t.s[n - 1] == '\n');
    weft_text_fini(&t);
}

static void what_is_no_hello(void **state)
{
    static const char *const bad[] = {
        "",
        "weft control",
        "hello\nwire 1\n",
        "weft control\n",
        "weft control\nwire 0\n",
        "weft control\nwire -1\n",
        "weft control\nwire 99999999\n",
        "weft control\nwire 1\nrole king\n",
        "weft control\nwire 1\nreduction maybe\n",
        "weft control\nwire 1\njob \n",
        "weft control\nwire 1\njob a\tb\n",
        "weft control\nwire 1\njob\n",
        "weft control\nwire 1\njob x",
    };
    weft_control_hello h;
    char               text[4096] = "weft control\nwire 1\njob ";
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT(bad); k++)
        if (weft_control_hello_parse(bad[k], strlen(bad[k]), &h) == WEFT_OK)
            fail_msg("taken: %s", bad[k]);
    size_t n = strlen(text);
    memset(text + n, 'x', WEFT_CONTROL_NAME);
    text[n + WEFT_CONTROL_NAME] = '\n';
    assert_int_equal(weft_control_hello_parse(text, n + WEFT_CONTROL_NAME + 1, &h),
                     WEFT_ERR_ARG);
    text[n + WEFT_CONTROL_NAME - 1] = '\n';
    assert_int_equal(weft_control_hello_parse(text, n + WEFT_CONTROL_NAME, &h), WEFT_OK);
    /* a newer build's key */
    static const char later[] = "weft control\nwire 1\ncolour blue\n";
    assert_int_equal(weft_control_hello_parse(later, sizeof later - 1, &h), WEFT_OK);
}

/* Keys of any length and any bytes: what is sent is a hello. */
static void keys_that_do_not_fit(void **state)
{
    weft_control_hello h = make_hello("alpha"), back;
    (void)state;
    for (size_t line = 1; line < WEFT_CONTROL_KEYS - 1; line += line / 3 + 1) {
        weft_text t = {0};
        memset(h.keys, 0, sizeof h.keys);
        for (size_t i = 0; i + 1 < sizeof h.keys; i++)
            h.keys[i] = (char)(i % (line + 1) == line ? '\n' : 'a' + (char)(i % 200));
        weft_control_hello_print(&h, &t);
        assert_true(t.n <= WEFT_CONTROL_HELLO_MOST);
        assert_int_equal(weft_control_hello_parse(t.s, t.n, &back), WEFT_OK);
        weft_text_fini(&t);
    }
}

static void who_may_work_with_whom(void **state)
{
    weft_control_hello a = make_hello("alpha"), b = make_hello("beta");
    char               text[640];
    (void)state;
    assert_true(weft_control_hello_admits(&a, &b, text, sizeof text));
    assert_string_equal(text, "");
    snprintf(b.build, sizeof b.build, "0.2.0");
    assert_false(weft_control_hello_admits(&a, &b, text, sizeof text));
    assert_string_equal(text,
                        "other build: 0.1.0 1234567 on alpha, 0.2.0 on beta; reduction: "
                        "invariant needs the same on all hosts: install it, or set "
                        "reduction=fixed");
    a.invariant = false; /* one strict side is enough */
    assert_false(weft_control_hello_admits(&a, &b, text, sizeof text));
    b.invariant = false;
    assert_true(weft_control_hello_admits(&a, &b, text, sizeof text));
    assert_non_null(strstr(text, "other build: 0.1.0 1234567 on alpha, 0.2.0 on beta"));
    assert_non_null(strstr(text, "bits may differ"));
    b.wire = WEFT_CONTROL_WIRE + 1; /* refused always, also where builds are the same */
    assert_false(weft_control_hello_admits(&b, &a, text, sizeof text));
    assert_non_null(strstr(text, "other wire version: 5 on beta, 4 on alpha"));
    snprintf(b.build, sizeof b.build, "%s", a.build);
    assert_false(weft_control_hello_admits(&a, &b, text, sizeof text));
    b = make_hello("beta"); /* the same version, another commit */
    snprintf(b.build, sizeof b.build, "0.1.0 1234567-dirty");
    assert_false(weft_control_hello_admits(&a, &b, text, sizeof text));
    b = make_hello("beta");
    snprintf(b.job, sizeof b.job, "other");
    assert_false(weft_control_hello_admits(&a, &b, text, sizeof text));
    assert_non_null(strstr(text, "other job: 'gpt2' on alpha, 'other' on beta"));
    /* which key differs first, where both say their keys */
    snprintf(a.keys, sizeof a.keys, "seq is 16\nbatch is 8\nsteps is 10\n");
    assert_false(weft_control_hello_admits(&a, &b, text, sizeof text));
    assert_non_null(strstr(text, "other job: 'gpt2' on alpha"));
    snprintf(b.keys, sizeof b.keys, "seq is 16\nsteps is 10\nbatch is 80\n");
    assert_false(weft_control_hello_admits(&a, &b, text, sizeof text));
    assert_string_equal(text,
                        "other job: batch is 8 on alpha, 80 on beta; give all hosts the "
                        "same job, or each job its own port and output");
    snprintf(b.keys, sizeof b.keys, "seq is 16\nsteps is 10\nbatch is 8\nlr is 1\n");
    assert_false(weft_control_hello_admits(&a, &b, text, sizeof text));
    assert_non_null(strstr(text, "other job: lr is not given on alpha, 1 on beta; give"));
    *a.keys = *b.keys = 0;
    /* a tool needs no kernels, and no job */
    b.role = WEFT_CONTROL_TOOL;
    assert_false(weft_control_hello_admits(&a, &b, text, sizeof text));
    *b.job = *b.kernels = 0;
    assert_true(weft_control_hello_admits(&a, &b, text, sizeof text));
    /* an agent without a job's name is not one of this job */
    b.role = WEFT_CONTROL_AGENT;
    assert_false(weft_control_hello_admits(&a, &b, text, sizeof text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hello_comes_back_as_it_was),
        cmocka_unit_test(what_is_no_hello),
        cmocka_unit_test(keys_that_do_not_fit),
        cmocka_unit_test(who_may_work_with_whom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
