
/* One row of layer $l: $why. */
static void row_$l(model_state *s, uint32_t y)
{
    uint32_t x;
    for (x = 0; x < $out_width; x++) {
        uint32_t found[$groups] = {0};
        int32_t py, px;
        uint32_t g, c;
        /* list */
        for (py = 0; py < $pool_rows; py++)
            for (px = 0; px < $pool_columns; px++) {
                int16_t v[$padded];
                const int any = look_$l(s, $at, v);
                for (g = 0; g < $groups; g++)
                    found[g] = any ? reach_$l(v, g * 16, found[g]) : found[g] | blank_$l[g];
            }
$spikes    }
}
