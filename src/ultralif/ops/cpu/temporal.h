/* Included by lane.h: neurons without neighbours. A block of lanes is integrated over all time steps, then the next. */

typedef struct {
    REAL v[LANES], b[LANES], last[LANES]; /* membrane; AdaLIF's adaptation; the last spike, where a step needs it */
} NAME(State);

/* The rows of lanes in the trace of one step, for its derivative: P; the share of the past in a log-sum-exp or maximum,
 * or V before the step in a sum; the gate of a soft spike; the entropy of the shares in bits, or AdaLIF's threshold;
 * for a delayed reset, the previous step's spike. */
enum { NAME(P), NAME(SHARE), NAME(GATE) };
#define MORE(soft) (2 + (soft))
#define EARLIER(membrane, soft) (MORE(soft) + ((membrane) == LSE))
#define ROWS(membrane, soft, form) (2 + (soft) + ((membrane) == LSE || (form) == ADAPTS) + ((form) == DELAYS))
#define FORM(rule) ((rule)->adapt ? ADAPTS : (rule)->reset == SATURATE ? SATURATES : (rule)->delayed ? DELAYS : PLAIN)

typedef struct {
    REAL eps[LANES], leak[LANES], threshold[LANES], amplitude[LANES];
} NAME(Sums);

/* The working state of a block. */
typedef struct {
    NAME(State) now, grad;
    NAME(Sums) sums;
    REAL fall[LANES], share[LANES], rise[LANES]; /* of the smaller term of a log-sum-exp; of the threshold: see rise */
    REAL x[LANES], spikes[LANES], mean[LANES], odds[2][LANES], v[LANES], gathered[NAME(FIELDS)][LANES];
    NAME(Lanes) l;
    int64_t at, n, part; /* its first element in a time step; its size; its part of the work */
    int current, grad_out, out;     /* whether these are read and written in place */
    int next_current, next_grad_out; /* whether a later step can be prefetched */
} __attribute__((aligned(64))) NAME(Block);

/* The soft minimum of P and a ceiling, its derivative in P, and minus its derivative in eps. */
typedef struct {
    REAL v, below, entropy;
} NAME(Saturated);

INLINE NAME(Saturated) NAME(saturate)(const NAME(Call) *c, REAL p, REAL top, REAL eps, REAL k, const int membrane)
{
    REAL least = p > top ? top : p; /* NaN if P is */
    if (membrane == MAX)
        return (NAME(Saturated)){ least, p < top ? (REAL)1 : p == top ? (REAL)0.5 : (REAL)0, 0 };
    REAL gap = NAME(smaller)(c->edge, NAME(larger)(p - top, top - p) * k), u = NAME(exp2)(-gap);
    REAL log_weight = NAME(log2_1p)(u), large = 1 / (1 + u), small = u * large;
    return (NAME(Saturated)){ least - eps * log_weight, p < top ? large : small, log_weight + gap * small };
}

/* The exponentials of a log-sum-exp and of its soft spike. They have their own loop: together with the logarithm
 * that follows, a step would be too long for the processor to overlap it with the next lanes. */
INLINE void NAME(rise)(NAME(Block) *s, const REAL *restrict x, REAL edge, const int soft)
{
    const NAME(Lanes) l = s->l;
    SIMD for (int j = 0; j < LANES; j++) {
        REAL past = s->now.v[j] + l.log_leak[j], base = NAME(larger)(past, x[j]);
        REAL fall = NAME(larger)(-edge, (NAME(smaller)(x[j], past) - base) * l.k[j]);
        s->fall[j] = fall;
        s->share[j] = NAME(exp2)(fall);
        if (soft)
            s->rise[j] = NAME(exp2_or_inf)((l.threshold[j] - base) * l.k[j], edge);
    }
}

