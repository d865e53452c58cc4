/* The recurrence of contract.py and its derivative, for the CPU, in float and double.
 *
 * Work is cut into segments: the neurons of one sample on one ring, or SEGMENT neurons without neighbours. A segment
 * runs over all time steps before the next begins, so that its membrane stays in the cache. The backward pass first
 * notes the state at the start of every chunk of steps; then, from the last chunk to the first, it integrates the chunk
 * once more, with a trace of what the derivative needs, and walks it back. Its memory does not grow with the layer.
 *
 * The file includes itself, once for each type.
 */
#ifndef REAL

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#define THREAD omp_get_thread_num()
#else
#define THREAD 0
#endif

enum { LSE, MAX, ADD };                /* membrane */
enum { NO_LEAK, FACTOR, SHIFT };       /* leak_form */
enum { SEGMENT = 256 };                /* neurons without neighbours that are integrated together */

typedef struct {
    int64_t time, batch, features, ring;
    int32_t membrane, leak_form, soft, through_reset, rate, centered, adapt, adapt_late, threads, unused;
    double v_reset, adapt_strength, adapt_decay;
} Rule;

static inline double exp_double(double x) { return exp(x); }
static inline double log_double(double x) { return log(x); }

/* exp(x) within 1e-7: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]; the range is cut where float ends. */
static inline float exp_float(float x)
{
    x = x < -87.0f ? -87.0f : x;
    x = x > 87.0f ? 87.0f : x;
    float n = rintf(x * 1.44269504f);
    float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    float q = 0.001392625083f;
    q = q * r + 0.008363232884f;
    q = q * r + 0.04166655421f;
    q = q * r + 0.1666657667f;
    q = q * r + 0.5f;
    union { float f; int32_t i; } scale = { .i = ((int32_t)n + 127) << 23 };
    return (1.0f + (r + r * r * q)) * scale.f;
}

/* log(x) within 1e-7 for 1 <= x <= 3, all that a log-sum-exp of three terms can ask for. */
static inline float log_float(float x)
{
    int high = x > 1.5f;
    float w = (high ? 0.5f * x : x) - 1.0f;
    float q = -0.04361590959f;
    q = q * w + 0.1032947149f;
    q = q * w - 0.1316152309f;
    q = q * w + 0.14504278f;
    q = q * w - 0.1665003163f;
    q = q * w + 0.1998904276f;
    q = q * w - 0.2499991694f;
    q = q * w + 0.3333350119f;
    q = q * w - 0.5000000267f;
    q = q * w + 0.9999999959f;
    return (high ? 0.693147181f : 0.0f) + w * q;
}

#define SIMD _Pragma("omp simd")
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(f) JOIN(f, REAL)

#define REAL float
#include __FILE__
#undef REAL
#define REAL double
#include __FILE__
#undef REAL

#else


/* Constants of a segment, one a neuron. */
typedef struct {
    const REAL *eps, *leak, *threshold, *amplitude;
    const REAL *k, *log_leak; /* 1 / eps, log(leak) */
} NAME(Constants);

/* A segment of n neurons: its state and the room for one step. */
typedef struct {
    int64_t n;
    NAME(Constants) c;
    REAL *v, *b, *last; /* membrane; AdaLIF's adaptation and last spike */
    REAL *p, *limit, *spike; /* potential before reset, threshold now */
    REAL *left, *right; /* n + 2 each: a ring with one neighbour more at both ends */
} NAME(Segment);

/* What the derivative of one step needs. On a ring, share and other belong to the left and the right neighbour. */
typedef struct {
    REAL *v, *p, *limit, *gate, *share, *other, *entropy;
} NAME(Trace);

enum { NAME(TRACE) = sizeof(NAME(Trace)) / sizeof(REAL *) };

static inline void NAME(close_ring)(REAL *w, int64_t n)
{
    w[-1] = w[n - 1];
    w[n] = w[0];
}

/* Ask for n values that the next step needs: steps lie a whole layer apart, too far for the processor to foresee. */
static inline void NAME(expect)(const REAL *x, int64_t n)
{
    for (int64_t j = 0; j < n; j += 64 / (int64_t)sizeof(REAL))
        __builtin_prefetch(x + j);
}

#define INLINE static inline __attribute__((always_inline)) void

