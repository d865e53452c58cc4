        for (g = 0; g < $groups; g++)
            for (c = g * 16; found[g] != 0; c++, found[g] <<= 1)
                if (found[g] & UINT32_C(0x80000000)) {
$emit
                }
$end
