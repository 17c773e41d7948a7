"""A frontier small enough to be simulated in a test."""

from __future__ import annotations

FRONTIER = """
policies:
  - {policy: ds2, rule: true, knob: target_utilization, values: [0.5, 0.8]}
jobs:
  seen: {named: [nexmark-q1]}
  unseen: {named: [nexmark-q11]}
loads:
  seen: {loads: [diurnal], seeds: {from: 0, to: 1}}
  unseen: {loads: [markov], seeds: {from: 10, to: 11}}
lateness: [0.2, 0.5]
episode_s: 1200
bootstrap: 100
"""