/* One step: write the spikes to out, or the values that the derivative needs to the trace. */
INLINE void NAME(advance)(const NAME(Call) *c, NAME(Block) *s, const REAL *restrict x, REAL *restrict out,
                          REAL *restrict trace, const int traced, const int membrane, const int soft, const int form,
                          const int curve)
{
    const NAME(Lanes) l = s->l;
    REAL *restrict v = s->now.v, *restrict b = s->now.b, *restrict last = s->now.last;
    const int adapt = form == ADAPTS, delays = form == DELAYS;
    const REAL edge = c->edge, wiped = c->wiped;
    if (membrane == LSE)
        NAME(rise)(s, x, edge, soft && !delays);
    SIMD for (int j = 0; j < LANES; j++) {
        REAL limit = l.threshold[j], after = l.after[j];
        if (adapt) {
            REAL rise = c->strength * b[j];
            limit += rise;
            after -= c->subtracted * rise;
            b[j] = c->decay * b[j] + (1 - c->decay) * last[j];
        }
        REAL base, weight = 1, p, share, entropy = limit;
        if (membrane == ADD) {
            share = v[j];
            p = base = l.leak[j] * v[j] + x[j];
        } else {
            REAL past = v[j] + l.log_leak[j];
            if (membrane == MAX) {
                p = base = NAME(largest)(past, x[j]);
                share = past > x[j] ? (REAL)1 : past == x[j] ? (REAL)0.5 : (REAL)0;
            } else {
                base = NAME(larger)(past, x[j]);
                REAL u = s->share[j];
                weight = 1 + u;
                REAL log_weight = NAME(log2_1p)(u), large = 1 / weight, small = u * large;
                p = base + l.eps[j] * log_weight;
                share = past > x[j] ? large : small;
                entropy = log_weight - s->fall[j] * small;
            }
        }
        REAL level = p; /* the membrane that fires */
        if (delays)
            level = base = p * (1 - wiped * last[j]) + after * last[j];
        REAL gate = !soft                        ? 0
                    : membrane == LSE && !delays ? weight / (weight + s->rise[j])
                                                 : NAME(gate)(edge, base, delays ? 1 : weight, limit, l.k[j], curve);
        REAL spike = soft ? NAME(soft_spike)(c, gate, l.extra[j], membrane) : NAME(hard_spike)(level, limit);
        if (traced) {
            trace[NAME(P) * LANES + j] = p;
            trace[NAME(SHARE) * LANES + j] = share;
            if (soft)
                trace[NAME(GATE) * LANES + j] = gate;
            if (membrane == LSE || adapt)
                trace[MORE(soft) * LANES + j] = entropy;
            if (delays)
                trace[EARLIER(membrane, soft) * LANES + j] = last[j];
        }
        if (adapt || delays)
            last[j] = spike;
        v[j] = delays ? level : form == SATURATES ? p : p * (1 - wiped * spike) + after * spike;
        if (!traced)
            out[j] = spike;
    }
    if (form == SATURATES) /* in its own loop, as in rise: the compiler would not vectorize a longer one */
        SIMD for (int j = 0; j < LANES; j++)
            v[j] = NAME(saturate)(c, v[j], l.after[j], l.eps[j], l.k[j], membrane).v;
}

/* The spike of the state before the first step, with which a delayed reset starts. */
INLINE void NAME(first_spike)(const NAME(Call) *c, NAME(Block) *s, const int membrane, const int soft, const int curve)
{
    const NAME(Lanes) l = s->l;
    SIMD for (int j = 0; j < LANES; j++) {
        REAL v = s->now.v[j], gate = soft ? NAME(gate)(c->edge, v, 1, l.threshold[j], l.k[j], curve) : 0;
        s->now.last[j] = soft ? NAME(soft_spike)(c, gate, l.extra[j], membrane) : NAME(hard_spike)(v, l.threshold[j]);
    }
}

/* The derivative of first_spike. */
INLINE void NAME(first_spike_backward)(const NAME(Call) *c, NAME(Block) *s, const REAL *restrict v, const int membrane,
                                       const int soft, const int curve, const int learn)
{
    const NAME(Lanes) l = s->l;
    REAL *restrict gv = s->grad.v, *restrict gl = s->grad.last;
    NAME(Sums) *restrict sums = &s->sums;
    SIMD for (int j = 0; j < LANES; j++) {
        REAL limit = l.threshold[j], gate = NAME(gate)(c->edge, v[j], 1, limit, l.k[j], curve);
        NAME(FiredBack) f = NAME(fire_backward)(c, gl[j], 0, v[j], 0, gate, limit, l.k[j], l.extra[j],
                                                l.steep[j], 0, membrane, soft, curve);
        gv[j] += f.back;
        if (learn) {
            sums->eps[j] -= f.back * (v[j] - limit) * l.k[j];
            sums->threshold[j] -= f.back;
            if (membrane == ADD)
                sums->amplitude[j] += f.fed * (gate - (REAL)0.5);
        }
    }
}

