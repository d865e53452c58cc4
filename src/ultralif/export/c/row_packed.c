
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
                add_reached(found, start_$l[0], t, spikes, $groups, weight_$synapses[0][0], $next);
            }
$spikes    }
}
