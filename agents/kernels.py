"""Loops of PPO beside its matrix products: sampling, loss, messages, pooling, advantages.

Letters: r counts the R rows of a piece, v and u the V vertices, k the K logits, f features, j the J
jobs, e the edges of a job, p a probability. `rows` names the rows of the rollout that a piece was
drawn from. A name with `d_` is the derivative of the loss by that quantity.

All arithmetic stays in float32, hence the constants of that type: a Python float in an expression
would promote it to float64 under numba.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsp_gym.arrays import Bools, Floats, Floats32, Ints
from dsp_gym.compiling import njit

ZERO, ONE = np.float32(0), np.float32(1)  # typed: 0.0 and 1.0 would be float64 in compiled code
LOWEST = np.float32(-3e38)  # below every logit, FORBIDDEN included


class RolloutDecisions(NamedTuple):
    """N decisions of a rollout."""

    actions: Ints  # (N, parts), two parts per vertex
    masks: Bools  # (N, K) of K logits, ten per vertex; a padded vertex may only hold
    starts: Ints  # (parts + 1,) place of each part's first logit, then K
    log_prob: Floats32  # (N,) when they were made
    advantage: Floats32  # (N,) normalised over the minibatch
    target: Floats32  # (N,) return that the critic learns


class Links(NamedTuple):
    """Edges of J jobs, up to E per job; the first share of 0 ends a job's list."""

    reader: Ints  # (J, E) the vertex downstream
    read: Ints  # (J, E) the vertex upstream
    up: Floats32  # (J, E) 1 / number of vertices that the reader reads
    down: Floats32  # (J, E) 1 / number of readers of the vertex upstream


class Coefficients(NamedTuple):
    """Coefficients of PPO's loss."""

    clip: np.float32  # largest change of the probability ratio from 1
    entropy: np.float32
    value: np.float32
    share: np.float32  # weight of a row in the means: 1 / size of the minibatch


@njit(cache=True, nogil=True, error_model="numpy")
def normalise(
    observation: Floats32,
    shift: Floats32,
    scale: Floats32,
    features: int,
    limit: np.float32,
    inputs: Floats32,
) -> None:
    """Write a network's input: features shifted, scaled and cut, then the mask of vertices.

    Args:
        observation: (J, size) observations.
        shift: (V Fv + Fj,) shift of each column.
        scale: (V Fv + Fj,) scale of each column.
        features: Fv, features of a vertex.
        limit: Largest normalised value.
        inputs: (J, V Fv + Fj + V), written; 0 in padding.
    """
    columns = len(shift)
    # The columns of the observation: V * Fv vertex features, Fj job features, V of the mask, and V
    # * V edges, which networks read through `Links` instead.
    vertices = inputs.shape[1] - columns
    for r in range(len(observation)):
        for f in range(columns):
            x = (observation[r, f] - shift[f]) * scale[f]
            inputs[r, f] = min(max(x, -limit), limit)
        for v in range(vertices):
            there = observation[r, columns + v]
            inputs[r, columns + v] = there
            # Padding reads as zeros whatever its features hold, as in `agents.extractor`.
            if there == ZERO:
                for f in range(v * features, (v + 1) * features):
                    inputs[r, f] = ZERO


@njit(cache=True, nogil=True, error_model="numpy")
def draw(
    logits: Floats32,
    masks: Bools,
    uniforms: Floats32,
    starts: Ints,
    actions: Ints,
    log_prob: Floats32,
) -> None:
    """Draw every part of an action: per vertex a move of parallelism, then one of memory.

    Args:
        logits: (R, K) logits.
        masks: (R, K) valid choices.
        uniforms: (R, parts) random numbers between 0 and 1.
        starts: (parts + 1,) index of each part's first logit, then K.
        actions: (R, parts), written.
        log_prob: (R,) log-probability of all parts of a row together, written.
    """
    for r in range(len(logits)):
        whole = ZERO
        for block in range(actions.shape[1]):
            first, last = starts[block], starts[block + 1]
            # The largest valid logit is subtracted before `exp`, which thus cannot overflow.
            top, total = LOWEST, ZERO
            for k in range(first, last):
                if masks[r, k]:
                    top = max(top, logits[r, k])
            for k in range(first, last):
                if masks[r, k]:
                    total += math.exp(logits[r, k] - top)
            # Inversion: the first move at which the running sum of probabilities exceeds the
            # uniform. If rounding leaves a rest at the end, the last valid move is taken.
            left, chosen = uniforms[r, block] * total, first
            for k in range(first, last):
                if masks[r, k]:
                    chosen = k
                    left -= math.exp(logits[r, k] - top)
                    if left < ZERO:
                        break
            actions[r, block] = chosen - first
            # Parts are independent given the observation: their log-probabilities add up.
            whole += logits[r, chosen] - top - math.log(total)
        log_prob[r] = whole