/* One step back, from the gradients of spikes and state to those of the current and of the state before. */
INLINE void NAME(backward)(const NAME(Call) *c, NAME(Block) *s, const REAL *restrict trace, const REAL *restrict gs,
                          REAL *restrict gx, const int membrane, const int soft, const int form, const int curve,
                          const int learn)
{
    const NAME(Lanes) l = s->l;
    REAL *restrict gv = s->grad.v, *restrict gb = s->grad.b, *restrict gl = s->grad.last;
    NAME(Sums) *restrict sums = &s->sums;
    const int adapt = form == ADAPTS, delays = form == DELAYS;
    SIMD for (int j = 0; j < LANES; j++) {
        REAL p = trace[NAME(P) * LANES + j], share = trace[NAME(SHARE) * LANES + j];
        REAL limit = adapt ? trace[MORE(soft) * LANES + j] : l.threshold[j];
        REAL after = adapt ? l.after[j] - c->subtracted * (limit - l.threshold[j]) : l.after[j];
        REAL earlier = delays ? trace[EARLIER(membrane, soft) * LANES + j] : 0, kept = 1 - c->wiped * earlier;
        REAL level = delays ? p * kept + after * earlier : p;
        REAL gate = soft ? trace[NAME(GATE) * LANES + j] : NAME(gate)(c->edge, level, 1, limit, l.k[j], curve);
        NAME(FiredBack) f =
            NAME(fire_backward)(c, adapt || delays ? gs[j] + gl[j] : gs[j], delays ? 0 : gv[j], level, delays ? 0 : p,
                                gate, limit, l.k[j], l.extra[j], l.steep[j], form == SATURATES ? 0 : after, membrane,
                                soft, curve);
        NAME(Saturated) reset = { 0, 1, 0 };
        if (form == SATURATES)
            reset = NAME(saturate)(c, p, after, l.eps[j], l.k[j], membrane);
        REAL g = f.g * reset.below + f.back, gv_after = gv[j], to_limit = f.back + c->subtracted * gv[j] * f.spike;
        if (delays) {
            REAL whole = gv[j] + f.back; /* for the membrane after reset */
            g = whole * kept;
            gl[j] = c->rule->detach ? 0 : whole * (after - c->wiped * p);
            to_limit = f.back + c->subtracted * whole * earlier;
        }
        if (adapt) {
            gl[j] = (1 - c->decay) * gb[j];
            gb[j] = c->decay * gb[j] - c->strength * to_limit;
        }
        REAL past = g * (membrane == ADD ? l.leak[j] : share);
        gx[j] = membrane == ADD ? g : g - past;
        gv[j] = past;
        if (learn) {
            REAL to_eps = -f.back * (level - limit) * l.k[j] - gv_after * reset.entropy;
            sums->eps[j] += membrane == LSE ? to_eps + g * trace[MORE(soft) * LANES + j] : to_eps;
            sums->leak[j] += membrane == ADD ? g * share : past;
            sums->threshold[j] -= to_limit;
            if (form == SATURATES)
                sums->amplitude[j] += gv_after * (1 - reset.below);
            else if (membrane == ADD)
                sums->amplitude[j] += f.fed * (gate - (REAL)0.5);
        }
    }
}

/* Prefetch n lanes of the block at another step t of a tensor; beyond the first and the last step, those of the next
 * block. */
INLINE void NAME(expect_step)(const NAME(Call) *c, const NAME(Block) *s, const void *x, int64_t by_time, int64_t t,
                              int64_t first, int64_t n, const int write)
{
    const int64_t time = c->rule->time, next = t < 0 ? t + time : t < time ? t : t - time;
    NAME(expect)(c, NAME(element)(c, x, next * by_time + s->at + first + (next == t ? 0 : LANES)), n, write);
}

