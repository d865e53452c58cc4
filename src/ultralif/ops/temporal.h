/* Included by lane.h: neurons without neighbours, a block of lanes at a time over all time steps. */

typedef struct {
    REAL v[LANES], b[LANES], last[LANES]; /* membrane; AdaLIF's adaptation and last spike */
} NAME(State);

/* What the derivative of one step needs. */
typedef struct {
    REAL p[LANES], gate[LANES];
    REAL share[LANES];   /* of the past in a log-sum-exp or maximum; for ADD, V before the step */
    REAL entropy[LANES]; /* of the shares, in bits; for AdaLIF, its threshold */
} NAME(Trace);

typedef struct {
    REAL eps[LANES], leak[LANES], threshold[LANES], amplitude[LANES];
} NAME(Sums);

/* A block at work. */
typedef struct {
    NAME(State) now, grad;
    NAME(Sums) sums;
    REAL spikes[LANES], mean[LANES], padded[LANES], gathered[NAME(FIELDS)][LANES];
    NAME(Lanes) l;
    int64_t at, n, share; /* its first element in a time step; how many; the part of the work */
} __attribute__((aligned(64))) NAME(Block);

/* One step: the spikes go to out. */
INLINE void NAME(advance)(const NAME(Call) *c, NAME(Block) *s, const REAL *restrict x, REAL *restrict out,
                          NAME(Trace) *restrict trace, const int membrane, const int soft, const int adapt)
{
    const NAME(Lanes) l = s->l;
    REAL *restrict v = s->now.v, *restrict b = s->now.b, *restrict last = s->now.last;
    const int late = adapt && c->rule->adapt_late;
    SIMD for (int j = 0; j < LANES; j++) {
        REAL limit = l.threshold[j];
        if (adapt) {
            REAL adapted = c->decay * b[j] + (1 - c->decay) * last[j];
            limit += c->strength * (late ? b[j] : adapted);
            b[j] = adapted;
        }
        REAL base, weight = 1, log_weight = 0;
        if (membrane == ADD) {
            base = l.leak[j] * v[j] + x[j];
            if (trace)
                trace->share[j] = v[j];
        } else {
            REAL past = v[j] + l.log_leak[j];
            base = membrane == MAX ? NAME(largest)(past, x[j]) : NAME(larger)(past, x[j]);
            if (membrane == MAX) {
                if (trace)
                    trace->share[j] = past > x[j] ? (REAL)1 : past == x[j] ? (REAL)0.5 : (REAL)0;
            } else {
                REAL fall = NAME(larger)(-c->edge, (NAME(smaller)(x[j], past) - base) * l.k[j]), u = NAME(exp2)(fall);
                weight = 1 + u;
                log_weight = NAME(log2_1p)(u);
                if (trace) {
                    REAL large = 1 / weight, small = u * large;
                    trace->share[j] = past > x[j] ? large : small;
                    trace->entropy[j] = log_weight - fall * small;
                }
            }
        }
        NAME(Fired) f = NAME(fire)(c, l, j, base, weight, log_weight, limit, membrane, soft, trace != 0);
        if (trace) {
            trace->p[j] = f.p;
            trace->gate[j] = f.gate;
            if (adapt)
                trace->entropy[j] = limit;
        }
        if (adapt)
            last[j] = f.spike;
        v[j] = f.v;
        out[j] = f.spike;
    }
}

