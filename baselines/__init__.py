"""Published autoscalers as policies, with their real defaults."""

# dsp_gym.shared_names looks for this line: others install packages of this name, too.
__distribution__ = "dsp-gym"
