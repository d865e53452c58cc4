/* Included by lane.h: the derivative of UltraLIF, and of rings of neurons with the same constants, from
 * their soft spikes.
 *
 * The membrane is computed from a soft spike, P = threshold + eps logit(s), so nothing is integrated again. Where s is
 * rounded to 0 or 1, P is lost. In a log-sum-exp of two terms such a past contributes to no later gradient, except that
 * of the last membrane. On a ring the neighbours would need it, so a ring that comes close to such a spike is
 * integrated again.
 */

/* Compute log2(s / (1 - s)) and the membrane after a step from its spikes, for some lanes. */
INLINE void NAME(from_spikes)(NAME(Lanes) l, const REAL *restrict spikes, REAL *restrict odds, REAL *restrict v,
                         int64_t first, int64_t end, const int shared)
{
    const REAL tiny = NAME(TINY), last = NAME(LAST);
    SIMD for (int64_t j = first; j < end; j++) {
        REAL s = spikes[j], rest = 1 - s;
        odds[j] = NAME(log2_ratio)(NAME(larger)(tiny, s), NAME(larger)(last, rest));
        v[j] = (l.threshold[shared ? 0 : j] + l.eps[shared ? 0 : j] * odds[j]) * rest + l.after[shared ? 0 : j] * s;
    }
}

/* One step back for some lanes of a block, from the membrane v before the step. */
INLINE void NAME(backward_odds)(const NAME(Call) *c, NAME(Block) *s, const REAL *restrict spikes,
                               const REAL *restrict odds, const REAL *restrict v, const REAL *restrict x,
                               const REAL *restrict gs, REAL *restrict gx, int64_t first, int64_t end,
                               const int learn)
{
    const NAME(Lanes) l = s->l;
    const REAL edge = c->edge, differentiated = c->rule->detach ? 0 : 1;
    REAL *restrict gv = s->grad.v;
    NAME(Sums) *restrict sums = &s->sums;
    SIMD for (int64_t j = first; j < end; j++) {
        const REAL k = l.k[j], spike = spikes[j], rest = 1 - spike, p = l.threshold[j] + l.eps[j] * odds[j];
        REAL fall = NAME(within)((v[j] + l.log_leak[j] - p) * k, edge), share = NAME(exp2)(fall);
        REAL back = (gs[j] + differentiated * gv[j] * (l.after[j] - p)) * (l.steep[j] * spike * rest);
        REAL g = back + gv[j] * rest, past = g * share, present = g - past;
        gx[j] = present;
        gv[j] = past;
        if (learn) {
            REAL other = NAME(within)((x[j] - p) * k, edge); /* log2 of the current's share */
            sums->eps[j] -= past * fall + present * other + back * odds[j];
            sums->leak[j] += past;
            sums->threshold[j] -= back;
        }
    }
}

/* Walk back over a whole block, with all its tensors in place. It goes piece by piece and prefetches little at a time:
 * more than two dozen cache lines in flight would stall the processor. */
static void NAME(backward_from_spikes)(const NAME(Call) *c, NAME(Block) *s)
{
    const Rule *rule = c->rule;
    const REAL *spikes = c->t->spikes + s->at, *x = (const REAL *)c->t->current + s->at;
    const REAL *gs = (const REAL *)c->t->g_out + s->at;
    REAL *gx = (REAL *)c->t->g_current + s->at, *v = s->v, *odds = s->odds[0], *before = s->odds[1];
    NAME(from_spikes)(s->l, spikes + (rule->time - 1) * c->row, odds, v, 0, LANES, 0);
    for (int64_t t = rule->time - 1; t >= 0; t--) {
        const REAL *now = spikes + t * c->row, *start = t ? v : s->now.v;
        const REAL *x_t = x + t * rule->current.time, *gs_t = gs + t * rule->grad.time;
        REAL *gx_t = gx + t * c->row;
        for (int i = 0; i < LANES; i += PIECE) {
            NAME(expect_step)(c, s, c->t->g_current, c->row, t - 2, i, PIECE, 1);
            NAME(expect_step)(c, s, c->t->spikes, c->row, t - 3, i, PIECE, 0);
            if (t)
                NAME(from_spikes)(s->l, now - c->row, before, v, i, i + PIECE, 0);
            NAME(expect_step)(c, s, c->t->g_out, rule->grad.time, t - 2, i, PIECE, 0);
            NAME(expect_step)(c, s, c->t->current, rule->current.time, t - 2, i, PIECE, 0);
            c->sums ? NAME(backward_odds)(c, s, now, odds, start, x_t, gs_t, gx_t, i, i + PIECE, 1)
                    : NAME(backward_odds)(c, s, now, odds, start, x_t, gs_t, gx_t, i, i + PIECE, 0);
        }
        REAL *swap = odds;
        odds = before;
        before = swap;
    }
}

/* The working state of a ring: its gradient gv, the shown values E = exp2(k w), and the gradient R of each sum. */
typedef struct {
    REAL *v, *odds, *before, *gv, *shown, *ratios;
    double eps, leak, threshold;
} NAME(Told);

/* The first half of a step back: through spike and reset to the gradient for P. Return whether P is close to
 * overflow or underflow. */
