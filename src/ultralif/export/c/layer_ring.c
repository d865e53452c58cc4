#define top_$l(a, b) $top

static void layer_$l(model_state *s)
{
    /* Membranes before this step; the ring closes at the ends. */
    int32_t first = decay_$l(s->v_$l[0], 0), left = decay_$l(s->v_$l[$last], $last), here = first;
    uint16_t i;
    for (i = 0; i < $n; i++) {
        int32_t right = i + 1 < $n ? decay_$l(s->v_$l[i + 1], i + 1) : first;
        int32_t pair = top_$l(left, here);
        fire_$l(s, i, top_$l(pair, right) + current_$l(s, i));
        left = here;
        here = right;
    }
}
