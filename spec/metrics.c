#include "metrics.h"

ls_status ls_metrics_add(ls_metrics *m, const ls_round *r, ls_err *err) {
    /* a refusal is the one drafted token that was judged and not kept */
    const bool fits = r->proposed >= 0 && r->proposed <= LS_DRAFT_MAX && r->accepted >= 0 &&
                      r->evaluated >= r->accepted && r->evaluated <= r->accepted + 1 &&
                      r->evaluated <= r->proposed && r->emitted >= r->accepted &&
                      r->emitted <= r->accepted + 1;
    if (!fits)
        return ls_fail(err, LS_ERR_SHAPE,
                       "round at position %d contradicts itself: proposed %d, evaluated %d, "
                       "accepted %d, emitted %d",
                       r->position, r->proposed, r->evaluated, r->accepted, r->emitted);
    const bool refused = r->evaluated > r->accepted;
    m->n_round++;
    m->n_draft_round += r->proposed > 0;
    m->n_drafted += r->proposed;
    m->n_accepted += r->accepted;
    m->n_evaluated += r->evaluated;
    m->n_emitted += r->emitted;
    m->n_refused += refused;
    m->n_cut += r->emitted == r->accepted;
    m->n_clamped += r->clamped;
    for (int32_t d = 0; d < r->accepted; d++)
        m->kept[d]++;
    for (int32_t d = 0; d < r->evaluated; d++)
        m->judged[d]++;
    /* behind a refusal a depth counts as not kept; behind the end of the text it does not count */
    for (int32_t d = 0; d < (refused ? r->proposed : r->accepted); d++)
        m->reached[d]++;
    m->draft_us += (double)r->draft_us;
    m->verify_us += (double)r->verify_us;
    m->policy_us += (double)r->policy_us;
    m->accept_us += (double)r->accept_us;
    return LS_OK;
}

ls_status ls_metrics_add_all(ls_metrics *m, const ls_round *round, int32_t n, ls_err *err) {
    for (int32_t i = 0; i < n; i++)
        LS_TRY(ls_metrics_add(m, &round[i], err));
    return LS_OK;
}

void ls_metrics_pool(ls_metrics *into, const ls_metrics *from) {
    into->n_round += from->n_round;
    into->n_draft_round += from->n_draft_round;
    into->n_drafted += from->n_drafted;
    into->n_accepted += from->n_accepted;
    into->n_evaluated += from->n_evaluated;
    into->n_emitted += from->n_emitted;
    into->n_refused += from->n_refused;
    into->n_cut += from->n_cut;
    into->n_clamped += from->n_clamped;
    for (int32_t d = 0; d < LS_DRAFT_MAX; d++) {
        into->kept[d] += from->kept[d];
        into->judged[d] += from->judged[d];
        into->reached[d] += from->reached[d];
    }
    into->draft_us += from->draft_us;
    into->verify_us += from->verify_us;
    into->policy_us += from->policy_us;
    into->accept_us += from->accept_us;
}

ls_rate ls_metrics_acceptance(const ls_metrics *m) {
    return (ls_rate){m->n_accepted, m->n_accepted + m->n_refused};
}

ls_rate ls_metrics_yield(const ls_metrics *m) {
    return (ls_rate){m->n_accepted, m->n_drafted};
}

ls_rate ls_metrics_per_pass(const ls_metrics *m) {
    return (ls_rate){m->n_emitted, m->n_round};
}

ls_rate ls_metrics_per_draft(const ls_metrics *m) {
    return (ls_rate){m->n_accepted, m->n_draft_round};
}

static ls_rate at_depth(const int64_t *num, const int64_t *den, int32_t depth) {
    if (depth < 1 || depth > LS_DRAFT_MAX)
        return (ls_rate){0, 0};
    return (ls_rate){num[depth - 1], den[depth - 1]};
}

ls_rate ls_metrics_conditional(const ls_metrics *m, int32_t depth) {
    return at_depth(m->kept, m->judged, depth);
}

ls_rate ls_metrics_unconditional(const ls_metrics *m, int32_t depth) {
    return at_depth(m->kept, m->reached, depth);
}

int32_t ls_metrics_depth(const ls_metrics *m) {
    int32_t d = LS_DRAFT_MAX;
    while (d > 0 && m->judged[d - 1] == 0)
        d--;
    return d;
}
