
#define WEIGHT(row, i) (row)[i]
