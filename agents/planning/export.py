"""The export of a trained planning policy to its deployed folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agents.folder import SCHEMA, HistoryDocument, PlanningDocument, write_folder
from agents.planning.chain import packed
from agents.planning.learner import PlanningLearner
from agents.planning.trained import STATES_DOCUMENT, TABLE_PREFIX, past_prefix
from agents.provenance import config_text, data_hashes, dataset_hashes, job_hashes, versions


def export_planning(
    learner: PlanningLearner, target: Path, base_dir: str | Path | None = None
) -> Path:
    """Write the policy of a learner.

    Returns:
        The policy's folder.
    """
    config, agent = learner.config, learner.agent
    document = PlanningDocument(
        schema=SCHEMA,
        name=config.name,
        algorithm="value iteration",
        interval_s=config.env.interval_s,
        jobs=job_hashes(config),
        data=data_hashes(config, base_dir) | dataset_hashes(config),
        seed=learner.seed,
        seeds=agent.seeds,
        validation=learner.best.figures,
        versions=versions(),
        weights_sha256="",
        params={**agent.params, "late_price": learner.best.late_price},
        states=STATES_DOCUMENT,
        laws=tuple(law.name for law in agent.laws),
        minutes=float(learner.counts.sum()),
        late_target=agent.late_target,
        tried={f"{price:g}": figures for price, figures in sorted(learner.tried.items())},
        history={
            job: HistoryDocument(
                minutes=sum(map(len, past.loads)),
                prior=learner.params.prior,
                vertices=past.vertices,
            )
            for job, past in learner.past.items()
        },
    )
    card = planning_card(document, learner)
    return write_folder(target, document, _weights(learner), config_text(config), card)


def _weights(learner: PlanningLearner) -> dict[str, NDArray[np.generic]]:
    """Collect the transitions, and the service models of jobs with a known past."""
    laws = [f"{TABLE_PREFIX}{law.name}/" for law in learner.agent.laws] or [TABLE_PREFIX]
    found = {
        law + key: part
        for law, counts in zip(laws, learner.counts, strict=True)
        for key, part in packed(counts).items()
    }
    for job, past in learner.past.items():
        prefix = past_prefix(job)
        found |= {prefix + key: part.astype(np.float64) for key, part in past.service.items()}
    return found


def planning_card(document: PlanningDocument, learner: PlanningLearner) -> str:
    """Write the model card: the facts to know before using the policy.

    Returns:
        Markdown text.
    """
    config, price = learner.config, learner.best.late_price
    train = config.loads.train
    loads = ", ".join(entry.name for entry in train.loads) if train is not None else "none"
    aim = "" if learner.kept_aim else ", which the highest price that was tried does not reach"
    tried = [
        f"| {one} | {figures['cost_per_h']:.4g} | {100 * figures['slo_share']:.2f} % "
        f"| {figures['rescales_per_h']:.3g} |"
        for one, figures in document.tried.items()
    ]
    past = [
        f"- Learned from the past of {job}: {one.minutes:,} minutes of its load, and the time per "
        "record of its vertices."
        for job, one in document.history.items()
    ]
    return "\n".join(
        [
            f"# {document.name}",
            "",
            config.description or "A planning autoscaling policy for Apache Flink jobs.",
            "",
            f"- Plans by value iteration over {document.minutes:,.0f} counted minutes of load; "
            f"seed {document.seed} of {list(document.seeds)}. These counts and the price of a late "
            "minute are all that was trained.",
            *_laws_told(document),
            f"- Loads: {loads}. Price chosen on the simulated jobs {', '.join(document.jobs)}.",
            *past,
            f"- A late minute is worth {price:g} minutes of the configuration that carries the "
            f"job's reference rate: the lowest price tried that is late at most "
            f"{100 * document.late_target:g} % of the time on the validation loads{aim}. "
            "`params: {late_price: ...}` sets another.",
            f"- Decides every {document.interval_s:g} s; acts on jobs of any shape.",
            "",
            "## On the validation loads",
            "",
            "| price of a late minute | cost per hour | late | rescales per hour |",
            "| --- | --- | --- | --- |",
            *tried,
            "",
            "The price was chosen by these figures, so they are optimistic. `dsp-gym evaluate`",
            "gives figures on unseen loads.",
            "",
            "## Limits",
            "",
            "- It plans for sustained rates and knows loads as far as the counted ones go. A",
            "  decision beyond them, or on times per record that are hardly known, says so.",
            "- With a job file it starts from that file's times per record and corrects them by",
            "  what it measures. Run it under guardrails.",
            "",
        ]
    )


def _laws_told(document: PlanningDocument) -> list[str]:
    """Name the laws of the load on the card; nothing where all loads were counted as one."""
    if not document.laws:
        return []
    return [
        f"- Laws of the load, counted apart: {', '.join(document.laws)}. A running job's own "
        "minutes tell which of them it follows."
    ]
