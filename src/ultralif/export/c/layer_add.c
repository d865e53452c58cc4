
static void layer_$l(model_state *s)
{
    uint32_t i;
    for (i = 0; i < $n; i++)
        fire_$l(s, i, decay_$l(s->v_$l[i], i) + value_$from(s, i));
}