/* P of one step; with a trace, also the shares of the terms in the log-sum-exp and its entropy, dP/deps. */
INLINE NAME(potential_alone)(NAME(Segment) *s, const REAL *restrict x, NAME(Trace) *trace, const int membrane)
{
    REAL *restrict p = s->p, *restrict share = trace ? trace->share : 0, *restrict entropy = trace ? trace->entropy : 0;
    const REAL *restrict v = s->v, *restrict eps = s->c.eps, *restrict k = s->c.k;
    const REAL *restrict leak = s->c.leak, *restrict log_leak = s->c.log_leak;
    SIMD for (int64_t j = 0; j < s->n; j++) {
        if (membrane == ADD) {
            p[j] = leak[j] * v[j] + x[j];
            continue;
        }
        REAL past = v[j] + log_leak[j];
        REAL top = past > x[j] ? past : x[j], gap = (past > x[j] ? past - x[j] : x[j] - past) * k[j];
        if (membrane == MAX) {
            p[j] = top;
            if (trace)
                share[j] = past > x[j] ? (REAL)1 : past == x[j] ? (REAL)0.5 : (REAL)0;
        } else {
            REAL u = NAME(exp)(-gap), l = NAME(log)(1 + u);
            p[j] = top + eps[j] * l;
            if (trace) {
                REAL large = 1 / (1 + u), small = u * large;
                share[j] = past > x[j] ? large : small;
                entropy[j] = l + gap * small;
            }
        }
    }
}

INLINE NAME(potential_on_ring)(const Rule *rule, NAME(Segment) *s, const REAL *restrict x, NAME(Trace) *trace,
                               const int membrane)
{
    const int64_t n = s->n;
    REAL *restrict p = s->p, *restrict w = s->left + 1;
    REAL *restrict share = trace ? trace->share : 0, *restrict other = trace ? trace->other : 0;
    REAL *restrict entropy = trace ? trace->entropy : 0;
    const REAL *restrict v = s->v, *restrict eps = s->c.eps, *restrict k = s->c.k;
    const REAL *restrict leak = s->c.leak, *restrict log_leak = s->c.log_leak;
    const REAL shift = rule->centered ? (REAL)1.0986122886681098 : (REAL)0;
    SIMD for (int64_t j = 0; j < n; j++)
        w[j] = rule->leak_form == FACTOR ? v[j] * leak[j] : rule->leak_form == SHIFT ? v[j] + log_leak[j] : v[j];
    NAME(close_ring)(w, n);
    SIMD for (int64_t j = 0; j < n; j++) {
        REAL l = w[j - 1], m = w[j], r = w[j + 1];
        REAL top = l > m ? l : m;
        top = top > r ? top : r;
        if (membrane == MAX) {
            p[j] = top + x[j];
            if (trace) {
                REAL ties = (REAL)(l == top) + (REAL)(m == top) + (REAL)(r == top);
                share[j] = (REAL)(l == top) / ties;
                other[j] = (REAL)(r == top) / ties;
            }
        } else {
            REAL gl = (top - l) * k[j], gm = (top - m) * k[j], gr = (top - r) * k[j];
            REAL el = NAME(exp)(-gl), em = NAME(exp)(-gm), er = NAME(exp)(-gr);
            REAL sum = el + em + er, log_sum = NAME(log)(sum);
            p[j] = top + eps[j] * (log_sum - shift) + x[j];
            if (trace) {
                REAL whole = 1 / sum;
                share[j] = el * whole;
                other[j] = er * whole;
                entropy[j] = log_sum - shift + (el * gl + em * gm + er * gr) * whole;
            }
        }
    }
}

