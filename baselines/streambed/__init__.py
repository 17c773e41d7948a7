"""StreamBed: capacity planning from small controlled runs.

Rosinosky, Schmitz and Rivière, "StreamBed: Capacity Planning for Stream Processing", DEBS 2024.
From the bottom up: the capacity estimator (section 4) finds the maximal sustainable throughput
(MST) of a configuration, the configuration optimizer (5) the best configuration of a number of
slots, the resource explorer (6) a model of throughput over slots and memory, the source of a plan.
Constants that the paper leaves open are those of its public code.
"""
