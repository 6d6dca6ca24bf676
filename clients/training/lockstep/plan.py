"""The layers of a module as a chain, and how lockstep computes them; or why it cannot.

The module is traced by `torch.fx` and run with two batch sizes: on the processor, since a layer on
the meta device imports torch's compiler, which takes a second and more. A module that mixes
samples, branches, or has a layer not listed here is rejected.

Path and plan affect an update's last digits, and have to be the same on every machine of a run. The
path is chosen once and written into the run document. The plan follows from the model, the training
settings and the data, by constants that were measured once.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from clients.datasets.federated_data import DataForm, FederatedData
from clients.devices import card_gib, device_named
from clients.models.model import Model, trainable
from clients.training.port import LocalTraining, TrainingPath


@dataclass(frozen=True, slots=True)
class Linear:
    """y = x Wᵀ + b, by the names of W and b in the module; None without b."""

    weight: str
    bias: str | None
    inputs: int
    outputs: int

    @property
    def size(self) -> int:
        return self.inputs * self.outputs

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (self.inputs,)


@dataclass(frozen=True, slots=True)
class Convolution:
    """A zero-padded convolution of images; kernels have (outputs, inputs, height, width)."""

    weight: str
    bias: str | None
    kernels: tuple[int, int, int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def size(self) -> int:
        return math.prod(self.kernels)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one kernel, channels last."""
        _, channels, height, width = self.kernels
        return (height, width, channels)


@dataclass(frozen=True, slots=True)
class Relu:
    """max(x, 0)."""