@njit(cache=True, nogil=True, error_model="numpy")
def _chances(
    logits: Floats32,
    decisions: RolloutDecisions,
    row: int,
    chances: Floats32,
    norm: Floats32,
    entropy: Floats32,
) -> tuple[np.float32, np.float32]:
    """Compute the softmax of one row, block by block; moves that bounds forbid have no chance.

    Args:
        logits: (K,) logits.
        decisions: Decisions of the rollout.
        row: Index of the row among them.
        chances: (K,), written: the probability p of each move.
        norm: (blocks,), written: log p = logit - norm.
        entropy: (blocks,), written: H = -sum p log p.

    Returns:
        The log probability of the decision, and the entropy over all blocks.
    """
    log_prob, disorder = ZERO, ZERO
    for block in range(len(norm)):
        first, last = decisions.starts[block], decisions.starts[block + 1]
        # mean: the sum of p (logit - top), p not normalised; lim p log p = 0 for p = 0.
        top, total, mean = LOWEST, ZERO, ZERO
        for k in range(first, last):
            if decisions.masks[row, k]:
                top = max(top, logits[k])
        for k in range(first, last):
            p = math.exp(logits[k] - top) if decisions.masks[row, k] else ZERO
            chances[k] = p
            total += p
            mean += p * (logits[k] - top) if p > ZERO else ZERO
        # With Z the sum of exp(logit - top): norm = top + log Z, log p = logit - norm, and the
        # entropy H = -sum p log p = log Z - mean / Z.
        norm[block] = top + math.log(total)
        entropy[block] = math.log(total) - mean / total
        log_prob += logits[first + decisions.actions[row, block]] - norm[block]
        disorder += entropy[block]
        for k in range(first, last):
            chances[k] /= total
    return log_prob, disorder


@njit(cache=True, nogil=True, error_model="numpy")
def surrogate(
    logits: Floats32,
    values: Floats32,
    decisions: RolloutDecisions,
    rows: Ints,
    weigh: Coefficients,
    d_logits: Floats32,
    d_values: Floats32,
    figures: Floats,
) -> None:
    """Compute PPO's clipped loss of some rows, and its gradient.

    The loss of a row (Schulman et al., 2017, equation 9), with a the advantage, q the ratio of the
    action's probability to its old one, H the entropy and e the critic's error:

        L = -min(q a, clip(q, 1 - clip, 1 + clip) a) - entropy H + value e^2

    Args:
        logits: (R, K) logits.
        values: (R, 1) values of the critic.
        decisions: Decisions of the rollout.
        rows: (R,) indices of the rows among them.
        weigh: Coefficients of the loss.
        d_logits: (R, K), written.
        d_values: (R, 1), written.
        figures: (5,) sums that grow by the rows' shares of: the actor's loss, the critic's loss,
            the entropy, the divergence from the old policy, and the share of clipped rows.
    """
    blocks = decisions.actions.shape[1]
    norm, entropy = np.empty(blocks, np.float32), np.empty(blocks, np.float32)
    for r in range(len(rows)):
        row = rows[r]
        log_prob, disorder = _chances(logits[r], decisions, row, d_logits[r], norm, entropy)
        change = log_prob - decisions.log_prob[row]
        ratio, gain = math.exp(change), decisions.advantage[row]
        inside = min(max(ratio, ONE - weigh.clip), ONE + weigh.clip)
        # The minimum counts; where it is the clipped term, its gradient is zero. Otherwise dL/d(log
        # p) = -a q, since dq = q d(log p).
        pull = -weigh.share * gain * ratio if gain * ratio <= gain * inside else ZERO
        push = weigh.share * weigh.entropy
        for block in range(blocks):
            first, last = decisions.starts[block], decisions.starts[block + 1]
            chosen = first + decisions.actions[row, block]
            for k in range(first, last):
                p = d_logits[r, k]  # a probability until the gradient takes its place
                # dH/d(logit k) = -p (log p + H), hence this slope for the loss's -entropy H; and
                # d(log p of the chosen)/d(logit k) = [k = chosen] - p.
                slope = push * p * (logits[r, k] - norm[block] + entropy[block])
                own = ONE if k == chosen else ZERO
                d_logits[r, k] = pull * (own - p) + (slope if p > ZERO else ZERO)
        error = values[r, 0] - decisions.target[row]
        d_values[r, 0] = weigh.share * weigh.value * np.float32(2) * error

        figures[0] -= weigh.share * min(gain * ratio, gain * inside)
        figures[1] += weigh.share * error * error
        figures[2] += weigh.share * disorder
        # q - 1 - log q estimates KL(old, new): unbiased, never negative (Schulman, 2020).
        figures[3] += weigh.share * (ratio - ONE - change)
        figures[4] += weigh.share if abs(ratio - ONE) > weigh.clip else ZERO