INLINE int NAME(backward_spikes)(const NAME(Call) *c, NAME(Lanes) l, NAME(Told) *r, const REAL *restrict spikes,
                                const REAL *restrict x, const REAL *restrict gs, REAL *restrict gx, int64_t n,
                                const int learn)
{
    const REAL limit = l.threshold[0], eps = l.eps[0], k = l.k[0], steep = l.steep[0], after = l.after[0];
    const REAL differentiated = c->rule->detach ? 0 : 1, most = 0x1p60, least = 0x1p-60, lost = 0x1p-50;
    const REAL *restrict odds = r->odds, *restrict gv = r->gv, *restrict shown = r->shown;
    REAL *restrict ratios = r->ratios, to_eps = 0, to_threshold = 0;
    int far = 0;
    _Pragma("omp simd reduction(| : far) reduction(+ : to_eps, to_threshold)") for (int64_t j = 0; j < n; j++) {
        REAL spike = spikes[j], rest = 1 - spike, p = limit + eps * odds[j], sum = shown[j - 1] + shown[j] + shown[j + 1];
        REAL back = (gs[j] + differentiated * gv[j] * (after - p)) * (steep * spike * rest), g = back + gv[j] * rest;
        ratios[j] = g / sum;
        gx[j] = g;
        if (learn) {
            to_eps += g * (p - x[j]) * k - back * odds[j];
            to_threshold -= back;
        }
        far |= (sum > most) | (sum < least) | (spike < lost);
    }
    r->eps += (double)to_eps;
    r->threshold += (double)to_threshold;
    return far;
}

/* The second half: through the log-sum-exp to the gradient for the previous membranes. */
INLINE void NAME(backward_ratios)(NAME(Lanes) l, NAME(Told) *r, const REAL *restrict v, int64_t n)
{
    const REAL k = l.k[0], leak = l.leak[0];
    const REAL *restrict shown = r->shown, *restrict ratios = r->ratios;
    REAL *restrict gv = r->gv, to_eps = 0, to_leak = 0;
    _Pragma("omp simd reduction(+ : to_eps, to_leak)") for (int64_t j = 0; j < n; j++) {
        REAL back = shown[j] * (ratios[j - 1] + ratios[j] + ratios[j + 1]);
        to_eps -= back * (v[j] * leak) * k;
        to_leak += back * v[j];
        gv[j] = back * leak;
    }
    r->eps += (double)to_eps;
    r->leak += (double)to_leak;
}

/* Compute the membranes before step t from the spikes of the previous step, and the values that they show. */
static void NAME(ring_from_spikes)(const NAME(Call) *c, NAME(Lanes) l, NAME(Told) *r, int64_t at, int64_t t)
{
    const int64_t n = c->rule->ring;
    const REAL k = l.k[0], leak = l.leak[0], edge = c->edge, shift = c->shift;
    const REAL *spikes = c->t->spikes + (t - 1) * c->row + at;
    REAL *restrict v = r->v, *restrict shown = r->shown;
    if (!t) {
        NAME(load)(v, c->t->state ? c->t->state + at : 0, n);
        for (int64_t j = 0; j < n; j++)
            v[j] = NAME(larger)(-(REAL)3e38, v[j]); /* the share of minus infinity is 0, but 0 times it is not */
    }
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t end = i + LANES < n ? i + LANES : n;
        if (t) {
            NAME(expect)(c, spikes - c->row * (t > 1) + i, end - i, 0);
            NAME(expect)(c, (REAL *)c->t->g_current + (t - 1) * c->row + at + i, end - i, 1);
            NAME(from_spikes)(l, spikes, r->before, v, i, end, 1);
            NAME(expect)(c, (const REAL *)c->t->g_out + (t - 1) * c->rule->grad.time + at + i, end - i, 0);
            NAME(expect)(c, (const REAL *)c->t->current + (t - 1) * c->rule->current.time + at + i, end - i, 0);
        }
        SIMD for (int64_t j = i; j < end; j++)
            shown[j] = NAME(exp2_or_0)(NAME(smaller)(edge, v[j] * leak * k - shift), edge);
    }
    shown[-1] = shown[n - 1];
    shown[n] = shown[0];
}

/* Walk back over a ring of identical neurons; return 0 if it must be integrated again. */
static int NAME(backward_ring)(const NAME(Call) *c, NAME(Lanes) l, NAME(Told) *r, int64_t at)
{
    const Rule *rule = c->rule;
    const int64_t n = rule->ring, last = rule->time - 1;
    int far = 0;
    memset(r->gv, 0, n * sizeof(REAL));
    NAME(from_spikes)(l, c->t->spikes + last * c->row + at, r->odds, r->v, 0, n, 1);
    for (int64_t t = last; t >= 0 && !far; t--) {
        const REAL *spikes = c->t->spikes + t * c->row + at, *x = (const REAL *)c->t->current + t * rule->current.time + at;
        const REAL *gs = (const REAL *)c->t->g_out + t * rule->grad.time + at;
        REAL *gx = (REAL *)c->t->g_current + t * c->row + at;
        NAME(ring_from_spikes)(c, l, r, at, t);
        far = c->sums ? NAME(backward_spikes)(c, l, r, spikes, x, gs, gx, n, 1)
                      : NAME(backward_spikes)(c, l, r, spikes, x, gs, gx, n, 0);
        r->ratios[-1] = r->ratios[n - 1];
        r->ratios[n] = r->ratios[0];
        NAME(backward_ratios)(l, r, r->v, n);
        REAL *swap = r->odds;
        r->odds = r->before;
        r->before = swap;
    }
    return !far;
}
