
/* One row of layer $l: $why. */
static void row_$l(model_state *s, uint32_t y)
{
    uint32_t x;
    for (x = 0; x < $out_width; x++) {
        uint32_t found[$groups] = {0};
        int32_t py, px;
        uint32_t g, c, n = 0;
        for (py = 0; py < $pool_rows; py++)
            for (px = 0; px < $pool_columns; px++) {
                int16_t v[$padded];
                const int any = look_$l(s, $at, v);
                for (g = 0; g < $groups; g++) {
                    if (!any) {
                        found[g] |= blank_$l[g]; /* what fires where all levels are 0 */
                        continue;
                    }
                    for (c = g * 16; c < $channels_out && c < g * 16 + 16; c++)
                        if (!(found[g] >> (31 - (c & 15)) & 1) && dot_$l(v, weight_$synapses[c]) >= level_$l[c])
                            found[g] |= UINT32_C(0x80000000) >> (c & 15);
                }
            }
$spikes    }
}
