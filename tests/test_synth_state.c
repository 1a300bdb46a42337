/* Random-weight models: the same bytes however many threads write them, a draft that is the
 * target's own beginning, agreement that falls as the dial is turned up, and logits that say
 * something. */
#include "rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "generate.h"
#include "synth.h"

#define TINY 0

static char tmp[64];

static char *path_of(const char *dir, const char *name) {
    char *out;
    ls_err err;
    OK(ls_file_join(dir, name, &out, &err), &err);
    return out;
}

/* A new folder DIR/NAME. */
static char *make(const char *name, ls_synth_options o) {
    ls_err err;
    char *dir = path_of(tmp, name);
    OK(ls_synth_write(ls_shape_at(TINY), &o, dir, &err), &err);
    return dir;
}

static void drop(char *dir) {
    ls_synth_remove(dir);
    assert_false(ls_file_exists(dir));
    free(dir);
}

static ls_model *open_in(const char *dir, const char *name) {
    ls_err err;
    ls_model *m = NULL;
    char *path = path_of(dir, name);
    OK(ls_model_open(path, (ls_model_options){0}, &m, &err), &err);
    free(path);
    return m;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void assert_same_file(const char *a, const char *b, const char *name, bool same) {
    char *pa = path_of(a, name), *pb = path_of(b, name);
    size_t na, nb;
    char *ta = ls_read_all(pa, &na), *tb = ls_read_all(pb, &nb);
    assert_int_equal(same, na == nb && memcmp(ta, tb, na) == 0);
    free(pa), free(pb), free(ta), free(tb);
}

static void threads_and_seeds(void **state) {
    (void)state;
    char *one = make("one", (ls_synth_options){.seed = 1, .n_threads = 1});
    char *three = make("three", (ls_synth_options){.seed = 1, .n_threads = 3});
    char *other = make("other", (ls_synth_options){.seed = 2, .n_threads = 3});
    static const char *const files[] = {"model.safetensors", "config.json", "tokenizer.json"};
    for (int i = 0; i < 3; i++) {
        assert_same_file(one, three, files[i], true);
        assert_same_file(one, other, files[i], i > 0);
    }
    drop(one), drop(three), drop(other);
}

static void assert_same_mat(ls_mat a, ls_mat b, double ratio) {
    assert_int_equal(a.n_out, b.n_out);
    assert_int_equal(a.n_in, b.n_in);
    const size_t n = (size_t)a.n_out * (size_t)a.n_in;
    const uint16_t *x = a.data, *y = b.data;
    if (ratio == 1) {
        assert_memory_equal(x, y, 2 * n);
        return;
    }
    double sx = 0, sy = 0; /* squares */
    for (size_t i = 0; i < n; i++) {
        const uint32_t u = (uint32_t)x[i] << 16, v = (uint32_t)y[i] << 16;
        float f, g;
        memcpy(&f, &u, 4), memcpy(&g, &v, 4);
        sx += (double)f * (double)f, sy += (double)g * (double)g;
    }
    assert_true(fabs(sqrt(sx / sy) - ratio) < 0.02 * ratio);
}

/* One layer drafts for two: what is shared is shared to the bit, and the second layer's writes are
 * S times (N / (L - N) = 1) what they are without a pair. */
static void pair_shares(void **state) {
    (void)state;
    char *dir = make("pair", (ls_synth_options){.seed = 1, .draft_layers = 1, .divergence = 0.25});
    char *alone = make("alone", (ls_synth_options){.seed = 1});
    ls_model *target = open_in(dir, "target"), *draft = open_in(dir, "draft");
    ls_model *plain = open_in(alone, "");
    const ls_weights *t = target->weights, *d = draft->weights, *p = plain->weights;
    assert_int_equal(t->n_layers, 2);
    assert_int_equal(d->n_layers, 1);
    assert_same_mat(t->embed, d->embed, 1);
    assert_same_mat(t->layer[0].down, d->layer[0].down, 1);
    assert_same_mat(t->layer[0].q, d->layer[0].q, 1);
    assert_same_mat(t->layer[1].q, p->layer[1].q, 1);
    assert_same_mat(t->layer[1].gate, p->layer[1].gate, 1);
    assert_same_mat(t->layer[1].o, p->layer[1].o, 0.25);
    assert_same_mat(t->layer[1].down, p->layer[1].down, 0.25);
    ls_model_close(target), ls_model_close(draft), ls_model_close(plain);
    drop(dir), drop(alone);
}

static void sizes(void **state) {
    (void)state;
    /* parameters of the models the shapes are from */
    static const int64_t n_params[] = {103744, 134515008, 1235814400, 8030261248};
    for (int i = 0; i < 4; i++)
        assert_int_equal(ls_shape_bytes(ls_shape_at(i)), 2 * n_params[i]);
    assert_null(ls_shape_at(4));
    assert_null(ls_shape_at(-1));
}

/* ---- what the weights say -------------------------------------------------------------------- */

static ls_engine *engine_on(ls_backend *be, const ls_model *m) {
    ls_err err;
    ls_engine *e = NULL;
    const ls_engine_options o = {.context = 160, .n_vocab = m->n_token};
    OK(ls_engine_create(m, be, o, &e, &err), &err);
    return e;
}

/* Accepted over judged drafts, four a round, on 12 random prompts. */
static double agreement(double divergence) {
    ls_err err;
    char *dir =
        make("dial", (ls_synth_options){.seed = 1, .draft_layers = 1, .divergence = divergence});
    ls_backend *be = NULL;
    OK(ls_cpu_create((ls_cpu_options){.n_threads = 1}, &be, &err), &err);
    ls_model *target = open_in(dir, "target"), *draft = open_in(dir, "draft");
    ls_engine *te = engine_on(be, target), *de = engine_on(be, draft);
    ls_drafter *drafter = NULL;
    ls_policy *policy = NULL;
    OK(ls_drafter_model(de, &drafter, &err), &err);
    OK(ls_policy_fixed(4, &policy, &err), &err);
    int64_t kept = 0, judged = 0;
    uint32_t seed = 1;
    for (int i = 0; i < 12; i++) {
        int32_t prompt[24];
        for (int k = 0; k < 24; k++)
            prompt[k] = (int32_t)((seed = seed * 1664525u + 1013904223u) >> 16) % target->n_token;
        const ls_gen g = {.target = te,
                          .drafter = drafter,
                          .policy = policy,
                          .prompt = prompt,
                          .n_prompt = 24,
                          .max_new = 128,
                          .warp = {.top_p = 1}};
        ls_transcript t = {0};
        OK(ls_generate(&g, &t, &err), &err);
        for (int32_t r = 0; r < t.n_round; r++)
            kept += t.round[r].accepted, judged += t.round[r].evaluated;
        ls_transcript_free(&t);
    }
    ls_policy_destroy(policy);
    ls_drafter_destroy(drafter);
    ls_engine_destroy(te), ls_engine_destroy(de);
    ls_model_close(target), ls_model_close(draft);
    ls_backend_destroy(be);
    drop(dir);
    assert_true(judged > 1000);
    return (double)kept / (double)judged;
}

static void dial(void **state) {
    (void)state;
    static const double at[] = {0, 0.05, 0.2, 0.8, 3};
    double last = agreement(at[0]);
    assert_true(last == 1); /* nothing is added: never one refusal */
    for (int i = 1; i < 5; i++) {
        const double now = agreement(at[i]);
        print_message("divergence %g: acceptance %.3f\n", at[i], now);
        assert_true(now < last - 0.02);
        last = now;
    }
    assert_true(last < 0.25);
}

/* Mean entropy of next tokens over random prompts, between a quarter and three quarters of ln V. */
static void entropy(void **state) {
    (void)state;
    ls_err err;
    char *dir = make("entropy", (ls_synth_options){.seed = 3});
    ls_backend *be = NULL;
    OK(ls_cpu_create((ls_cpu_options){.n_threads = 1}, &be, &err), &err);
    ls_model *m = open_in(dir, "");
    assert_int_equal(m->n_token, ls_shape_at(TINY)->n_vocab); /* every id has a text */
    ls_engine *e = engine_on(be, m);
    int32_t seq;
    OK(ls_kv_open(ls_engine_kv(e), &seq, &err), &err);
    double sum = 0;
    uint32_t seed = 7;
    for (int32_t i = 0; i < 128; i++) {
        const int32_t token = (int32_t)((seed = seed * 1664525u + 1013904223u) >> 16) % m->n_token;
        const ls_row row = ls_row_chain(seq, token, i, true);
        const ls_warp warp = {.top_p = 1};
        const ls_draw draw = {0};
        ls_row_stats stats;
        OK(ls_pass_drawn(e, &row, 1, &(ls_draws){.warp = &warp, .draw = &draw}, &err), &err);
        OK(ls_pass_result(e, NULL, 0, NULL, &stats, 1, &err), &err);
        sum += (double)stats.entropy / 128;
    }
    const double all = log(m->n_token);
    print_message("entropy %.2f of %.2f\n", sum, all);
    assert_true(sum > 0.25 * all && sum < 0.75 * all);
    ls_engine_destroy(e);
    ls_model_close(m);
    ls_backend_destroy(be);
    drop(dir);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static bool stop_now(void *self) {
    (void)self;
    return true;
}

static void refuses(void **state) {
    (void)state;
    const ls_shape *s = ls_shape_at(TINY);
    ls_err err;
    char *dir = path_of(tmp, "bad");
    const struct {
        ls_synth_options o;
        ls_status status;
        const char *says;
    } bad[] = {
        {{.draft_layers = 2}, LS_ERR_INPUT, "tiny has 2, so 1 to 1"},
        {{.draft_layers = -1}, LS_ERR_INPUT, "a draft of -1 layers"},
        {{.draft_layers = 1, .divergence = -0.5}, LS_ERR_INPUT, "a divergence of -0.5"},
        {{.draft_layers = 1, .divergence = NAN}, LS_ERR_INPUT, "divergence"},
        {{.stop = stop_now}, LS_ERR_STOPPED, "stopped"},
        {{.draft_layers = 1, .stop = stop_now}, LS_ERR_STOPPED, "stopped"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ls_synth_write(s, &bad[i].o, dir, &err), bad[i].status);
        assert_non_null(strstr(err.msg, bad[i].says));
        assert_false(ls_file_exists(dir)); /* nothing is left */
    }
    const ls_synth_options o = {.seed = 1};
    OK(ls_synth_write(s, &o, dir, &err), &err);
    assert_int_equal(ls_synth_write(s, &o, dir, &err), LS_ERR_INPUT);
    assert_non_null(strstr(err.msg, "exists"));
    char *config = path_of(dir, "config.json");
    assert_true(ls_file_exists(config)); /* what was there is not touched */
    free(config);
    drop(dir);
}

static int make_tmp(void **state) {
    (void)state;
    strcpy(tmp, "/tmp/ls_synth_XXXXXX");
    return mkdtemp(tmp) ? 0 : -1;
}

static int drop_tmp(void **state) {
    (void)state;
    return rmdir(tmp);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_and_seeds),
        cmocka_unit_test(pair_shares),
        cmocka_unit_test(sizes),
        cmocka_unit_test(dial),
        cmocka_unit_test(entropy),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, make_tmp, drop_tmp);
}
