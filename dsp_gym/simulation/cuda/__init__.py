"""The simulation on a graphics card: the functions of `dsp_gym.simulation`, compiled once more."""
