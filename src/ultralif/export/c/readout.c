
static void layer_$l(model_state *s)
{
    uint16_t i;
    for (i = 0; i < $n; i++)
        s->score[i] += current_$l(s, i);
}
