
/* One row of layer $l: $why. */
static void row_$l(model_state *s, uint32_t y)
{
    uint32_t x;
$pull    for (x = 0; x < $out_width; x++) {
        uint32_t c;
        /* list */
$currents        for (c = 0; c < $channels_out; c++) {
$fire
        }
$end    }
}
