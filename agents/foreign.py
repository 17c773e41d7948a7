"""Models of other libraries, read as arrays: nothing in them is executed.

Stable-Baselines3's `model.save` writes a zip with the weights (`policy.pth`) and a JSON document
(`data`) that holds pickles as text; those are never read. `torch.save(model.state_dict())` writes
the weights alone.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from dsp_gym.arrays import Floats32
from dsp_gym.errors import PolicyError

LARGEST = 256 * 2**20
"""Largest size of a model in bytes, packed or unpacked."""

LARGEST_DATA = 16 * 2**20

UNREADABLE = (
    pickle.UnpicklingError,
    RuntimeError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    EOFError,
    MemoryError,
    OSError,
    ImportError,
    struct.error,
    zipfile.BadZipFile,
)
"""Errors that reading a damaged or hostile file may raise."""

State = Mapping[str, Floats32]


class ForeignModel(NamedTuple):
    """The weights of a model, and the facts that its file states in plain text."""

    state: State
    algorithm: str | None
    """Name as in experiments; None: the file does not say."""
    activation: str | None
    steps: int


class Lstm(NamedTuple):
    """An LSTM of one layer, gates in torch's order."""

    seen: Floats32
    """Weight of the observation, (4 width, inputs)."""
    hidden: Floats32
    """Weight of the hidden state, (4 width, width)."""
    seen_bias: Floats32
    hidden_bias: Floats32


class PlainLayers(NamedTuple):
    """The actor, or the values of all choices, as plain layers, behind an LSTM if it has one."""

    layers: list[tuple[Floats32, Floats32]]
    """Weight (outputs, inputs) and bias (outputs,) of each layer."""
    activation: str
    """Default activation of the libraries that name weights like this."""
    quantiles: bool
    """Whether each choice has several outputs, to be averaged."""
    lstm: Lstm | None = None

    @property
    def inputs(self) -> int:
        """Length of the observation the network reads."""
        first = self.layers[0][0] if self.lstm is None else self.lstm.seen
        return int(first.shape[1])


class _Family(NamedTuple):
    """Names of the layers of a library's networks."""

    hidden: str
    last: str | None  # None: the last of the hidden ones
    activation: str
    quantiles: bool = False


FAMILIES = (
    _Family("mlp_extractor.policy_net.", "action_net", "tanh"),  # PPO, A2C, TRPO and kin
    _Family("q_net.q_net.", None, "relu"),  # DQN
    _Family("quantile_net.quantile_net.", None, "relu", quantiles=True),  # QR-DQN
    _Family("actor.", None, "tanh"),  # CleanRL's PPO
    _Family("q_network.network.", None, "relu"),
    _Family("network.", None, "relu"),  # CleanRL's DQN
    _Family("", None, "tanh"),  # a torch.nn.Sequential
)