/* Spike and reset. The spikes go to out, or in rate mode are added to it; out may be NULL. */
INLINE NAME(fire)(const Rule *rule, NAME(Segment) *s, REAL *out, NAME(Trace) *trace, const int soft)
{
    const int64_t n = s->n;
    const REAL reset = (REAL)rule->v_reset, strength = (REAL)rule->adapt_strength, decay = (REAL)rule->adapt_decay;
    REAL *restrict v = s->v, *restrict gates = trace ? trace->gate : 0;
    REAL *restrict spikes = out && !rule->rate ? out : s->spike;
    const REAL *restrict p = s->p, *restrict k = s->c.k, *restrict amplitude = s->c.amplitude;
    const REAL *restrict limit = rule->adapt ? s->limit : s->c.threshold;
    for (int64_t j = 0; rule->adapt && j < n; j++) {
        REAL adapted = decay * s->b[j] + (1 - decay) * s->last[j];
        s->limit[j] = s->c.threshold[j] + strength * (rule->adapt_late ? s->b[j] : adapted);
        s->b[j] = adapted;
    }
    SIMD for (int64_t j = 0; j < n; j++) {
        REAL gate = 0;
        if (soft || trace)
            gate = 1 / (1 + NAME(exp)((limit[j] - p[j]) * k[j]));
        REAL spike = soft ? amplitude[j] * gate + (1 - amplitude[j]) / 2 : p[j] > limit[j] ? (REAL)1 : (REAL)0;
        if (trace)
            gates[j] = gate;
        v[j] = p[j] * (1 - spike) + reset * spike;
        spikes[j] = spike;
    }
    if (rule->adapt)
        memcpy(s->last, spikes, n * sizeof(REAL));
    if (out && rule->rate)
        SIMD for (int64_t j = 0; j < n; j++)
            out[j] += spikes[j];
    if (trace) {
        memcpy(trace->p, p, n * sizeof(REAL));
        memcpy(trace->limit, limit, n * sizeof(REAL));
    }
}

INLINE NAME(step_as)(const Rule *rule, NAME(Segment) *s, const REAL *x, REAL *out, NAME(Trace) *trace,
                     const int membrane, const int soft)
{
    if (trace)
        memcpy(trace->v, s->v, s->n * sizeof(REAL));
    if (rule->ring)
        NAME(potential_on_ring)(rule, s, x, trace, membrane);
    else
        NAME(potential_alone)(s, x, trace, membrane);
    NAME(fire)(rule, s, out, trace, soft);
}

/* One step, compiled for each membrane, kind of spike, and with and without a trace. */
static void NAME(step)(const Rule *rule, NAME(Segment) *s, const REAL *x, REAL *out, NAME(Trace) *trace)
{
#define AS(membrane)                                                                                                   \
    case membrane:                                                                                                     \
        if (trace)                                                                                                     \
            rule->soft ? NAME(step_as)(rule, s, x, out, trace, membrane, 1)                                            \
                       : NAME(step_as)(rule, s, x, out, trace, membrane, 0);                                           \
        else                                                                                                           \
            rule->soft ? NAME(step_as)(rule, s, x, out, 0, membrane, 1)                                                \
                       : NAME(step_as)(rule, s, x, out, 0, membrane, 0);                                               \
        break;
    switch (rule->membrane) {
        AS(LSE)
        AS(MAX)
        AS(ADD)
    }
#undef AS
}

/* Gradients for a segment: for its state, for P, and the sums for the four constants. */
typedef struct {
    REAL *v, *b, *last, *p, *pull; /* pull: what the spike passes on to its threshold */
    REAL *eps, *leak, *threshold, *amplitude;
} NAME(Gradient);

/* Back over spike and reset, from g->v and the gradient of the spike to g->p. */
INLINE NAME(unfire_as)(const Rule *rule, const NAME(Segment) *s, const NAME(Trace) *t, NAME(Gradient) *g, const int soft)
{
    const REAL reset = (REAL)rule->v_reset, through = (REAL)rule->through_reset;
    const REAL *restrict p = t->p, *restrict limit = t->limit, *restrict gates = t->gate, *restrict k = s->c.k;
    const REAL *restrict amplitude = s->c.amplitude, *restrict gv = g->v;
    REAL *restrict gp = g->p, *restrict pull = g->pull;
    REAL *restrict eps = g->eps, *restrict threshold = g->threshold, *restrict height = g->amplitude;
    SIMD for (int64_t j = 0; j < s->n; j++) {
        REAL gate = gates[j], above = p[j] - limit[j];
        REAL spike = soft ? amplitude[j] * gate + (1 - amplitude[j]) / 2 : (REAL)(above > 0);
        REAL fed = gp[j] + through * gv[j] * (reset - p[j]);
        REAL back = fed * amplitude[j] * gate * (1 - gate) * k[j];
        pull[j] = back;
        threshold[j] -= back;
        eps[j] -= back * above * k[j];
        height[j] += fed * (gate - (REAL)0.5);
        gp[j] = back + gv[j] * (1 - spike);
    }
}

