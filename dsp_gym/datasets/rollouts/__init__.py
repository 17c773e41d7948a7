"""Rollouts `dsp-gym/rollout/1`: what policies saw, decided and got on simulated jobs."""
