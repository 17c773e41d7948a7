"""What a calibration from a series says: for programs, the terminal and a browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from dsp_gym.calibration.series_fit import SeriesFit
from dsp_gym.job.evidence import Evidence
from dsp_gym.pages import code, note, page, section, table

__all__ = ["SeriesReport"]


@dataclass(frozen=True, slots=True)
class SeriesReport:
    """A calibrated job, its file, and what it was calibrated to."""

    job: str
    used: tuple[str, ...]
    slot_memory_mib: float
    fit: SeriesFit
    job_text: str
    fitted: Evidence | None = None  # the job file's section

    @classmethod
    def of(
        cls,
        fit: SeriesFit,
        job: str,
        used: Sequence[str],
        slot_memory_mib: float,
        job_text: str,
        fitted: Evidence | None = None,
    ) -> SeriesReport:
        """The report of a fit.

        Returns:
            A report that also holds the text of the job file and its section `fitted`.
        """
        return cls(job, tuple(used), slot_memory_mib, fit, job_text, fitted)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know about it."""
        said = () if self.fitted is None else self.fitted.sentences()
        return (*self.fit.warnings, *said)

    def facts(self) -> list[tuple[str, str]]:
        """Name and value of every fitted number.

        Returns:
            Pairs (name with unit, formatted value), in the order of the printed table.
        """
        fit = self.fit
        found = [
            ("slots", str(fit.slots)),
            ("capacity when warm, records/s", f"{fit.capacity_per_s:,.0f}"),
            ("exponent of the loss with slots", f"{fit.loss:.3f}"),
            ("extra cost of a record after a start", f"{fit.warm_up.extra:.2f}"),
            ("records of a subtask until warm (1/e)", f"{fit.warm_up.records:,.0f}"),
            ("latency while nothing queues, s", f"{fit.base_latency_s:.2f}"),
            ("load that is always on the way, s", f"{fit.base_lag_s:.2f}"),
            ("records read over records offered", f"{fit.load_factor:.3f}"),
        ]
        if fit.outage_s is not None:
            text = " / ".join(f"{q:g}" for q in fit.outage_s)
            found.append(("outage of a rescale p10/p50/p90, s", text))
        return found

    def to_json(self) -> dict[str, object]:
        """Plain values for JSON.

        Returns:
            The job's name, the files used, and the fields of the fit by name.
        """
        fitted = None if self.fitted is None else self.fitted.model_dump(mode="json")
        return {"job": self.job, "used": list(self.used), "fitted": fitted} | asdict(self.fit)

    def render_html(self) -> str:
        """One page that needs nothing else.

        Returns:
            HTML of one page without outside references.
        """
        return page(
            f"{self.job}: calibrated from a series",
            f"From {', '.join(self.used)}.",
            *(note(text) for text in self.warnings),
            table((), self.facts()),
            section("Job file", code(self.job_text)),
        )