@njit(cache=True, nogil=True, error_model="numpy")
def through(delta: Floats32, out: Floats32, tanh: bool, bias: Floats32) -> None:
    """Take a gradient back through an activation, and add it to that of the layer's bias.

    Args:
        delta: (N, width) derivative by the activation's output; overwritten by that by its input.
        out: (N, width) output of the activation.
        tanh: Whether it is tanh, else relu.
        bias: (width,) gradient of the bias; added to.
    """
    # The branch is outside of the loops, so that each loop is vectorised.
    if tanh:
        for r in range(len(delta)):
            for f in range(delta.shape[1]):
                # tanh'(x) = 1 - tanh(x)^2: the output suffices, the input need not be kept.
                d = delta[r, f] * (ONE - out[r, f] * out[r, f])
                delta[r, f] = d
                bias[f] += d
    else:
        for r in range(len(delta)):
            for f in range(delta.shape[1]):
                # relu' is 1 where the output is positive; at 0 the subgradient 0, as in torch.
                d = delta[r, f] if out[r, f] > ZERO else ZERO
                delta[r, f] = d
                bias[f] += d


@njit(cache=True, nogil=True, error_model="numpy")
def hear(links: Links, rows: Ints, message: Floats32, heard: Floats32) -> None:
    """Average the messages of each vertex's neighbours.

    Args:
        links: Edges of the J jobs.
        rows: (R,) rows of the rollout; row n is one of job n modulo J.
        message: (R, V, M) messages.
        heard: (R, V, 2, M), written: means from upstream, then from downstream.
    """
    jobs, most = links.reader.shape
    vertices, width = message.shape[1], message.shape[2]
    for r in range(len(rows)):
        # Buffers are reused between pieces: cleared first. The work is per edge, not V * V as a
        # product with the adjacency matrix would be.
        for v in range(vertices):
            for f in range(width):
                heard[r, v, 0, f] = ZERO
            for f in range(width):
                heard[r, v, 1, f] = ZERO
        j = rows[r] % jobs
        for e in range(most):
            v, u, up, down = links.reader[j, e], links.read[j, e], links.up[j, e], links.down[j, e]
            if up == ZERO:
                break
            # Two loops, not one: each reads and writes rows that lie contiguously, and becomes
            # vector code.
            for f in range(width):
                heard[r, v, 0, f] += message[r, u, f] * up
            for f in range(width):
                heard[r, u, 1, f] += message[r, v, f] * down


@njit(cache=True, nogil=True, error_model="numpy")
def hear_backward(links: Links, rows: Ints, d_heard: Floats32, d_message: Floats32) -> None:
    """Write the gradient of the messages, given that of the means heard.

    The transpose of `hear`: what vertex v heard from u with a share returns to u with that share.

    Args:
        links: Edges of the J jobs.
        rows: (R,) rows of the rollout.
        d_heard: (R, V, 2, M) gradient of the means.
        d_message: (R, V, M), written.
    """
    jobs, most = links.reader.shape
    vertices, width = d_message.shape[1], d_message.shape[2]
    for r in range(len(rows)):
        for v in range(vertices):
            for f in range(width):
                d_message[r, v, f] = ZERO
        j = rows[r] % jobs
        for e in range(most):
            v, u, up, down = links.reader[j, e], links.read[j, e], links.up[j, e], links.down[j, e]
            if up == ZERO:
                break
            for f in range(width):
                d_message[r, u, f] += d_heard[r, v, 0, f] * up
            for f in range(width):
                d_message[r, v, f] += d_heard[r, u, 1, f] * down


