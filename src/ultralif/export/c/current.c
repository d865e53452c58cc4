
static int32_t current_$l(model_state *s, uint16_t i)
{
    int32_t sum = s->sum_$l[i];
    s->sum_$l[i] = 0;
    return up(sum, shift_$l[i]) + bias_$l[i];
}
