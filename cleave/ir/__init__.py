"""Graph IR: named axes, symbolic dims, index expressions, hash-consed terms, their float64 meaning and their text."""