/* One step back, from the gradients of spikes and state to those of the current and of the state before. */
INLINE void NAME(retreat)(const NAME(Call) *c, NAME(Block) *s, const NAME(Trace) *restrict t, const REAL *restrict gs,
                          REAL *restrict gx, const int membrane, const int soft, const int adapt, const int learn)
{
    const NAME(Lanes) l = s->l;
    REAL *restrict gv = s->grad.v, *restrict gb = s->grad.b, *restrict gl = s->grad.last;
    NAME(Sums) *restrict sums = &s->sums;
    const int late = adapt && c->rule->adapt_late;
    SIMD for (int j = 0; j < LANES; j++) {
        REAL limit = adapt ? t->entropy[j] : l.threshold[j], fed = adapt ? gs[j] + gl[j] : gs[j];
        NAME(Unfired) u = NAME(unfire)(c, l, j, fed, gv[j], t->p[j], t->gate[j], limit, membrane, soft);
        if (adapt) {
            REAL pull = -c->strength * u.back, adapted = late ? gb[j] : gb[j] + pull;
            gb[j] = c->decay * adapted + (late ? pull : 0);
            gl[j] = (1 - c->decay) * adapted;
        }
        REAL past = u.g * (membrane == ADD ? l.leak[j] : t->share[j]);
        gx[j] = membrane == ADD ? u.g : u.g - past;
        gv[j] = past;
        if (learn) {
            REAL to_eps = -u.back * (t->p[j] - limit) * l.k[j];
            sums->eps[j] += membrane == LSE ? to_eps + u.g * t->entropy[j] : to_eps;
            sums->leak[j] += membrane == ADD ? u.g * t->share[j] : past;
            sums->threshold[j] -= u.back;
            if (membrane == ADD)
                sums->amplitude[j] += u.fed * (t->gate[j] - (REAL)0.5);
        }
    }
}

/* Integrate from step `from` to `to`, either with a trace, or without, to the spikes or their mean. */
INLINE void NAME(advance_steps)(const NAME(Call) *c, NAME(Block) *s, int64_t from, int64_t to, NAME(Trace) *trace,
                                const int out, const int membrane, const int soft, const int adapt)
{
    const Rule *rule = c->rule;
    for (int64_t t = from; t < to; t++) {
        const REAL *x = c->t->current + t * rule->current_step + s->at;
        REAL *to_out = out && !rule->rate ? c->t->out + t * c->row + s->at : 0;
        REAL *spikes = to_out && s->n == LANES ? to_out : s->spikes;
        if (t + 2 < rule->time) {
            NAME(expect)(x + 2 * rule->current_step, s->n, 0);
            if (to_out)
                NAME(expect)(to_out + 2 * c->row, s->n, 1);
        }
        if (s->n < LANES)
            x = memcpy(s->padded, x, s->n * sizeof(REAL));
        NAME(advance)(c, s, x, spikes, trace ? trace + (t - from) : 0, membrane, soft, adapt);
        if (to_out && s->n < LANES)
            memcpy(to_out, spikes, s->n * sizeof(REAL));
        for (int j = 0; out && rule->rate && j < LANES; j++)
            s->mean[j] += spikes[j];
    }
}

INLINE void NAME(retreat_steps)(const NAME(Call) *c, NAME(Block) *s, int64_t from, int64_t to, const NAME(Trace) *trace,
                                const int membrane, const int soft, const int adapt, const int learn)
{
    const Rule *rule = c->rule;
    const int given = c->t->g_out && !rule->rate;
    for (int64_t t = to - 1; t >= from; t--) {
        const REAL *gs = given ? c->t->g_out + t * rule->grad_step + s->at : s->mean;
        REAL *to_gx = c->t->g_current + t * c->row + s->at, *gx = s->n == LANES ? to_gx : s->spikes;
        if (t > 1) {
            NAME(expect)(to_gx - 2 * c->row, s->n, 1);
            if (given)
                NAME(expect)(gs - 2 * rule->grad_step, s->n, 0);
        }
        if (given && s->n < LANES)
            gs = memcpy(s->padded, gs, s->n * sizeof(REAL));
        NAME(retreat)(c, s, trace + (t - from), gs, gx, membrane, soft, adapt, learn);
        if (s->n < LANES)
            memcpy(to_gx, gx, s->n * sizeof(REAL));
    }
}

/* Each kind of neuron has loops of its own, without a branch inside. */
#define KINDS(AS)                                                                                                      \
    switch (c->rule->membrane * 4 + c->rule->soft * 2 + c->rule->adapt) {                                              \
        AS(LSE, 0, 0) AS(LSE, 1, 0) AS(MAX, 0, 0) AS(MAX, 1, 0) AS(ADD, 0, 0) AS(ADD, 0, 1) AS(ADD, 1, 0) AS(ADD, 1, 1)  \
    }

static void NAME(advance_block)(const NAME(Call) *c, NAME(Block) *s, int64_t from, int64_t to, NAME(Trace) *trace,
                                const int out)
{
#define AS(membrane, soft, adapt)                                                                                      \
    case membrane * 4 + soft * 2 + adapt:                                                                              \
        trace ? NAME(advance_steps)(c, s, from, to, trace, 0, membrane, soft, adapt)                                   \
              : NAME(advance_steps)(c, s, from, to, 0, out, membrane, soft, adapt);                                    \
        break;
    KINDS(AS)
#undef AS
}