@njit(cache=True, nogil=True, error_model="numpy")
def pool(
    h: Floats32, mask: Floats32, mean: Floats32, largest: Floats32, top: NDArray[np.int32]
) -> None:
    """Compute the mean and the largest embedding of a job's vertices.

    Args:
        h: (R, V, W) embeddings.
        mask: (R, V) 1 for vertices, 0 for padding.
        mean: (R, W), written.
        largest: (R, W), written.
        top: (R, W) vertex with the largest value, written; the last among equals.
    """
    width = h.shape[2]
    for r in range(len(h)):
        count = ZERO
        for v in range(h.shape[1]):
            count += mask[r, v]
        share = ONE / max(count, ONE)
        for f in range(width):
            mean[r, f], largest[r, f] = ZERO, LOWEST
        # One kind of operation per loop: the compiler vectorises each of them.
        for v in range(h.shape[1]):
            if mask[r, v] > ZERO:
                for f in range(width):
                    mean[r, f] += h[r, v, f] * share
                for f in range(width):
                    largest[r, f] = max(largest[r, f], h[r, v, f])
        # Indices in a second pass, for the same reason.
        for v in range(h.shape[1]):
            if mask[r, v] > ZERO:
                for f in range(width):
                    top[r, f] = np.int32(v) if h[r, v, f] == largest[r, f] else top[r, f]


@njit(cache=True, nogil=True, error_model="numpy")
def pool_backward(
    d_pooled: Floats32, mask: Floats32, top: NDArray[np.int32], d_h: Floats32
) -> None:
    """Add the gradient of mean and largest embedding to that of the embeddings.

    Args:
        d_pooled: (R, 2, W) gradient of the mean, then of the largest.
        mask: (R, V) 1 for vertices, 0 for padding.
        top: (R, W) vertices with the largest values, as `pool` wrote them.
        d_h: (R, V, W) gradient of the embeddings; added to.
    """
    width = d_h.shape[2]
    for r in range(len(d_h)):
        count = ZERO
        for v in range(d_h.shape[1]):
            count += mask[r, v]
        share = ONE / max(count, ONE)
        for v in range(d_h.shape[1]):
            if mask[r, v] > ZERO:
                for f in range(width):
                    d_h[r, v, f] += d_pooled[r, 0, f] * share
        # A maximum passes its gradient to one vertex only.
        for f in range(width):
            d_h[r, top[r, f], f] += d_pooled[r, 1, f]


@njit(cache=True, nogil=True, error_model="numpy")
def advantages(
    rewards: Floats32, values: Floats32, ends: Bools, gamma: float, keep: float, found: Floats32
) -> None:
    """Compute generalised advantages (Schulman et al., 2016, equation 16).

    With d_t = r_t + gamma V_(t+1) - V_t, backwards in time: A_t = d_t + gamma lambda A_(t+1).

    Args:
        rewards: (T, J) rewards; that of a truncated step includes the value of its successor.
        values: (T + 1, J) values of the critic before each step, and after the last.
        ends: (T, J) whether the episode ended with the step.
        gamma: Discount.
        keep: GAE's lambda.
        found: (T, J), written.
    """
    # float64 sums: found is rounded to float32 once, at each step.
    for j in range(rewards.shape[1]):
        future = 0.0
        for t in range(len(rewards) - 1, -1, -1):
            after = 0.0 if ends[t, j] else 1.0
            surprise = rewards[t, j] + gamma * after * values[t + 1, j] - values[t, j]
            future = surprise + gamma * keep * after * future
            found[t, j] = future


def links_of(adjacency: Floats32) -> Links:
    """List the edges of jobs.

    Args:
        adjacency: (J, V, V), 1 at (j, v, u) where vertex v of job j reads from u.

    Returns:
        The edges, in arrays as wide as the job with the most edges needs.
    """
    most = max(1, int(adjacency.sum(axis=(1, 2)).max()))
    job, reader, read = np.nonzero(adjacency)
    place = np.arange(len(job)) - np.searchsorted(job, job)  # rank of the edge within its job
    shape = (len(adjacency), most)
    links = Links(
        np.zeros(shape, np.int64),
        np.zeros(shape, np.int64),
        np.zeros(shape, np.float32),
        np.zeros(shape, np.float32),
    )
    links.reader[job, place], links.read[job, place] = reader, read
    # The means of `hear`: an edge weighs 1 / fan-in upstream, and 1 / fan-out downstream.
    links.up[job, place] = 1 / adjacency.sum(axis=2)[job, reader]
    links.down[job, place] = 1 / adjacency.sum(axis=1)[job, read]
    return links
