
/* One row of layer $l: $why. */
static void row_$l(model_state *s, uint32_t y)
{
    uint32_t x;
$pull    for (x = 0; x < $out_width; x++) {
        uint32_t found[$groups] = {0};
        int32_t py, px;
        uint32_t g, c;
        /* list */
        for (py = 0; py < $pool_rows; py++)
            for (px = 0; px < $pool_columns; px++) {
                tap t[TAPS($taps, $channels)];
                const uint32_t spikes = taps_$l(s, $at, t);
                for (g = 0; g < $groups; g++) {
                    uint32_t sum[8];
                    GATHER(start_$l[g], t, spikes, weight_$synapses[g][0], $next, sum);
                    found[g] |= reached(sum);
                }
            }
$spikes    }
}