static void NAME(unfire)(const Rule *rule, const NAME(Segment) *s, const NAME(Trace) *t, const REAL *out,
                         NAME(Gradient) *g)
{
    const REAL strength = (REAL)rule->adapt_strength, decay = (REAL)rule->adapt_decay;
    const REAL scale = rule->rate ? 1 / (REAL)rule->time : 1;
    SIMD for (int64_t j = 0; j < s->n; j++)
        g->p[j] = (out ? scale * out[j] : 0) + (rule->adapt ? g->last[j] : 0);
    rule->soft ? NAME(unfire_as)(rule, s, t, g, 1) : NAME(unfire_as)(rule, s, t, g, 0);
    for (int64_t j = 0; rule->adapt && j < s->n; j++) {
        REAL pull = -strength * g->pull[j];
        REAL adapted = rule->adapt_late ? g->b[j] : g->b[j] + pull;
        g->b[j] = decay * adapted + (rule->adapt_late ? pull : 0);
        g->last[j] = (1 - decay) * adapted;
    }
}

/* Back over the membrane, from g->p to the gradients of the current and of the membrane before the step. */
static void NAME(unintegrate)(const Rule *rule, NAME(Segment) *s, const NAME(Trace) *t, REAL *restrict gx,
                              NAME(Gradient) *g)
{
    const int64_t n = s->n;
    const REAL *restrict gp = g->p, *restrict v = t->v, *restrict share = t->share, *restrict other = t->other;
    const REAL *restrict leaks = s->c.leak, *restrict entropy = t->entropy;
    REAL *restrict gv = g->v, *restrict leak = g->leak, *restrict eps = g->eps;
    if (rule->membrane == LSE)
        SIMD for (int64_t j = 0; j < n; j++)
            eps[j] += gp[j] * entropy[j];
    if (rule->membrane == ADD) {
        SIMD for (int64_t j = 0; j < n; j++) {
            leak[j] += gp[j] * v[j];
            gx[j] = gp[j];
            gv[j] = gp[j] * leaks[j];
        }
    } else if (!rule->ring) {
        SIMD for (int64_t j = 0; j < n; j++) {
            REAL past = gp[j] * share[j];
            leak[j] += past / leaks[j];
            gx[j] = gp[j] - past;
            gv[j] = past;
        }
    } else {
        REAL *restrict left = s->left + 1, *restrict right = s->right + 1;
        SIMD for (int64_t j = 0; j < n; j++) {
            left[j] = gp[j] * share[j];
            right[j] = gp[j] * other[j];
            gx[j] = gp[j];
        }
        NAME(close_ring)(left, n);
        NAME(close_ring)(right, n);
        SIMD for (int64_t j = 0; j < n; j++) {
            REAL back = left[j + 1] + gp[j] * (1 - share[j] - other[j]) + right[j - 1];
            if (rule->leak_form == FACTOR)
                leak[j] += back * v[j];
            else if (rule->leak_form == SHIFT)
                leak[j] += back / leaks[j];
            gv[j] = rule->leak_form == FACTOR ? back * leaks[j] : back;
        }
    }
}

/* How a layer is cut: segments a sample, neurons a segment, steps a chunk, room for one thread. */
typedef struct {
    int64_t segments, width, chunk, chunks, states, room;
} NAME(Plan);

static NAME(Plan) NAME(plan)(const Rule *rule, int backward)
{
    NAME(Plan) plan = { .width = rule->ring ? rule->ring : SEGMENT, .states = rule->adapt ? 3 : 1 };
    plan.segments = (rule->features + plan.width - 1) / plan.width;
    plan.chunk = 32768 / plan.width; /* a trace that stays in the second-level cache */
    plan.chunk = plan.chunk > 32 ? 32 : plan.chunk;
    while (plan.chunk * plan.chunk * NAME(TRACE) < rule->time)
        plan.chunk++; /* but no more notes than trace */
    plan.chunk = plan.chunk > rule->time ? rule->time : plan.chunk;
    plan.chunks = (rule->time + plan.chunk - 1) / plan.chunk;
    int64_t rows = plan.states + 5;
    if (backward)
        rows += 5 + NAME(TRACE) * plan.chunk + plan.states * plan.chunks;
    plan.room = rows * (plan.width + 2);
    return plan;
}

/* Take n values from the room. */
static REAL *NAME(take)(REAL **room, int64_t n)
{
    REAL *start = *room;
    *room += n;
    return start;
}

