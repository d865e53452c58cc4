        for (g = 0; g < $groups; g++)
            while (found[g] != 0) {
                const uint32_t skip = first_bit(found[g]);
                found[g] ^= UINT32_C(0x80000000) >> skip;
                c = g * 16 + skip;
$emit
            }
$end