@dataclass(frozen=True, slots=True)
class MaxPool:
    """The maximum of each window of an image, padded with minus infinity."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reshape:
    """Another shape of each sample, with its elements in the same order."""


Layer = Linear | Convolution | Relu | MaxPool | Reshape


@dataclass(frozen=True, slots=True)
class ShapedLayer:
    """A layer with the shapes around it."""

    layer: Layer
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]


Chain = tuple[ShapedLayer, ...]


def pooled_first(chain: Chain) -> Chain:
    """Return the same function with each max-pooling before the ReLU that it follows.

    The result is equal to the last bit: max and ReLU preserve order, and for a window without
    positive elements both orders give 0 and pass no gradient.
    """
    layers = list(chain)
    for i in range(1, len(layers)):
        relu, pool = layers[i - 1], layers[i]
        if isinstance(relu.layer, Relu) and isinstance(pool.layer, MaxPool):
            layers[i - 1] = pool
            layers[i] = ShapedLayer(relu.layer, pool.output_shape, pool.output_shape)
    return tuple(layers)


_LINE = 16  # float32 numbers in 64 bytes, torch's alignment


def aligned(numbers: int) -> int:
    """Round up a count of float32 numbers to memory alignment: sums may depend on it."""
    return math.ceil(numbers / _LINE) * _LINE


class UnknownLayerError(Exception):
    """A module is not a chain of known layers; the message gives the reason."""


Arguments = dict[str, Any]

_BATCHES = (2, 3)
_RESHAPING = {
    "view", "reshape", "flatten", "squeeze", "unsqueeze",
    torch.flatten, torch.reshape, torch.squeeze, torch.unsqueeze,
}  # fmt: skip
_RELU = {"relu", functional.relu, torch.relu}
_CONVOLUTION = ("stride", "padding", "dilation", "groups")
_POOL = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_DIMENSIONS = {Linear: 1, Convolution: 3, MaxPool: 3}
_SIZES = {"size", "dim", getattr, operator.getitem, operator.mul, operator.floordiv}


def chain_of(module: nn.Module, form: DataForm) -> Chain:
    """Return the layers in order of a module on the processor, whose buffers may change."""
    if form.input_dtype != "float32":
        raise UnknownLayerError(f"its inputs are {form.input_dtype}")
    try:
        traced = fx.symbolic_trace(module.train())
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise UnknownLayerError(f"its forward cannot be traced: {_line(error)}") from error
    values = [_followed(traced, (batch, *form.input_shape)) for batch in _BATCHES]
    links: list[ShapedLayer] = []
    last: fx.Node | None = None
    for node in traced.graph.nodes:
        if node.op == "output":
            _require_chain(node, last, [node.args[0]])
        if node.op in {"output", "get_attr"} or not isinstance(values[0][node], torch.Tensor):
            if node.op not in {"output", "get_attr"} and node.target not in _SIZES:
                raise UnknownLayerError(f"{_name(node)} is not a supported layer")
            continue
        before, last = last, node
        if node.op == "placeholder":
            continue
        inputs = [n for n in node.all_input_nodes if n.op != "get_attr"]
        _require_chain(node, before, [n for n in inputs if isinstance(values[0][n], torch.Tensor)])
        shapes = [_sample_shape(n, values) for n in (before, node) if n is not None]
        layer = _layer(traced, node)
        if len(shapes[0]) != _DIMENSIONS.get(type(layer), len(shapes[0])):
            raise UnknownLayerError(f"{_name(node)} takes inputs of shape {shapes[0]}")
        links.append(ShapedLayer(layer, shapes[0], shapes[1]))
    _require_all_used(module, links)
    return tuple(links)


class _Follower(fx.Interpreter):
    def __init__(self, traced: fx.GraphModule) -> None:
        super().__init__(traced)
        self.extra_traceback = False  # for it, torch imports its compiler, for seconds
        self.values: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        self.values[n] = super().run_node(n)
        return self.values[n]


def _followed(traced: fx.GraphModule, shape: tuple[int, ...]) -> dict[fx.Node, Any]:
    follower = _Follower(traced)
    try:
        with (
            warnings.catch_warnings(action="ignore"),  # they are repeated in training
            torch.random.fork_rng(devices=()),
            torch.no_grad(),
        ):
            follower.run(torch.zeros(shape))
    except (Exception, SystemExit) as error:
        raise UnknownLayerError(f"its forward cannot be followed: {_line(error)}") from error
    return follower.values


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().split(chr(10))[0][:200]}"


def _require_chain(node: fx.Node, before: fx.Node | None, inputs: list[Any]) -> None:
    if inputs != [before]:
        raise UnknownLayerError(f"{_name(node)} takes more than the previous layer's output")


def _sample_shape(node: fx.Node, values: list[dict[fx.Node, Any]]) -> tuple[int, ...]:
    shapes = [tuple(values_[node].shape) for values_ in values]
    whole = all(shape[:1] == (batch,) for shape, batch in zip(shapes, _BATCHES, strict=True))
    if not whole or shapes[0][1:] != shapes[1][1:]:
        raise UnknownLayerError(f"{_name(node)} does not keep samples apart")
    return shapes[0][1:]


def _require_all_used(module: nn.Module, links: list[ShapedLayer]) -> None:
    layers = (link.layer for link in links if isinstance(link.layer, Linear | Convolution))
    used = [name for layer in layers for name in (layer.weight, layer.bias) if name is not None]
    expected = [name for name, _ in trainable(module)]
    if sorted(used) != sorted(expected):
        odd = sorted(set(used) ^ set(expected)) or sorted(n for n in used if used.count(n) > 1)
        raise UnknownLayerError(f"{odd[0]} is not trained by exactly one layer")


def _layer(traced: fx.GraphModule, node: fx.Node) -> Layer:
    if node.op == "call_module":
        return _of_module(node, traced.get_submodule(str(node.target)))
    if node.target in _RESHAPING:
        return Reshape()
    if node.target in _RELU:
        _arguments(node, ("input", "inplace"))
        return Relu()
    if node.target == functional.max_pool2d:
        return _pool(node, _arguments(node, ("input", *_POOL)))
    if node.target == functional.linear:
        arguments = _arguments(node, ("input", "weight", "bias"))
        names, weight = _parameters(traced, node, arguments)
        return Linear(*names, inputs=weight.shape[1], outputs=weight.shape[0])
    if node.target == functional.conv2d:
        arguments = _arguments(node, ("input", "weight", "bias", *_CONVOLUTION))
        names, weight = _parameters(traced, node, arguments)
        return _convolution(node, names, weight, arguments)
    raise UnknownLayerError(f"{_name(node)} is not a supported layer")


def _of_module(node: fx.Node, module: nn.Module) -> Layer:
    path, kind = str(node.target), type(module)  # a subclass may compute something else
    names = (f"{path}.weight", None if getattr(module, "bias", None) is None else f"{path}.bias")
    if isinstance(module, nn.Linear) and kind is nn.Linear:
        return Linear(*names, module.in_features, module.out_features)
    if isinstance(module, nn.Conv2d) and kind is nn.Conv2d:
        if module.padding_mode != "zeros":
            raise UnknownLayerError(f"{path} is a convolution with a border of other than zeros")
        arguments = {name: getattr(module, name) for name in _CONVOLUTION}
        return _convolution(node, names, module.weight, arguments)
    if kind is nn.MaxPool2d:
        return _pool(node, {name: getattr(module, name) for name in _POOL})
    if kind is nn.ReLU:
        return Relu()
    if kind in {nn.Flatten, nn.Unflatten, nn.Identity}:
        return Reshape()
    if kind is nn.Dropout and getattr(module, "p", None) == 0:
        return Reshape()
    raise UnknownLayerError(f"{path} is a {kind.__name__}, which is not a supported layer")


def _convolution(
    node: fx.Node, names: tuple[str, str | None], weight: torch.Tensor, arguments: Arguments
) -> Convolution:
    outputs, inputs, height, width = weight.shape
    dilation = _pair(arguments.get("dilation", 1))
    stride = _pair(arguments.get("stride", 1))
    padding = arguments.get("padding", 0)
    spans = [step * (side - 1) for step, side in zip(dilation, (height, width), strict=True)]
    if padding == "valid":
        padding = 0
    if padding == "same" and all(span % 2 == 0 for span in spans):
        padding = tuple(span // 2 for span in spans)
    if arguments.get("groups", 1) != 1 or isinstance(padding, str):
        raise UnknownLayerError(f"{_name(node)} is a convolution in groups or with an odd border")
    kernels = (outputs, inputs, height, width)
    return Convolution(*names, kernels, stride, _pair(padding), dilation)


def _pool(node: fx.Node, arguments: Arguments) -> MaxPool:
    kernel = _pair(arguments["kernel_size"])
    stride = arguments.get("stride")
    is_dilated = _pair(arguments.get("dilation", 1)) != (1, 1)
    if is_dilated or arguments.get("ceil_mode") or arguments.get("return_indices"):
        raise UnknownLayerError(f"{_name(node)} is an unsupported kind of pooling")
    return MaxPool(kernel, _pair(stride) if stride else kernel, _pair(arguments.get("padding", 0)))


def _arguments(node: fx.Node, names: tuple[str, ...]) -> Arguments:
    arguments = dict(zip(names, node.args, strict=False)) | node.kwargs
    if len(node.args) > len(names) or not set(arguments) <= set(names):
        raise UnknownLayerError(f"{_name(node)} has unsupported arguments")
    return arguments


def _parameters(
    traced: fx.GraphModule, node: fx.Node, arguments: Arguments
) -> tuple[tuple[str, str | None], torch.Tensor]:
    weight, bias = arguments["weight"], arguments.get("bias")
    for argument in (weight, bias):
        is_parameter = isinstance(argument, fx.Node) and argument.op == "get_attr"
        if argument is not None and not is_parameter:
            raise UnknownLayerError(f"{_name(node)} has a weight that is not a parameter")
    names = (str(weight.target), None if bias is None else str(bias.target))
    return names, traced.get_parameter(names[0])


def _pair(value: Any) -> tuple[int, int]:
    both = (value, value) if isinstance(value, int) else tuple(value)
    return (both[0], both[-1])


def _name(node: fx.Node) -> str:
    if node.op in {"output", "placeholder"}:
        return node.name
    called = node.target if isinstance(node.target, str) else node.target.__name__
    return f"{node.name} ({called})"


NO_PROXIMAL = "training.proximal is set, and lockstep takes steps of plain SGD alone"
"""Reason against lockstep: the low-rank changes would have to shrink at every step."""

# Below this many parameters a call costs more than its arithmetic; all clients share one call.
SMALL = 100_000
_LARGE_MATRIX = 250_000  # sharing a smaller matrix gains nothing: its products are short either way
# Rank of a change, relative to the smaller side of its matrix, up to which factors are cheaper.
_LOW_RANK = 0.5
_ROWS = 100  # rows with which a product runs at nearly the full speed of a core
_LARGEST_CHUNK = 10  # more clients gained nothing, and the last chunk would be emptier
_CHUNK_BYTES = 512_000_000  # limit of a chunk's matrices in memory
# On a card launches count, not a cache; more clients leave the last chunk emptier. Not measured.
_LARGEST_CARD_CHUNK = 32
# Part of a card's memory for a chunk: updates stay there too, and workers may share it.
_CARD_SHARE = 8


class LayerMethod(Enum):
    """A way to compute a layer for all clients of a chunk."""

    SHARED = "one shared matrix, low-rank changes"
    STACKED = "one matrix for each client, in one call"
    BY_CLIENT = "client by client, channels last"
    WHOLE = "all clients in one call"


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """The computation of a chain: batches are padded, and no client takes more steps."""

    kinds: tuple[LayerMethod, ...]
    chunk: int
    batch: int
    steps: int


def execution_plan(
    chain: Chain, samples: Sequence[int], settings: LocalTraining, card_gib: int | None = None
) -> ExecutionPlan:
    """Return how a chain is computed, given each client's samples and the memory of a card."""
    batch, steps = min(settings.batch_size, max(samples)), settings.steps(max(samples))
    parameters = sum(_size(link.layer) for link in chain)
    is_stacked = parameters < SMALL or card_gib is not None
    kinds = [_kind(link.layer, steps * batch, is_stacked=is_stacked) for link in chain]
    if LayerMethod.BY_CLIENT in kinds:
        first = next((i for i, link in enumerate(chain) if isinstance(link.layer, Linear)), 0)
        last = max(i for i, kind in enumerate(kinds) if kind is LayerMethod.BY_CLIENT)
        # Layers between the convolutions and before the first matrix stay in the client's cache;
        # with a convolution after a matrix there are none.
        front = max(first, last + 1)
        kinds[:front] = [LayerMethod.BY_CLIENT] * front
    computed = list(zip(chain, kinds, strict=True))
    if card_gib is not None:
        each = sum(_card_bytes(link, kind, batch, steps) for link, kind in computed)
        chunk = max(1, min(_LARGEST_CARD_CHUNK, (card_gib << 30) // _CARD_SHARE // each))
        return ExecutionPlan(tuple(kinds), chunk, batch, steps)
    by_client = sum(_size(link.layer) for link, kind in computed if kind != LayerMethod.SHARED)
    chunk_limit = max(1, _CHUNK_BYTES // max(1, 4 * by_client))
    # Calls dominate for small models, arithmetic for large ones.
    useful_chunk = _LARGEST_CHUNK if parameters < SMALL else max(2, math.ceil(_ROWS / batch))
    return ExecutionPlan(tuple(kinds), min(useful_chunk, _LARGEST_CHUNK, chunk_limit), batch, steps)


def _kind(layer: Layer, rank: int, *, is_stacked: bool) -> LayerMethod:
    if isinstance(layer, Linear):
        is_low = rank <= _LOW_RANK * min(layer.inputs, layer.outputs)
        return LayerMethod.SHARED if is_low and layer.size >= _LARGE_MATRIX else LayerMethod.STACKED
    if isinstance(layer, Convolution):
        return LayerMethod.STACKED if is_stacked else LayerMethod.BY_CLIENT
    return LayerMethod.WHOLE


def _card_bytes(link: ShapedLayer, kind: LayerMethod, batch: int, steps: int) -> int:
    layer = link.layer
    inputs, outputs = math.prod(link.input_shape), math.prod(link.output_shape)
    numbers = 2 * batch * (inputs + outputs)
    if kind is LayerMethod.SHARED:
        numbers += batch * steps * (inputs + outputs)
    elif isinstance(layer, Linear):
        numbers += layer.outputs * aligned(layer.inputs + 1)
    elif isinstance(layer, Convolution):
        columns = aligned(math.prod(layer.row_shape) + 1)
        positions = math.prod(link.output_shape[1:])
        numbers += (layer.kernels[0] + 2 * batch * positions) * columns
    return 4 * numbers


def _size(layer: Layer) -> int:
    return layer.size if isinstance(layer, Linear | Convolution) else 0


@dataclass(frozen=True, slots=True)
class PathPlan:
    """The training path of a run, and how each layer with parameters is computed."""

    path: TrainingPath
    reason: str
    layers: tuple[str, ...] = ()


def plan(model: Model, data: FederatedData, settings: LocalTraining, device: str) -> PathPlan:
    """Return the training path of a run that does not set it: lockstep was never slower."""
    memory = card_gib(device_named(device))
    if settings.proximal is not None:
        return PathPlan("plain", NO_PROXIMAL)
    if model.form.task != "classify":
        return PathPlan("plain", f"the task is {model.form.task}, and lockstep classifies alone")
    try:
        chain = pooled_first(chain_of(model.module(), model.form))
    except UnknownLayerError as error:
        return PathPlan("plain", str(error))
    choice = execution_plan(chain, data.sample_counts, settings, memory)
    layers = []
    for link, kind in zip(chain, choice.kinds, strict=True):
        layer = link.layer
        if isinstance(layer, Linear):
            layers.append(f"linear {layer.inputs} to {layer.outputs}: {kind.value}")
        elif isinstance(layer, Convolution):
            outputs, inputs, *sides = layer.kernels
            size = " × ".join(map(str, sides))
            layers.append(f"convolution {inputs} to {outputs}, {size}: {kind.value}")
    return PathPlan("lockstep", f"{choice.chunk} clients take each step at once", tuple(layers))
