        int32_t sum[$padded_out], py, px;
        sums_$l(s, $first, best);
        for (py = 0; py < $pool_rows; py++)
            for (px = py == 0; px < $pool_columns; px++) {
                sums_$l(s, $at, sum);
                for (c = 0; c < $channels_out; c++)
                    if (sum[c] > best[c])
                        best[c] = sum[c];
            }
