/* bench_policy.c - `lockstep bench policy`: one call of a length policy. */
#include <stdio.h>

#include "bench_cmd.h"
#include "lua_policy.h"

static const char *const default_policies[] = {"fixed", "heuristic", "confidence", "svip"};

static ls_status one_policy(ls_bench_job *j, const char *text, ls_err *err) {
    ls_policy *policy = NULL;
    char options[256];
    ls_lua_policy_cost c;
    LS_TRY(ls_setup_policy(&j->setup, text, &j->a.option, &policy, options, err));
    ls_status status = ls_lua_policy_bench(policy, j->a.calls, &c, err);
    if (status == LS_OK)
        json_array_append_new(j->results,
                              json_pack("{s:o, s:f, s:f, s:f, s:f, s:f, s:f}", "policy",
                                        ls_record_policy(policy, options), "plan_median_us",
                                        c.plan_median_us, "plan_p99_us", c.plan_p99_us,
                                        "more_median_us", c.more_median_us, "more_p99_us",
                                        c.more_p99_us, "observe_median_us", c.observe_median_us,
                                        "observe_p99_us", c.observe_p99_us));
    if (status == LS_OK && !j->a.json)
        printf("%-28s %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f\n", policy->name, c.plan_median_us,
               c.plan_p99_us, c.more_median_us, c.more_p99_us, c.observe_median_us,
               c.observe_p99_us);
    ls_policy_destroy(policy);
    return status;
}

ls_status ls_bench_policy(ls_bench_job *j, ls_err *err) {
    LS_TRY(ls_places_find(&j->setup.places, err));
    if (j->a.policy.n == 0)
        for (size_t i = 0; i < sizeof default_policies / sizeof *default_policies; i++)
            j->a.policy.item[j->a.policy.n++] = default_policies[i];
    if (!j->a.json)
        printf("one call in microseconds, %d rounds (0: the policy has no such callback)\n"
               "%-28s %17s %17s %17s\n%-28s %8s %8s %8s %8s %8s %8s\n",
               j->a.calls, "", "plan", "more", "observe", "policy", "median", "p99", "median",
               "p99", "median", "p99");
    for (int32_t i = 0; i < j->a.policy.n; i++)
        LS_TRY(one_policy(j, j->a.policy.item[i], err));
    return ls_bench_write(j, "bench policy", json_pack("{s:i}", "n_call", j->a.calls), err);
}