static NAME(Segment) NAME(open)(const Rule *rule, const NAME(Plan) *plan, const NAME(Constants) *c, const REAL *state,
                                int64_t item, REAL **room)
{
    const int64_t f = item % plan->segments * plan->width, left = rule->features - f;
    const int64_t n = left < plan->width ? left : plan->width;
    NAME(Segment) s = { .n = n, .c = { c->eps + f, c->leak + f, c->threshold + f, c->amplitude + f, c->k + f,
                                       c->log_leak + f } };
    REAL **parts[] = { &s.v, &s.b, &s.last };
    for (int i = 0; i < plan->states; i++) {
        *parts[i] = NAME(take)(room, n);
        if (state)
            memcpy(*parts[i], state + (i * rule->batch + item / plan->segments) * rule->features + f, n * sizeof(REAL));
        else
            memset(*parts[i], 0, n * sizeof(REAL));
    }
    s.p = NAME(take)(room, n);
    s.limit = NAME(take)(room, n);
    s.spike = NAME(take)(room, n);
    s.left = NAME(take)(room, n + 2);
    s.right = NAME(take)(room, n + 2);
    return s;
}

/* Copy the state of a segment out to notes, or back. */
static void NAME(note)(NAME(Segment) *s, int64_t states, REAL *notes, int restore)
{
    REAL *parts[] = { s->v, s->b, s->last };
    for (int i = 0; i < states; i++)
        memcpy(restore ? parts[i] : notes + i * s->n, restore ? notes + i * s->n : parts[i], s->n * sizeof(REAL));
}

static void NAME(forward_item)(const Rule *rule, const NAME(Plan) *plan, const NAME(Constants) *c, const REAL *current,
                               const REAL *state, REAL *out, REAL *last, int64_t item, REAL *room)
{
    const int64_t at = item / plan->segments * rule->features + item % plan->segments * plan->width;
    const int64_t row = rule->batch * rule->features;
    NAME(Segment) s = NAME(open)(rule, plan, c, state, item, &room);
    if (rule->rate)
        memset(out + at, 0, s.n * sizeof(REAL));
    for (int64_t t = 0; t < rule->time; t++) {
        NAME(expect)(current + (t + 1 < rule->time ? t + 1 : t) * row + at, s.n);
        NAME(step)(rule, &s, current + t * row + at, out + (rule->rate ? 0 : t * row) + at, 0);
    }
    for (int64_t j = 0; rule->rate && j < s.n; j++)
        out[at + j] /= (REAL)rule->time;
    REAL *parts[] = { s.v, s.b, s.last };
    for (int i = 0; i < plan->states; i++)
        memcpy(last + i * row + at, parts[i], s.n * sizeof(REAL));
}

static void NAME(backward_item)(const Rule *rule, const NAME(Plan) *plan, const NAME(Constants) *c, const REAL *g_out,
                                const REAL *g_last, const REAL *current, const REAL *state, REAL *g_current,
                                REAL *g_state, REAL *sums, int64_t item, REAL *room)
{
    const int64_t f = item % plan->segments * plan->width, at = item / plan->segments * rule->features + f;
    const int64_t row = rule->batch * rule->features;
    NAME(Segment) s = NAME(open)(rule, plan, c, state, item, &room);
    const int64_t plane = rule->threads * rule->features;
    sums += f;
    NAME(Gradient) g = { .eps = sums, .leak = sums + plane, .threshold = sums + 2 * plane, .amplitude = sums + 3 * plane };
    REAL **parts[] = { &g.v, &g.b, &g.last };
    for (int i = 0; i < plan->states; i++) {
        *parts[i] = NAME(take)(&room, s.n);
        if (g_last)
            memcpy(*parts[i], g_last + i * row + at, s.n * sizeof(REAL));
        else
            memset(*parts[i], 0, s.n * sizeof(REAL));
    }
    g.p = NAME(take)(&room, s.n);
    g.pull = NAME(take)(&room, s.n);
    REAL *notes = NAME(take)(&room, plan->chunks * plan->states * s.n);
    for (int64_t t = 0; t < (plan->chunks - 1) * plan->chunk; t++) {
        if (t % plan->chunk == 0)
            NAME(note)(&s, plan->states, notes + t / plan->chunk * plan->states * s.n, 0);
        NAME(step)(rule, &s, current + t * row + at, 0, 0);
    }
    NAME(note)(&s, plan->states, notes + (plan->chunks - 1) * plan->states * s.n, 0);
    for (int64_t i = plan->chunks - 1; i >= 0; i--) {
        const int64_t from = i * plan->chunk, to = from + plan->chunk < rule->time ? from + plan->chunk : rule->time;
        NAME(Trace) trace[to - from];
        REAL *rest = room;
        NAME(note)(&s, plan->states, notes + i * plan->states * s.n, 1);
        for (int64_t t = from; t < to; t++) {
            REAL **fields = (REAL **)&trace[t - from];
            for (int j = 0; j < NAME(TRACE); j++)
                fields[j] = NAME(take)(&rest, s.n);
            NAME(expect)(current + (t + 1 < rule->time ? t + 1 : t) * row + at, s.n);
            NAME(step)(rule, &s, current + t * row + at, 0, &trace[t - from]);
        }
        for (int64_t t = to - 1; t >= from; t--) {
            const REAL *spike = !g_out ? 0 : g_out + (rule->rate ? 0 : t * row) + at;
            if (spike && !rule->rate && t)
                NAME(expect)(spike - row, s.n);
            NAME(unfire)(rule, &s, &trace[t - from], spike, &g);
            NAME(unintegrate)(rule, &s, &trace[t - from], g_current + t * row + at, &g);
        }
    }
    for (int i = 0; i < plan->states && g_state; i++)
        memcpy(g_state + i * row + at, *parts[i], s.n * sizeof(REAL));
}

