#define decay_$l(v, i) $decay

static void leaky_$l(model_state *s)
{
    uint32_t i;
    for (i = 0; i < $n; i++)
        s->i_$l[i] = decay_$l(s->i_$l[i], i) + value_$from(s, i);
}
