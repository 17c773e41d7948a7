"""Published numbers beside this release's: `dsp-gym reproduce`."""
