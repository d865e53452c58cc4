
static void sums_$l(const model_state *s, int32_t y, int32_t x, int32_t *sum)
{
    int16_t v[$padded];
    const int any = look_$l(s, y, x, v);
    uint32_t c;
$load
    for (c = 0; c < $channels_out; c++)
        sum[c] = any ? dot_$l($given, weight_$synapses[c]) : 0;
}
