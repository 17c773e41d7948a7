"""Policies compared at equal lateness: each one's risk knob is swept, and its frontier is read.

A cheap policy that is late and an expensive one that is not cannot be ranked by one run of each.
So every policy runs at several settings of the one parameter that trades cost for lateness, and
two policies are compared where both are late the same share of the time.
"""
