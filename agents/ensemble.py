"""Several trainings as one policy that knows when they disagree.

The answer is the mean of the members' probabilities. The threshold of acting is chosen again for
the ensemble, because the mean of several probabilities exceeds a threshold more easily than a
single network's does. The range of their disagreement about acting is stored with the ranges of the
features, so that the guardrail `out_of_distribution` switches to the fallback where they disagree
more than they ever did on the validation loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from agents.capacity import DISAGREEMENT, CapacityActor, chosen
from agents.environment import validation_batch
from agents.folder import CARD, CONFIG, read_folder, write_folder
from agents.validation import Totals, figures_of, totals
from dsp_gym.arrays import Floats32
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.core import BatchStep
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.guardrails.out_of_distribution import quantile_box


def join(
    config: ExperimentConfig,
    folders: Sequence[Path],
    target: Path,
    base_dir: str | Path | None = None,
) -> Path:
    """Write several trainings of an experiment as one policy.

    Args:
        config: The experiment, with capacity actions.
        folders: Policies of its seeds, two or more; the first one's document is the template.
        target: Folder of the ensemble; an older one there is replaced.
        base_dir: Folder that relative trace paths start from.

    Returns:
        The target.
    """
    read = [read_folder(folder) for folder in folders]
    first = read[0][0]
    # All members have the same shape: the weights get a first axis over them.
    weights = {name: np.stack([w[name] for _, w in read]) for name in read[0][1]}
    shape = first.network.model_copy(update={"members": len(read)})
    batch = validation_batch(config, base_dir)
    tried = []
    for threshold in config.ppo.act_above:
        actor = CapacityActor(weights, shape, threshold)
        total, differences = _watched(actor, batch)
        # The plain mean, for the reason given in `Learner._validated`.
        figures = figures_of(total, batch.config, np.mean) | {"act_above": threshold}
        tried.append((figures, differences))
    figures, differences = max(tried, key=lambda one: one[0]["return"])
    # A feature's range in the ensemble covers its ranges in all trainings.
    boxes = [document.observation.quantiles for document, _ in read]
    ranges = {
        name: (min(box[name][0] for box in boxes), max(box[name][1] for box in boxes))
        for name in boxes[0]
    }
    document = first.model_copy(
        update={
            "network": shape,
            "observation": first.observation.model_copy(
                update={"quantiles": ranges | quantile_box({DISAGREEMENT: differences})}
            ),
            "action": first.action.model_copy(update={"act_above": figures["act_above"]}),
            "seeds": tuple(document.seed for document, _ in read),
            "validation": figures,
        }
    )
    card = (folders[0] / CARD).read_text().rstrip()
    many = f"- {len(read)} trainings, seeds {list(document.seeds)}, decide together; the figures "
    card += f"\n{many}above are of the first.\n"
    return write_folder(target, document, weights, (folders[0] / CONFIG).read_text(), card)


def _watched(actor: CapacityActor, batch: AutoscaleBatch) -> tuple[Totals, Floats32]:
    """Play the validation loads, and record the disagreement wherever acting was valid."""
    seen: list[Floats32] = []

    def act(observation: Floats32) -> BatchStep:
        masks = batch.action_masks()
        values, differ = actor.answer(observation, masks)
        seen.append(differ[masks[:, 1:].any(axis=1)])
        actions = chosen(values, masks, actor.act_above)[0][:, None]
        return batch.step(actions)

    batch.episodes[:] = 0
    total = totals(batch, batch.reset(), act)
    return total, np.concatenate(seen)