/* Derive 1 / eps and log(leak); NULL if there is no memory. */
static REAL *NAME(derive)(const Rule *rule, NAME(Constants) *c)
{
    REAL *derived = malloc(2 * rule->features * sizeof(REAL));
    for (int64_t f = 0; derived && f < rule->features; f++) {
        derived[f] = 1 / c->eps[f];
        derived[rule->features + f] = (REAL)log((double)c->leak[f]);
    }
    c->k = derived;
    c->log_leak = derived + rule->features;
    return derived;
}

/* Integrate; 0 if all went well, 1 without memory. Constants hold one value a feature. */
int NAME(integrate)(const Rule *rule, const REAL *current, const REAL *state, const REAL *eps, const REAL *leak,
                    const REAL *threshold, const REAL *amplitude, REAL *out, REAL *last)
{
    NAME(Constants) c = { eps, leak, threshold, amplitude, 0, 0 };
    const NAME(Plan) plan = NAME(plan)(rule, 0);
    REAL *derived = NAME(derive)(rule, &c);
    int failed = !derived;
#pragma omp parallel num_threads(rule->threads) reduction(| : failed)
    {
        REAL *room = failed ? 0 : malloc(plan.room * sizeof(REAL));
        failed |= !room;
#pragma omp for schedule(static)
        for (int64_t item = 0; item < rule->batch * plan.segments; item++)
            if (room)
                NAME(forward_item)(rule, &plan, &c, current, state, out, last, item, room);
        free(room);
    }
    free(derived);
    return failed;
}

/* Differentiate. g_out, g_last, state and g_state may be NULL; sums is [4, threads, features], zero at first. */
int NAME(integrate_backward)(const Rule *rule, const REAL *g_out, const REAL *g_last, const REAL *current,
                             const REAL *state, const REAL *eps, const REAL *leak, const REAL *threshold,
                             const REAL *amplitude, REAL *g_current, REAL *g_state, REAL *sums)
{
    NAME(Constants) c = { eps, leak, threshold, amplitude, 0, 0 };
    const NAME(Plan) plan = NAME(plan)(rule, 1);
    REAL *derived = NAME(derive)(rule, &c);
    int failed = !derived;
#pragma omp parallel num_threads(rule->threads) reduction(| : failed)
    {
        REAL *room = failed ? 0 : malloc(plan.room * sizeof(REAL));
        failed |= !room;
        REAL *own = sums + THREAD * rule->features;
#pragma omp for schedule(static)
        for (int64_t item = 0; item < rule->batch * plan.segments; item++)
            if (room)
                NAME(backward_item)(rule, &plan, &c, g_out, g_last, current, state, g_current, g_state, own, item, room);
        free(room);
    }
    free(derived);
    return failed;
}
#undef INLINE
#endif
