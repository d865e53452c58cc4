
/* Add each weight to the sums of the time step at which its synapse delivers the event. */
static void add_late_$bits(int${bits}_t *sum, const model_weight *row, const uint8_t *delay, uint32_t n, uint32_t slot, uint32_t slots)
{
    uint32_t i;
    for (i = 0; i < n; i++) {
        uint32_t at = slot + delay[i];
        at = (at >= slots ? at - slots : at) * n + i;
        sum[at] = (int${bits}_t)(sum[at] + WEIGHT(row, i));
    }
}
