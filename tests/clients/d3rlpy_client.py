"""d3rlpy: DQN online, and CQL offline on the transitions that DQN left."""

from __future__ import annotations

import d3rlpy
import gymnasium
import torch
from told import tell

ID = "dsp_gym:dsp_gym/Nexmark-Q1-Capacity-v2"


def main() -> None:
    """Make a few updates with each."""
    torch.set_num_threads(1)
    d3rlpy.seed(0)
    env = gymnasium.make(ID)
    buffer = d3rlpy.dataset.create_fifo_replay_buffer(limit=512, env=env)
    dqn = d3rlpy.algos.DQNConfig(batch_size=8).create(device="cpu:0")
    dqn.build_with_env(env)
    online = changed(dqn, lambda: learn_online(dqn, env, buffer))
    cql = d3rlpy.algos.DiscreteCQLConfig(batch_size=8).create(device="cpu:0")
    cql.build_with_dataset(buffer)
    offline = changed(cql, lambda: learn_offline(cql, buffer))
    tell(["d3rlpy"], {"DQN, online": online, "DiscreteCQL, offline": offline})


def learn_online(dqn, env, buffer) -> int:
    """Play two episodes and learn on the way; say how many updates were made."""
    steps, begins = 2 * env.spec.max_episode_steps, 32
    dqn.fit_online(
        env,
        buffer,
        n_steps=steps,
        n_steps_per_epoch=steps,
        update_start_step=begins,
        update_interval=8,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        show_progress=False,
    )
    return sum(1 for step in range(1, steps + 1) if step > begins and step % 8 == 0)


def learn_offline(cql, buffer, count: int = 8) -> int:
    """Learn from what was played; say how many updates were made."""
    cql.fit(
        buffer,
        n_steps=count,
        n_steps_per_epoch=count,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        show_progress=False,
    )
    return count


def changed(learner, learn) -> int:
    """Learn, and refuse a learner whose values did not change."""
    networks = learner.impl.modules.q_funcs
    before = [one.clone() for one in networks.parameters()]
    done = learn()
    if all(torch.equal(a, b) for a, b in zip(before, networks.parameters(), strict=True)):
        raise SystemExit("no update changed a weight")
    return done


if __name__ == "__main__":
    main()
