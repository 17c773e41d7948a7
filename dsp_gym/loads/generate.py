"""Rates of a load at every tick, from its description and a seed.

Random numbers come from Philox streams keyed by (seed, node, purpose), so parts do not disturb one
another, and a longer load begins with the shorter one of the same seed (a recorded load with a
random start excepted: it begins where the whole of it fits).
"""

from __future__ import annotations

import math

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.errors import LoadError
from dsp_gym.loads.spec import (
    Between,
    Burst,
    Constant,
    Diurnal,
    FlashCrowd,
    InstalledLoad,
    LoadSpec,
    MarkovModulated,
    Ramp,
    Step,
    Sum,
    TraceLoad,
    nodes,
    own_load,
)
from dsp_gym.loads.traces import TraceLibrary

Rates = Floats

SHAPE, NOISE, CHOICE = 0, 1, 2
"""Purposes of streams of random numbers."""

_DOMAIN = 0x6C6F6164 << 32
"""Sets the streams of loads apart from those of a simulation with the same seed ('load')."""

# Fixed blocks: a longer load draws the same first events, values and sines.
_EVENTS_AT_ONCE = 32
_SINE_BLOCK = 64
_FORGOTTEN = 1e-12


def rates(
    spec: LoadSpec,
    *,
    seed: int,
    duration_s: float,
    dt_s: float = 1.0,
    traces: TraceLibrary | None = None,
) -> Rates:
    """Compute the load at the beginning of every tick, as a multiplier of the reference rate.

    Args:
        spec: The load.
        seed: Seed, 0 or more; the same seed gives the same load.
        duration_s: Length of the load, in seconds.
        dt_s: Length of a tick, in seconds.
        traces: The library of recorded loads; a new one when None.

    Returns:
        ``round(duration_s / dt_s)`` rates, none of them negative.

    Raises:
        LoadError: The load has no tick, or the seed is out of range.
    """
    if not (dt_s > 0 and duration_s >= dt_s and math.isfinite(duration_s)):
        raise LoadError(
            f"a load of {duration_s:g} s in ticks of {dt_s:g} s has no tick",
            remedy="Choose a duration of at least one tick.",
        )
    if not 0 <= seed < 2**64:
        raise LoadError("seeds are 0 or more and below 2^64", key="seed", value=seed)
    ticks = _Ticks(round(duration_s / dt_s), dt_s, seed, traces or TraceLibrary())
    return ticks.rates(spec, 0)


def minute_means(rates: Floats) -> Floats:
    """Average over whole minutes.

    Args:
        rates: (seconds,) rates of a load.

    Returns:
        (minutes,) means; an incomplete minute at the end is dropped.
    """
    # 60 s per minute; rates are per second.
    whole = len(rates) // 60 * 60
    return np.asarray(rates[:whole].reshape(-1, 60).mean(axis=1))


