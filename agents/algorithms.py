"""The algorithms that ship, as experiments name them; the entry points of `dsp_gym.algorithms`."""

from __future__ import annotations

from dsp_gym.policies.algorithms import Algorithm

PPO = Algorithm(learner="agents.learner:ppo", plain_layers=False)
MASKABLE_PPO = Algorithm(learner="agents.learner:ppo", plain_layers=False, masked=True)
A2C = Algorithm(learner="agents.stock:A2cLearner", minibatches=False)
TRPO = Algorithm(learner="agents.stock:TrpoLearner")
DQN = Algorithm(learner="agents.stock:DqnLearner", flat_actions=True, minibatches=False)
QR_DQN = Algorithm(learner="agents.stock:QrDqnLearner", flat_actions=True, minibatches=False)
RECURRENT_PPO = Algorithm(learner="agents.stock:RecurrentPpoLearner", lstm=True)
PLANNING = Algorithm(
    trainer="agents.planning.learner:PlanningLearner",
    export="agents.planning.export:export_planning",
)