/* Integrate from step `from` to `to`, writing either a trace, or the spikes or their mean. */
INLINE void NAME(advance_steps)(const NAME(Call) *c, NAME(Block) *s, int64_t from, int64_t to, REAL *trace,
                                const int traced, const int out, const int membrane, const int soft, const int form,
                                const int curve)
{
    const Rule *rule = c->rule;
    if (form == DELAYS && from == 0) {
        memcpy(s->v, s->now.v, sizeof(s->v)); /* for the derivative */
        NAME(first_spike)(c, s, membrane, soft, curve);
    }
    for (int64_t t = from; t < to; t++) {
        const REAL *x = NAME(fetch)(c, c->t->current, rule->current, t, s->at, s->n, s->current, s->x);
        void *to_out = out && !rule->rate ? (void *)NAME(element)(c, c->t->out, t * c->row + s->at) : 0;
        REAL *spikes = to_out && s->out ? to_out : s->spikes;
        if (s->next_current)
            NAME(expect_step)(c, s, c->t->current, rule->current.time, t + 3, 0, LANES, 0);
        if (to_out)
            NAME(expect_step)(c, s, c->t->out, c->row, t + 3, 0, LANES, 1);
        NAME(advance)(c, s, x, spikes, trace + (t - from) * ROWS(membrane, soft, form) * LANES * traced, traced,
                      membrane, soft, form, curve);
        if (to_out && !s->out)
            NAME(narrow)(rule->type, to_out, spikes, s->n);
        for (int j = 0; out && rule->rate && j < LANES; j++)
            s->mean[j] += spikes[j];
    }
}

INLINE void NAME(backward_steps)(const NAME(Call) *c, NAME(Block) *s, int64_t from, int64_t to, const REAL *trace,
                                const int membrane, const int soft, const int form, const int curve, const int learn)
{
    const Rule *rule = c->rule;
    const int given = c->t->g_out && !rule->rate;
    for (int64_t t = to - 1; t >= from; t--) {
        const REAL *gs =
            given ? NAME(fetch)(c, c->t->g_out, rule->grad, t, s->at, s->n, s->grad_out, s->x) : s->mean;
        void *to_gx = (void *)NAME(element)(c, c->t->g_current, t * c->row + s->at);
        REAL *gx = s->out ? to_gx : s->spikes;
        NAME(expect_step)(c, s, c->t->g_current, c->row, t - 3, 0, LANES, 1);
        if (given && s->next_grad_out)
            NAME(expect_step)(c, s, c->t->g_out, rule->grad.time, t - 3, 0, LANES, 0);
        NAME(backward)(c, s, trace + (t - from) * ROWS(membrane, soft, form) * LANES, gs, gx, membrane,
                      soft, form, curve, learn);
        if (!s->out)
            NAME(narrow)(rule->type, to_gx, gx, s->n);
    }
    if (form == DELAYS && from == 0)
        NAME(first_spike_backward)(c, s, s->v, membrane, soft, curve, learn);
}

/* Each kind of neuron has its own functions, whose loops have no branches. */
#define KIND(membrane, soft, form, curve) ((((membrane) * 2 + (soft)) * 4 + (form)) * 4 + (curve))
#define NAMED(f, membrane, soft, form, curve) NAME(f##_##membrane##_##soft##_##form##_##curve)
#define CURVES(AS, soft, form) AS(ADD, soft, form, SIGMOID) AS(ADD, soft, form, ATAN) AS(ADD, soft, form, TRIANGLE)
#define ADDS(AS, form) CURVES(AS, 0, form) CURVES(AS, 1, form) AS(ADD, 0, form, SUPERSPIKE)
#define ULTRA(AS, form) AS(LSE, 0, form, SIGMOID) AS(LSE, 1, form, SIGMOID) AS(MAX, 0, form, SIGMOID)
#define KINDS(AS)                                                                                                      \
    ULTRA(AS, PLAIN) ULTRA(AS, SATURATES) ULTRA(AS, DELAYS) ADDS(AS, PLAIN) ADDS(AS, ADAPTS) ADDS(AS, DELAYS)          \
    AS(ADD, 0, SATURATES, SIGMOID) AS(ADD, 1, SATURATES, SIGMOID)