static void NAME(retreat_block)(const NAME(Call) *c, NAME(Block) *s, int64_t from, int64_t to, const NAME(Trace) *trace)
{
#define AS(membrane, soft, adapt)                                                                                      \
    case membrane * 4 + soft * 2 + adapt:                                                                              \
        c->sums ? NAME(retreat_steps)(c, s, from, to, trace, membrane, soft, adapt, 1)                                 \
                : NAME(retreat_steps)(c, s, from, to, trace, membrane, soft, adapt, 0);                                \
        break;
    KINDS(AS)
#undef AS
}
#undef KINDS

/* Find the constants of a block: where they lie, or gathered if the block goes over the end of the features. */
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

/* Copy a state from a tensor, or to it; NULL is rest, or nobody asks. */
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
    for (int64_t j = 0; j < s->n; j++) {
        s->sums.eps[j] *= (REAL)0.69314718055994531;
        if (c->rule->membrane != ADD)
            s->sums.leak[j] /= s->l.leak[j];
    }
    for (int i = 0; i < CONSTANTS; i++)
        for (int64_t done = 0; done < s->n;) {
            const int64_t lane = (s->at + done) % c->width, room = c->width - lane;
            const int64_t n = s->n - done < room ? s->n - done : room;
            NAME(collect)(c, s->share, i, lane, sums[i] + done, n);
            done += n;
        }
}

enum { NAME(CHUNK) = (1 << 20) / sizeof(NAME(Trace)) }; /* a trace that a large cache can hold */

static int64_t NAME(alone_room)(const NAME(Call) *c)
{
    const int64_t time = c->rule->time, chunk = time < NAME(CHUNK) ? time : NAME(CHUNK);
    const int64_t bytes = c->t->g_current ? chunk * sizeof(NAME(Trace)) + time / chunk * sizeof(NAME(State)) : 0;
    return (sizeof(NAME(Block)) + bytes) / sizeof(REAL);
}

static void NAME(run_alone)(const NAME(Call) *c, int64_t part, int64_t item, REAL *room)
{
    const int64_t time = c->rule->time, chunk = NAME(CHUNK), whole = (time - 1) / chunk;
    NAME(Block) *s = (NAME(Block) *)room;
    NAME(State) *notes = (NAME(State) *)(s + 1);
    NAME(Trace) *trace = (NAME(Trace) *)(notes + whole);
    s->share = part;
    s->at = item * LANES;
    s->n = c->row - s->at < LANES ? c->row - s->at : LANES;
    s->l = NAME(lanes_of)(c, s);
    NAME(load_state)(c, s, &s->now, c->t->state);
    memset(s->mean, 0, sizeof(s->mean));
    memset(s->padded, 0, sizeof(s->padded));
    if (!c->t->g_current) {
        NAME(advance_block)(c, s, 0, time, 0, 1);
        for (int64_t j = 0; c->rule->rate && j < s->n; j++)
            c->t->out[s->at + j] = s->mean[j] / (REAL)time;
        NAME(store_state)(c, s, &s->now, c->t->last);
        return;
    }
    for (int64_t i = 0; i < whole; i++) {
        notes[i] = s->now;
        NAME(advance_block)(c, s, i * chunk, (i + 1) * chunk, 0, 0);
    }
    for (int64_t j = 0; c->rule->rate && c->t->g_out && j < s->n; j++)
        s->mean[j] = c->t->g_out[s->at + j] / (REAL)time;
    NAME(load_state)(c, s, &s->grad, c->t->g_last);
    memset(&s->sums, 0, sizeof(s->sums));
    for (int64_t i = whole; i >= 0; i--) {
        const int64_t to = (i + 1) * chunk < time ? (i + 1) * chunk : time;
        NAME(advance_block)(c, s, i * chunk, to, trace, 0);
        NAME(retreat_block)(c, s, i * chunk, to, trace);
        if (i)
            s->now = notes[i - 1];
    }
    NAME(store_state)(c, s, &s->grad, c->t->g_state);
    if (c->sums)
        NAME(collect_block)(c, s);
}
