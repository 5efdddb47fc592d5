from ._override import enable, disable, enabled, stats