#define AS(membrane, soft, form, curve)                                                                                \
    APART NAMED(trace, membrane, soft, form, curve)(const NAME(Call) *c, NAME(Block) *s, int64_t from, int64_t to,     \
                                                    REAL *trace)                                                       \
    {                                                                                                                  \
        NAME(advance_steps)(c, s, from, to, trace, 1, 0, membrane, soft, form, curve);                                 \
    }                                                                                                                  \
    APART NAMED(go, membrane, soft, form, curve)(const NAME(Call) *c, NAME(Block) *s, int64_t from, int64_t to,        \
                                                 const int out)                                                        \
    {                                                                                                                  \
        NAME(advance_steps)(c, s, from, to, 0, 0, out, membrane, soft, form, curve);                                   \
    }                                                                                                                  \
    APART NAMED(learn, membrane, soft, form, curve)(const NAME(Call) *c, NAME(Block) *s, int64_t from, int64_t to,     \
                                                    const REAL *trace)                                                 \
    {                                                                                                                  \
        NAME(backward_steps)(c, s, from, to, trace, membrane, soft, form, curve, 1);                                    \
    }                                                                                                                  \
    APART NAMED(back, membrane, soft, form, curve)(const NAME(Call) *c, NAME(Block) *s, int64_t from, int64_t to,      \
                                                   const REAL *trace)                                                  \
    {                                                                                                                  \
        NAME(backward_steps)(c, s, from, to, trace, membrane, soft, form, curve, 0);                                    \
    }
KINDS(AS)
#undef AS

static void NAME(advance_block)(const NAME(Call) *c, NAME(Block) *s, int64_t from, int64_t to, REAL *trace,
                                const int out)
{
#define AS(membrane, soft, form, curve)                                                                                \
    case KIND(membrane, soft, form, curve):                                                                            \
        trace ? NAMED(trace, membrane, soft, form, curve)(c, s, from, to, trace)                                       \
              : NAMED(go, membrane, soft, form, curve)(c, s, from, to, out);                                           \
        break;
    switch (KIND(c->rule->membrane, c->rule->soft, FORM(c->rule), c->rule->curve)) { KINDS(AS) }
#undef AS
}

static void NAME(backward_block)(const NAME(Call) *c, NAME(Block) *s, int64_t from, int64_t to, const REAL *trace)
{
#define AS(membrane, soft, form, curve)                                                                                \
    case KIND(membrane, soft, form, curve):                                                                            \
        c->sums ? NAMED(learn, membrane, soft, form, curve)(c, s, from, to, trace)                                     \
                : NAMED(back, membrane, soft, form, curve)(c, s, from, to, trace);                                     \
        break;
    switch (KIND(c->rule->membrane, c->rule->soft, FORM(c->rule), c->rule->curve)) { KINDS(AS) }
#undef AS
}
#undef KINDS
#undef ULTRA
#undef ADDS
#undef CURVES
#undef NAMED
#undef KIND

/* Find the constants of a block: in place, or gathered if the block extends past the end of the features. */
static NAME(Lanes) NAME(lanes_of)(const NAME(Call) *c, NAME(Block) *s)
{
    NAME(Lanes) l;
    const REAL **fields = (const REAL **)&l;
    const int64_t lane = s->at % c->width;
    for (int i = 0; i < NAME(FIELDS); i++) {
        fields[i] = c->constants + i * c->width + lane;
        if (lane + LANES > c->width) {
            for (int64_t j = 0; j < LANES; j++)
                s->gathered[i][j] = c->constants[i * c->width + (lane + j) % c->width];
            fields[i] = s->gathered[i];
        }
    }
    return l;
}

/* Copy a state from a tensor (NULL: start at rest) or to it (NULL: not wanted). */
static void NAME(load_state)(const NAME(Call) *c, const NAME(Block) *s, NAME(State) *to, const REAL *tensor)
{
    REAL *parts[] = { to->v, to->b, to->last };
    memset(to, 0, sizeof(*to));
    for (int i = 0; tensor && i < (c->rule->adapt ? 3 : 1); i++)
        memcpy(parts[i], tensor + i * c->row + s->at, s->n * sizeof(REAL));
}

static void NAME(store_state)(const NAME(Call) *c, const NAME(Block) *s, const NAME(State) *from, REAL *tensor)
{
    const REAL *parts[] = { from->v, from->b, from->last };
    for (int i = 0; tensor && i < (c->rule->adapt ? 3 : 1); i++)
        memcpy(tensor + i * c->row + s->at, parts[i], s->n * sizeof(REAL));
}

static void NAME(collect_block)(const NAME(Call) *c, NAME(Block) *s)
{
    const REAL *sums[] = { s->sums.eps, s->sums.leak, s->sums.threshold, s->sums.amplitude };
    SIMD for (int64_t j = 0; j < s->n; j++)
        s->sums.eps[j] *= (REAL)0.69314718055994531;
    if (c->rule->membrane != ADD)
        SIMD for (int64_t j = 0; j < s->n; j++)
            s->sums.leak[j] /= s->l.leak[j];
    for (int i = 0; i < CONSTANTS; i++)
        for (int64_t done = 0; done < s->n;) {
            const int64_t lane = (s->at + done) % c->width, room = c->width - lane;
            const int64_t n = s->n - done < room ? s->n - done : room;
            NAME(collect)(c, s->part, i, lane, sums[i] + done, n);
            done += n;
        }
}

