"""Policies on a real Flink, and the same comparison in the simulation of the calibrated jobs.

A recorded load is compressed, and each policy's clock with it: it sees the job in slow motion.
"""