def philox(seed: int, node: int, purpose: int) -> np.random.Generator:
    """Return the stream of random numbers of one node of a load, for one purpose.

    Returns:
        A generator; equal keys give equal numbers.
    """
    # Two words of 64 bits: the seed, and domain, node and purpose.
    key = np.array([seed, _DOMAIN + (node << 2) + purpose], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


class _Ticks:
    """The ticks of one load, and the rates of each form at them."""

    def __init__(self, count: int, dt_s: float, seed: int, traces: TraceLibrary) -> None:
        self.count = count
        self.dt_s = dt_s
        self.seed = seed
        self.traces = traces
        self.t_s: Rates = np.arange(count, dtype=np.float64) * dt_s
        self.duration_s = count * dt_s

    def rates(self, spec: LoadSpec, node: int) -> Rates:
        """Compute the rates of a load, given its place among all nodes."""
        # Shape first, then noise, then scale: the noise is relative to the shape.
        rate = self._shape(spec, node)
        if spec.noise_cv > 0:
            rate *= self._noise(spec.noise_cv, spec.noise_correlation_s, node)
        if spec.scale != 1.0:
            rate *= spec.scale
        return np.maximum(rate, 0.0, out=rate)

    def _shape(self, spec: LoadSpec, node: int) -> Rates:
        match spec:
            case Constant():
                return np.full(self.count, spec.rate)
            case Step():
                # Each value holds from its time on: the last step at or before t.
                times, values = np.array(spec.steps, dtype=np.float64).T
                return np.asarray(values[np.searchsorted(times, self.t_s, side="right") - 1])
            case Ramp():
                return np.interp(self.t_s, [spec.from_s, spec.to_s], [spec.from_rate, spec.to_rate])
            case Diurnal():
                return self._diurnal(spec, node)
            case Burst():
                return self._bursts(spec, node)
            case FlashCrowd():
                return self._flash_crowd(spec, node)
            case MarkovModulated():
                return self._markov(spec, node)
            case TraceLoad():
                return self._trace(spec, node)
            case Sum():
                return self._sum(spec, node)
            case InstalledLoad():
                return self._own(spec, node)

    def _own(self, spec: InstalledLoad, node: int) -> Rates:
        found = own_load(spec).rates(self.t_s, philox(self.seed, node, SHAPE))
        # A copy, since the noise is multiplied in place.
        rate = np.array(found, dtype=np.float64)
        if rate.shape != self.t_s.shape or not np.isfinite(rate).all():
            raise LoadError(
                f"form '{spec.form}' gives rates of shape {rate.shape} for {self.count} times",
                remedy="It must return one finite rate per time.",
            )
        return rate

    def _sum(self, spec: Sum, node: int) -> Rates:
        total = np.zeros(self.count)
        # Places count all nodes depth first (`nodes`), so each part has separate streams.
        place = node + 1
        for part in spec.parts:
            total += self.rates(part, place)
            place += sum(1 for _ in nodes(part))
        return total

    def _diurnal(self, spec: Diurnal, node: int) -> Rates:
        if spec.phase_s == "random":
            phase_s = philox(self.seed, node, SHAPE).random() * spec.period_s
        else:
            phase_s = spec.phase_s
        # In radians per second of load.
        per_s = 2 * math.pi / spec.period_s
        day = _cosine(per_s * phase_s, per_s * self.dt_s, self.count)
        day *= -spec.amplitude
        day += spec.mean
        return day

    def _bursts(self, spec: Burst, node: int) -> Rates:
        rate = np.zeros(self.count)
        if spec.rate_per_h == 0:
            return rate
        stream = philox(self.seed, node, SHAPE)
        # Bursts from before the begin may still last, so that the start is like any other moment.
        begin_s = -spec.duration_s[1]
        while begin_s < self.duration_s:
            draws = stream.random((_EVENTS_AT_ONCE, 3))
            # Exponential gaps by inversion: -ln(1 - u) x mean gap makes a Poisson process.
            begins_s = begin_s + np.cumsum(-np.log1p(-draws[:, 0])) * (3600 / spec.rate_per_h)
            magnitudes = _between(spec.magnitude, draws[:, 1])
            durations_s = _between(spec.duration_s, draws[:, 2])
            here = begins_s < self.duration_s
            here &= begins_s + durations_s > 0
            for begin, magnitude, duration in zip(
                begins_s[here].tolist(),
                magnitudes[here].tolist(),
                durations_s[here].tolist(),
                strict=True,
            ):
                first = max(0, math.ceil(begin / self.dt_s))
                last = math.ceil((begin + duration) / self.dt_s)
                if spec.shape == "rectangular":
                    rate[first:last] += magnitude
                else:
                    age = self.t_s[first:last] - begin
                    # exp(-ln(20)) = 5 % of the magnitude is left at the burst's end.
                    rate[first:last] += magnitude * np.exp(age * (-math.log(20) / duration))
            begin_s = float(begins_s[-1])
        return rate

    def _flash_crowd(self, spec: FlashCrowd, node: int) -> Rates:
        draws = philox(self.seed, node, SHAPE).random((len(spec.peaks), 2))
        rate = np.full(self.count, spec.base)
        # Peaks add where they meet, each with a draw for its time and one for its height.
        for peak, (when, how_high) in zip(spec.peaks, draws, strict=True):
            since_s = self.t_s - _between(peak.at_s, when)
            magnitude = _between(peak.magnitude, how_high)
            decay = np.where(since_s < 0, since_s / peak.rise_s, since_s / -peak.decay_s)
            rate += magnitude * np.exp(decay, out=decay)
        return rate

    def _markov(self, spec: MarkovModulated, node: int) -> Rates:
        count = len(spec.states)
        state_rate = np.array([state.rate for state in spec.states])
        sojourn_s = np.array([state.mean_sojourn_s for state in spec.states])
        stream = philox(self.seed, node, SHAPE)
        # Each state is visited equally often, so the time in it is proportional to its sojourn; and
        # an exponential sojourn has no memory. So the chain begins as if it had always run.
        share = np.cumsum(sojourn_s) / np.sum(sojourn_s)
        state = int(np.searchsorted(share, stream.random(), side="right")) % count
        end_s = 0.0
        ends: list[Rates] = []
        states: list[Ints] = []
        while end_s < self.duration_s:
            draws = stream.random((_EVENTS_AT_ONCE, 2))
            # The next state is any but the present one, all equally likely.
            jumps = 1 + (draws[:, 1] * (count - 1)).astype(np.int64)
            visited = (state + np.concatenate([[0], np.cumsum(jumps)])) % count
            states.append(visited[:-1])
            ends.append(end_s + np.cumsum(-np.log1p(-draws[:, 0]) * sojourn_s[visited[:-1]]))
            state, end_s = int(visited[-1]), float(ends[-1][-1])
        # The sojourn in which each tick falls.
        place = np.searchsorted(np.concatenate(ends), self.t_s, side="right")
        return state_rate[np.concatenate(states)[place]]

    def _trace(self, spec: TraceLoad, node: int) -> Rates:
        trace = self.traces.get(spec.path, spec.columns)
        to_s = trace.end_s if spec.to_s is None else spec.to_s
        from_s = max(spec.from_s, float(trace.t_s[0]))
        if to_s > trace.end_s:
            raise LoadError(
                f"the trace ends at {trace.end_s:g} s", file=trace.path, key="to_s", value=to_s
            )
        # Seconds of the trace left over: the room for a random begin.
        spare_s = to_s - from_s - self.duration_s * spec.compress
        # A microsecond of slack: to_s / compress need not be a round number.
        if spare_s < -1e-6:
            raise LoadError(
                f"the window {from_s:g}..{to_s:g} s gives {(to_s - from_s) / spec.compress:g} s "
                f"of load at compress {spec.compress:g}, and {self.duration_s:g} s are needed",
                file=trace.path,
                remedy="Widen the window, lower compress, or shorten the episode.",
            )
        if spec.start == "random" and spare_s > 0:
            from_s += spare_s * philox(self.seed, node, SHAPE).random()
        t_s = from_s + self.t_s * spec.compress
        if spec.interpolation == "linear":
            rate = np.interp(t_s, trace.t_s, trace.rate)
        else:
            rate = trace.rate[np.searchsorted(trace.t_s, t_s, side="right") - 1]
        if spec.divide_by_peak:
            rate /= max(float(trace.rate.max()), np.finfo(np.float64).tiny)
        return rate

    def _noise(self, cv: float, correlation_s: float, node: int) -> Rates:
        """Draw a log-normal factor with mean 1 and a stationary AR(1) logarithm."""
        normal = philox(self.seed, node, NOISE).standard_normal(self.count)
        if correlation_s > 0:
            keep = math.exp(-self.dt_s / correlation_s)
            # Shocks of variance 1 - keep^2 keep the variance of the sum at 1.
            normal[1:] *= math.sqrt(1 - keep * keep)
            _accumulate(normal, keep)
        # Of a log-normal: variance ln(1 + cv^2), and half of it subtracted gives mean 1.
        variance = math.log1p(cv * cv)
        normal *= math.sqrt(variance)
        normal -= variance / 2
        return np.exp(normal, out=normal)


def _between(bounds: Between, share: Rates | float) -> Rates:
    low, high = bounds
    return np.asarray(low + (high - low) * share)


def _cosine(begin: float, step: float, count: int) -> Rates:
    """Compute ``cos(begin + i * step)`` for i < count, by the angle-sum formula: few cosines."""
    # cos(a + b) = cos a cos b - sin a sin b, with a per block and b inside it.
    blocks = begin + step * _SINE_BLOCK * np.arange(-(-count // _SINE_BLOCK))[:, None]
    inside = step * np.arange(_SINE_BLOCK)
    cosine = np.cos(blocks) * np.cos(inside) - np.sin(blocks) * np.sin(inside)
    return np.asarray(cosine.ravel()[:count])


def _accumulate(values: Rates, keep: float) -> None:
    """Turn shocks into ``x[i] = keep * x[i-1] + shock[i]`` in place, by doubling.

    After k rounds x[i] holds the last 2^k shocks; the weight of older ones is keep^(2^k).
    """
    reach, weight = 1, keep
    while reach < len(values) and weight > _FORGOTTEN:
        values[reach:] += weight * values[:-reach]
        reach, weight = 2 * reach, weight * weight
