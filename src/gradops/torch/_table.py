def wins(case, gradient): return True
