"""A referee: policies on triples of a job, a load and a seed that nobody knows beforehand.

A frontier crosses fixed jobs and loads; a referee draws each run by itself, from a key. The test
set's key is made of the commit under evaluation.
"""
