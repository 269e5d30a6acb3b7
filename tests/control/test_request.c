/* Requests of tools: there and back, what is none; an agent that answers, ends or is silent. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>

#include "control/client.h"
#include "pair.h"

static void a_request_comes_back_as_it_was(void **state)
{
    static const weft_control_request list[] = {
        {.ask = WEFT_CONTROL_STATUS},
        {.ask = WEFT_CONTROL_STATUS, .json = true},
        {.ask = WEFT_CONTROL_EVENTS, .json = true, .follow = true},
        {.ask = WEFT_CONTROL_STATE},
        {.ask = WEFT_CONTROL_SCALE, .n = 999999999},
        {.ask = WEFT_CONTROL_DRAIN, .host = "node7"},
    };
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT(list); k++) {
        weft_control_request back;
        weft_text            t = {0};
        weft_control_request_print(&list[k], &t);
        assert_int_equal(weft_control_request_parse(t.s, t.n, &back), WEFT_OK);
        assert_true(back.ask == list[k].ask && back.json == list[k].json &&
                    back.follow == list[k].follow && back.n == list[k].n);
        assert_string_equal(back.host, list[k].host);
        assert_int_equal(weft_control_request_reads(&back), k < 4);
        weft_text_fini(&t);
    }
}

static void what_is_no_request(void **state)
{
    static const char *const bad[] = {"",
                                      "\n",
                                      "ask\n",
                                      "ask status",
                                      "ask x\n",
                                      "json 1\n",
                                      "ask scale\nn -1\n",
                                      "ask scale\nn 1234567890\n",
                                      "ask drain\nhost a b\n",
                                      "ask status\njson 0\n",
                                      "ask status\nfile /etc/passwd\n",
                                      "ask drain\nhost \x1b[2J\n"};
    weft_control_request     r;
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT(bad); k++)
        if (weft_control_request_parse(bad[k], strlen(bad[k]), &r) == WEFT_OK)
            fail_msg("taken: %s", bad[k]);
}

/* ---- a tool and an agent ---- */

typedef struct tool {
    char                 at[32], heard[64], why[512];
    weft_comm_token      token;
    weft_control_request request;
    double               timeout_s;
    weft_status          st;
    int                  code;
} tool;

static void hear(void *arg, bool error, const void *text, size_t n)
{
    tool  *t    = arg;
    size_t used = strlen(t->heard);
    snprintf(t->heard + used, sizeof t->heard - used, "%s%.*s", error ? "!" : "", (int)n,
             (const char *)text);
}

static void *be_tool(void *arg)
{
    tool                *t = arg;
    weft_control_options o = {.token = &t->token};
    t->st =
        weft_control_ask_agent(&o, t->at, &t->request, t->timeout_s, hear, t, &t->code);
    if (t->st != WEFT_OK) snprintf(t->why, sizeof t->why, "%s", weft_error_text());
    return NULL;
}

/* Until its request is there. */
static int64_t await_request(weft_control *b, pthread_t *thread, tool *t)
{
    weft_control_event e;
    t->token = token_of(1);
    snprintf(t->at, sizeof t->at, "127.0.0.1:%d", weft_control_port(b));
    assert_int_equal(pthread_create(thread, NULL, be_tool, t), 0);
    expect_event(b, NULL, WEFT_CONTROL_OPENED, &e);
    assert_int_equal(e.hello->role, WEFT_CONTROL_TOOL);
    expect_event(b, NULL, WEFT_CONTROL_FRAME, &e);
    assert_int_equal(e.frame, WEFT_CONTROL_REQUEST);
    return e.peer;
}

static void an_answer_comes_in_parts(void **state)
{
    weft_comm_token token = token_of(1);
    weft_control   *b     = open_host("beta", &token, true);
    tool            t     = {.request = {.ask = WEFT_CONTROL_STATUS}, .timeout_s = 60};
    pthread_t       thread;
    (void)state;
    int64_t peer = await_request(b, &thread, &t);
    weft_control_send(b, peer, WEFT_CONTROL_OUT, "abc", 3);
    weft_control_send(b, peer, WEFT_CONTROL_ERR, "d", 1);
    weft_control_send(b, peer, WEFT_CONTROL_OUT, "ef", 2);
    weft_control_send(b, peer, WEFT_CONTROL_END, "\x07", 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(t.st, WEFT_OK);
    assert_string_equal(t.heard, "abc!def");
    assert_int_equal(t.code, 7);
    weft_control_close(b);
}

static void an_agent_that_ends_or_is_silent(void **state)
{
    weft_comm_token token = token_of(1);
    weft_control   *b     = open_host("beta", &token, true);
    tool            t     = {.request = {.ask = WEFT_CONTROL_STATUS}, .timeout_s = 60};
    pthread_t       thread;
    (void)state;
    weft_control_end(b, await_request(b, &thread, &t));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(t.st, WEFT_ERR_PEER);
    assert_non_null(strstr(t.why, "closed the connection"));
    t.timeout_s = 0.05; /* it may be over before anything has happened, or after */
    assert_int_equal(pthread_create(&thread, NULL, be_tool, &t), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(t.st, WEFT_ERR_PEER);
    assert_non_null(strstr(t.why, "no answer in time"));
    weft_control_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_comes_back_as_it_was),
        cmocka_unit_test(what_is_no_request),
        cmocka_unit_test(an_answer_comes_in_parts),
        cmocka_unit_test(an_agent_that_ends_or_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
