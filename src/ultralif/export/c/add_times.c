
static void add_times_$bits(int${bits}_t *sum, const model_weight *row, uint32_t n, int32_t level)
{
    uint32_t i;
    for (i = 0; i < n; i++)
        sum[i] = (int${bits}_t)(sum[i] + WEIGHT(row, i) * level);
}
