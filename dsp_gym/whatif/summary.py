"""The verdict on a job in the few values that a fleet's page shows, and which policy leads it."""

from __future__ import annotations

from dsp_gym.control.overview import JobLine
from dsp_gym.control.verdict_summary import Block, SavingRange, VerdictSummary
from dsp_gym.whatif.job_page import headline
from dsp_gym.whatif.result import JobResult, PolicyClaim

STAYS = 0.02
"""Share of the job's cost that another policy must save beyond the leading one to replace it."""


def leading(job: JobResult, before: str | None) -> PolicyClaim | None:
    """Choose the policy that leads the page of a job, which does not change with every interval.

    Args:
        job: what was found about it.
        before: label of the policy that led before; None: none did.

    Returns:
        Its claim: the best policy, or the one before as long as its verdict is as good and the
        best one saves hardly more; None where lateness forbids every policy, or none was replayed.
    """
    best = job.best
    own = next((one for one in job.claims if one.policy == before and not one.is_late), None)
    if best is None or own is None or own.verdict != best.verdict:
        return best
    more = best.saving_per_month.low - own.saving_per_month.low
    return best if more > STAYS * job.present[0] else own


def verdict_summary(job: JobResult, claim: PolicyClaim | None) -> VerdictSummary:
    """Put a verdict in a few values.

    Args:
        job: what was found about it.
        claim: of the policy that leads its page; None: no policy does, or none was replayed.

    Returns:
        The summary; without a saving where the model is not trusted.
    """
    cost, late, _ = job.present
    if claim is None:
        return VerdictSummary(
            sentence=headline(job),
            days=job.observed.days,
            cost_per_month=cost,
            late=late,
            blocks=_blocks_of_all(job),
        )
    trusted = not job.distrust
    saved = claim.saving_per_month
    sentence = headline(job, claim)
    if not trusted:
        sentence = f"The model does not fit the job, so it gives no figures: {job.distrust[0]}."
    return VerdictSummary(
        policy=claim.policy,
        word=claim.verdict,
        sentence=sentence,
        days=job.observed.days,
        cost_per_month=cost,
        late=late,
        late_then=claim.late.value if trusted else None,
        saving=SavingRange(**saved.model_dump()) if trusted else None,
        claimed_per_month=claim.claimed_per_month if trusted else 0.0,
        blocks=blocks(claim),
    )


def _blocks_of_all(job: JobResult) -> tuple[Block, ...]:
    """What keeps every policy from leading; empty where the evidence says that each is later."""
    if not job.claims:
        return (Block(subject="replay", found="no policy", needed="one"),)
    slo = [r for one in job.claims for r in one.reasons if r.subject == "SLO"]
    return () if all(one.speaks_against for one in slo) else blocks(job.ranked()[0])


def blocks(claim: PolicyClaim) -> tuple[Block, ...]:
    """List the unmet conditions of a verdict.

    Args:
        claim: about one policy.

    Returns:
        Those that speak against the policy first, then a model that does not fit, then the others.
    """
    unmet = [one for one in claim.reasons if not one.holds]
    unmet.sort(key=lambda one: (not one.speaks_against, one.subject != "model"))
    return tuple(Block(subject=o.subject, found=o.found, needed=o.needed) for o in unmet)


def job_line(job: JobResult, claim: PolicyClaim | None) -> JobLine:
    """Make the line of a replayed job.

    Args:
        job: what was found about it.
        claim: of the policy that leads its page.

    Returns:
        The line of the fleet's page; times as in the history.
    """
    since_s = job.late_since_s
    return JobLine(
        name=job.name,
        currency=job.currency,
        cost_per_month=job.present[0],
        late_since_s=None if since_s is None else job.begin_s + since_s,
        verdict=verdict_summary(job, claim),
    )
