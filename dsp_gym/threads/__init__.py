"""Threads that are shared: as few as the work needs, and none whose caller waits for ever."""
