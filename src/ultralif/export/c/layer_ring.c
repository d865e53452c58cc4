#define top_$l(a, b) $top

/* One ring of neurons: the last one is next to the first. */
static void ring_$l(model_state *s, uint32_t start)
{
    /* Membranes before this step. */
    int32_t first = decay_$l(s->v_$l[start], start);
    int32_t left = decay_$l(s->v_$l[start + $reach], start + $reach), here = first;
    uint32_t i;
    for (i = start; i <= start + $reach; i += $step) {
        int32_t right = i < start + $reach ? decay_$l(s->v_$l[i + $step], i + $step) : first;
        int32_t pair = top_$l(left, here);
        fire_$l(s, i, top_$l(pair, right) + value_$from(s, i));
        left = here;
        here = right;
    }
}

static void layer_$l(model_state *s)
{
$rings
}