LSTM = tuple(f"lstm_actor.{name}_l0" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
"""Names of RecurrentPPO's weights, in the order of `Lstm`."""

BESIDE = ("value_net.", "mlp_extractor.value_net.", "critic.", "lstm_critic.", "q_net_target.")
BESIDE_TOO = ("quantile_net_target.", "target_network.", "log_std")
"""Prefixes of weights that take no part in deciding."""

ALGORITHMS = {
    "sb3_contrib.common.maskable.policies": "maskable-ppo",
    "sb3_contrib.common.recurrent.policies": "recurrent-ppo",
    "sb3_contrib.qrdqn.policies": "qr-dqn",
    "stable_baselines3.dqn.policies": "dqn",
}
"""Algorithm by the module of the policy's class; other algorithms share one module."""


def read_model(file: Path) -> ForeignModel:
    """Read the weights of a model that another library saved.

    Args:
        file: Stable-Baselines3's `.zip`, or a `.pt` or `.pth` with a `state_dict`.

    Returns:
        Float32 arrays by name, and the facts stated in plain text.

    Raises:
        PolicyError: It cannot be read, is larger than such a model, or holds anything but numbers.
    """
    try:
        if file.stat().st_size > LARGEST:
            raise _refused(file, f"has more than {LARGEST // 2**20} MiB")
        content = file.read_bytes()
    except OSError as error:
        raise PolicyError(f"cannot be read: {error.strerror}", file=file) from error
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if "policy.pth" not in archive.namelist():
                return ForeignModel(_tensors(content, file), None, None, 0)
            weights = _member(archive, "policy.pth", LARGEST, file)
            said = _plain_data(archive, file)
    except zipfile.BadZipFile:
        raise _refused(
            file, "is no zip: neither model.save(...) nor torch.save(...) wrote it"
        ) from None
    return said._replace(state=_tensors(weights, file))


def plain_layers(state: State, file: str | Path) -> PlainLayers:
    """Find the layers that decide, of a network of plain layers, behind an LSTM or not.

    Args:
        state: Weights by name.
        file: Source of the weights, for errors.

    Returns:
        The layers in their order.

    Raises:
        PolicyError: The network has other parts, or its layers do not follow each other.
    """
    # The first family whose names occur is taken; the empty prefix, which fits any
    # torch.nn.Sequential, comes last.
    for family in FAMILIES:
        numbers = sorted(
            int(name[len(family.hidden) : -len(".weight")])
            for name in state
            if name.startswith(family.hidden)
            and name[len(family.hidden) : -len(".weight")].isdigit()
            and name.endswith(".weight")
        )
        last = [] if family.last is None else [family.last]
        if (numbers or family.last) and all(f"{name}.weight" in state for name in last):
            names = [*(f"{family.hidden}{number}" for number in numbers), *last]
            break
    else:
        raise _no_plain_layers(file, list(state))
    lstm = Lstm(*(state[name] for name in LSTM)) if all(map(state.__contains__, LSTM)) else None
    known = {f"{name}.{part}" for name in names for part in ("weight", "bias")}
    known |= set() if lstm is None else set(LSTM)
    strange = [name for name in state if name not in known and not _is_beside(name)]
    if strange:
        raise _no_plain_layers(file, strange)
    layers: list[tuple[Floats32, Floats32]] = []
    for name in names:
        weight = state[f"{name}.weight"]
        bias = state.get(f"{name}.bias", np.zeros(weight.shape[:1], np.float32))
        fits = weight.ndim == 2 and bias.shape == weight.shape[:1]
        if not fits or (layers and layers[-1][0].shape[0] != weight.shape[1]):
            raise _no_plain_layers(file, [name])
        layers.append((weight, bias))
    if lstm is not None and not _fits(lstm, layers[0][0].shape[1]):
        raise _no_plain_layers(file, list(LSTM))
    return PlainLayers(layers, family.activation, family.quantiles, lstm)


def _fits(lstm: Lstm, width: int) -> bool:
    """Return whether the parts of an LSTM fit each other and the layer behind it."""
    shapes = [one.shape for one in lstm]
    return shapes == [(4 * width, lstm.seen.shape[-1]), (4 * width, width), *[(4 * width,)] * 2]


def _is_beside(name: str) -> bool:
    return name.startswith((*BESIDE, *BESIDE_TOO))


def _no_plain_layers(file: str | Path, names: list[str]) -> PolicyError:
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    recurrent = any("lstm" in name or "gru" in name for name in names)
    why = "has other parts than plain layers"
    if recurrent:
        why = "remembers what it saw by other means than RecurrentPPO's LSTM of one layer"
    return PolicyError(
        f"the network {why}, which a policy folder cannot hold: {shown}",
        file=file,
        remedy="Import a model whose policy is MlpPolicy or MlpLstmPolicy with the default "
        "features extractor, or whose state_dict is that of a torch.nn.Sequential.",
    )


def _refused(file: Path, why: str) -> PolicyError:
    return PolicyError(
        f"cannot be imported as a model: it {why}",
        file=file,
        remedy="Name a file that model.save(...) of Stable-Baselines3 wrote, or "
        "torch.save(model.state_dict(), ...).",
    )


def _member(archive: zipfile.ZipFile, name: str, largest: int, file: Path) -> bytes:
    """Read a member of an archive; refuse a longer one, whatever its header says."""
    try:
        with archive.open(name) as stream:
            content = stream.read(largest + 1)
    except UNREADABLE as error:
        raise _refused(file, f"holds a damaged '{name}' ({error})") from None
    if len(content) > largest:
        raise _refused(file, f"unpacks to more than {largest // 2**20} MiB")
    return content


def _tensors(content: bytes, file: Path) -> State:
    """Load the weights that torch saved, without running anything in them."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
                raise _refused(file, f"unpacks to more than {LARGEST // 2**20} MiB")
        held = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise _refused(file, f"holds more than weights, or is damaged ({first})") from None
    for key in ("state_dict", "model_state_dict", "policy"):
        if isinstance(held, Mapping) and isinstance(held.get(key), Mapping):
            held = held[key]
    if not isinstance(held, Mapping) or not held:
        raise _refused(file, "holds no state_dict")
    return {str(name): _array(str(name), value, file) for name, value in held.items()}


def _array(name: str, value: object, file: Path) -> Floats32:
    is_dense = isinstance(value, torch.Tensor) and value.layout == torch.strided
    # Checked before it is copied: a strided tensor may stand for far more numbers than it stores.
    if not is_dense or not isinstance(value, torch.Tensor) or 4 * value.numel() > LARGEST:
        raise _refused(file, f"holds something else than weights as '{name}'")
    if not value.is_floating_point() or not bool(torch.isfinite(value).all()):
        raise _refused(file, f"holds no finite numbers as '{name}'")
    return np.asarray(value.detach().to(torch.float32).contiguous().numpy())


def _plain_data(archive: zipfile.ZipFile, file: Path) -> ForeignModel:
    """Read the plain text in `data`; its pickles are passed over."""
    try:
        data = json.loads(_member(archive, "data", LARGEST_DATA, file))
    except (ValueError, RecursionError, PolicyError):  # the weights alone suffice
        data = {}
    data = data if isinstance(data, dict) else {}
    policy, arguments = (
        found if isinstance(found := data.get(key), dict) else {}
        for key in ("policy_class", "policy_kwargs")
    )
    module, activation = str(policy.get("__module__")), str(arguments.get("activation_fn"))
    steps = data.get("num_timesteps")
    known = {"ReLU": "relu", "Tanh": "tanh"}
    named = activation.rpartition(".")[2].rstrip("'>")
    if "activation_fn" in arguments and named not in known:
        raise PolicyError(
            "the network's activation is neither tanh nor relu",
            file=file,
            key="activation_fn",
            value=activation,
            remedy="Train it with torch.nn.Tanh or torch.nn.ReLU.",
        )
    return ForeignModel(
        {},
        ALGORITHMS.get(module),
        known.get(named),
        steps if isinstance(steps, int) and steps >= 0 else 0,
    )