#include "spikes.h"

/* The number of steps whose trace fits into a large cache. */
static int64_t NAME(chunk)(const NAME(Call) *c)
{
    const Rule *rule = c->rule;
    const int64_t most = (1 << 20) / (ROWS(rule->membrane, rule->soft, FORM(rule)) * LANES * (int64_t)sizeof(REAL));
    return rule->time < most ? rule->time : most;
}

static int64_t NAME(block_room)(const NAME(Call) *c)
{
    const Rule *rule = c->rule;
    const int64_t chunk = NAME(chunk)(c), notes = rule->time / chunk * sizeof(NAME(State)) / sizeof(REAL);
    const int64_t trace = chunk * ROWS(rule->membrane, rule->soft, FORM(rule)) * LANES;
    return sizeof(NAME(Block)) / sizeof(REAL) + (c->t->g_current ? notes + trace : 0);
}

/* Integrate the steps of a block again in chunks, from last to first, and go back over each chunk. */
static void NAME(backward_in_chunks)(const NAME(Call) *c, NAME(Block) *s, NAME(State) *notes)
{
    const int64_t time = c->rule->time, chunk = NAME(chunk)(c), whole = (time - 1) / chunk;
    REAL *trace = (REAL *)(notes + whole);
    for (int64_t i = 0; i < whole; i++) {
        notes[i] = s->now;
        NAME(advance_block)(c, s, i * chunk, (i + 1) * chunk, 0, 0);
    }
    for (int64_t i = whole; i >= 0; i--) {
        const int64_t to = (i + 1) * chunk < time ? (i + 1) * chunk : time;
        NAME(advance_block)(c, s, i * chunk, to, trace, 0);
        NAME(backward_block)(c, s, i * chunk, to, trace);
        if (i)
            s->now = notes[i - 1];
    }
}

static void NAME(run_block)(const NAME(Call) *c, int64_t part, int64_t item, REAL *room)
{
    const int64_t time = c->rule->time;
    NAME(Block) *s = (NAME(Block) *)room;
    s->part = part;
    s->at = item * LANES;
    s->n = c->row - s->at < LANES ? c->row - s->at : LANES;
    s->l = NAME(lanes_of)(c, s);
    s->out = s->n == LANES && c->rule->type == SAME;
    s->next_current = NAME(dense)(c, c->rule->current);
    s->next_grad_out = NAME(dense)(c, c->rule->grad);
    s->current = s->out && s->next_current;
    s->grad_out = s->out && s->next_grad_out;
    NAME(load_state)(c, s, &s->now, c->t->state);
    memset(s->mean, 0, sizeof(s->mean));
    memset(s->x, 0, sizeof(s->x));
    if (!c->t->g_current) {
        NAME(advance_block)(c, s, 0, time, 0, 1);
        if (c->rule->rate) {
            for (int64_t j = 0; j < s->n; j++)
                s->mean[j] /= (REAL)time;
            NAME(narrow)(c->rule->type, (void *)NAME(element)(c, c->t->out, s->at), s->mean, s->n);
        }
        NAME(store_state)(c, s, &s->now, c->t->last);
        return;
    }
    if (c->rule->rate && c->t->g_out) {
        const REAL *gs = NAME(fetch)(c, c->t->g_out, c->rule->grad, 0, s->at, s->n, 0, s->mean);
        for (int64_t j = 0; j < s->n; j++)
            s->mean[j] = gs[j] / (REAL)time;
    }
    NAME(load_state)(c, s, &s->grad, c->t->g_last);
    memset(&s->sums, 0, sizeof(s->sums));
    if (c->t->spikes && s->current && s->grad_out)
        NAME(backward_from_spikes)(c, s);
    else
        NAME(backward_in_chunks)(c, s, (NAME(State) *)(s + 1));
    NAME(store_state)(c, s, &s->grad, c->t->g_state);
    if (c->sums)
        NAME(collect_block)(c, s);
}
#undef MORE
#undef EARLIER
#undef ROWS
#undef FORM
