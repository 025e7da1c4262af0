"""What the parts that several files have in common look like: amounts, node pools, quotas,
topologies, options.

Shapes say what may be written; `to_core` says what it means. A shape is as lenient as people are
(`5` as a name, null as "not given"), and strict where a slip would go unnoticed: an unknown key is
a mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from jupyter_gpushare.core.model.amounts import MILLI, UNLIMITED, Amounts
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.model import (
    ACTIONS,
    NodePool,
    Options,
    Quota,
    Strategy,
    TimeBased,
    Topology,
)
from jupyter_gpushare.core.model.pool_option import Choice, PoolOption, Switch, WholeNumber
from jupyter_gpushare.core.model.pool_option import Duration as DurationValues
from jupyter_gpushare.core.model.units import (
    duration_text,
    exact_gpu,
    read_cpu,
    read_duration,
    read_gpu,
    read_memory,
)
from jupyter_gpushare.core.pool_options import chosen, registered

__all__ = [
    "Age",
    "Bytes",
    "Cores",
    "Duration",
    "Gpus",
    "Id",
    "Name",
    "Notice",
    "OptionsSchema",
    "BaseNodePoolSchema",
    "QueueQuotaSchema",
    "StrictSchema",
    "Text",
    "TopologySchema",
    "Whole",
    "refused",
]

MOST_NAME: Final = 253
"""Characters of a name, as Kubernetes has it."""


def refused(message: str) -> PydanticCustomError:
    """A mistake with a sentence of ours; unlike ValueError it comes without a prefix."""
    return PydanticCustomError("refused", "{said}", {"said": message})


def _quantity(read: Callable[..., int], **options: Any) -> BeforeValidator:
    """A reader of `core.quantity` as a validator."""

    def validate(value: object) -> int:
        try:
            return read(value, what="", **options)
        except InvalidInput as error:
            raise refused(error.message.strip()) from None

    return BeforeValidator(validate)


def _text(value: object) -> object:
    """Numbers become text, because `name: 5` and `value: 8` are what people write."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _name(value: object) -> object:
    text = _text(value)
    if not isinstance(text, str):
        raise refused(f"must be a name, got {text!r}")
    if (
        not text.strip()
        or text != text.strip()
        or len(text) > MOST_NAME
        or not text.isprintable()
        or "/" in text
    ):
        raise refused(
            f"must be a name of 1 to {MOST_NAME} printable characters without '/' and spaces around it, got {text[:80]!r}"
        )
    return text


def _id(value: object) -> object:
    """A name that people did not choose: of a workload or a pod, which may have any printable
    characters.
    """
    text = _text(value)
    if (
        not isinstance(text, str)
        or not text.strip()
        or len(text) > MOST_NAME
        or not text.isprintable()
    ):
        raise refused(
            f"must be a name of 1 to {MOST_NAME} printable characters, got {str(text)[:80]!r}"
        )
    return text


def _age(value: object, *, what: str) -> int:
    return read_duration(value, what=what)


def _duration(value: object, *, what: str) -> int:
    duration = read_duration(value, what=what)
    if duration < 0:
        raise InvalidInput(f"must not be negative, got {value}")
    return duration


def _notice(value: object, *, what: str) -> int:
    notice, (shortest, longest) = read_duration(value, what=what), NOTICE
    if not shortest <= notice <= longest:
        bound = (
            f"at least {duration_text(shortest)}"
            if notice < shortest
            else f"at most {duration_text(longest)}"
        )
        raise InvalidInput(f"must be {bound}, got {value!r}")
    return notice


def _grace(value: object, *, what: str) -> int:
    """A time after which something happens; `unlimited`, or below 0: never."""
    duration = UNLIMITED if value == "unlimited" else read_duration(value, what=what)
    return UNLIMITED if duration < 0 else duration


def _weight(value: object, *, what: str) -> int:
    """Thousandths. Not `read_gpu`: a weight may be far larger than any number of GPUs, and 0.0005
    is a weight.
    """
    weight = exact_gpu(value, what=what)
    return 0 if weight is None else int(weight * MILLI)


def _victims(value: object, *, what: str) -> int:  # noqa: ARG001 - the signature of a reader
    if value == "unlimited":
        return UNLIMITED
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidInput(f"must be a whole number of at least 0, or 'unlimited', got {value!r}")
    return value


NOTICE: Final = (5_000, 3_600_000)
"""ms: shorter nobody can save anything, longer a GPU is kept from those to whom it belongs."""
_AMOUNT: Final = WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]})
_TIME: Final = WithJsonSchema(
    {"anyOf": [{"type": "number"}, {"type": "string", "pattern": "^-?[0-9.]+(ms|s|m|h|d|w)?$"}]}
)

Gpus = Annotated[int, _quantity(read_gpu), _AMOUNT]
GpusOrUnlimited = Annotated[int, _quantity(read_gpu, unlimited=True), _AMOUNT]
Cores = Annotated[int, _quantity(read_cpu), _AMOUNT]
CoresOrUnlimited = Annotated[int, _quantity(read_cpu, unlimited=True), _AMOUNT]
Bytes = Annotated[int, _quantity(read_memory), _AMOUNT]
"""MiB."""
BytesOrUnlimited = Annotated[int, _quantity(read_memory, unlimited=True), _AMOUNT]
Weight = Annotated[int, _quantity(_weight), _AMOUNT]
Duration = Annotated[int, _quantity(_duration), _TIME]
"""ms."""
Notice = Annotated[int, _quantity(_notice), _TIME]
"""ms, within `NOTICE`."""
Grace = Annotated[int, _quantity(_grace), _TIME]
Age = Annotated[int, _quantity(_age), _TIME]
"""ms; may be negative."""
Victims = Annotated[
    int,
    _quantity(_victims),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"const": "unlimited"}]}),
]
Name = Annotated[str, BeforeValidator(_name)]
Id = Annotated[str, BeforeValidator(_id)]
Text = Annotated[str, BeforeValidator(_text)]
Whole = Annotated[int, Field(strict=True, ge=-1_000_000_000, le=1_000_000_000)]


class StrictSchema(BaseModel):
    """The base of all shapes: unknown keys are mistakes, and null is the same as not given."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_given(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return {
            key: part
            for key, part in value.items()
            if part is not None or key not in cls.model_fields
        }


class GpuQuotaSchema(StrictSchema):
    """Unset quota is 0, unset limit is unlimited, unset weight is 1."""

    quota: GpusOrUnlimited = 0
    limit: GpusOrUnlimited = UNLIMITED
    over_quota_weight: Weight = MILLI


class CpuQuotaSchema(StrictSchema):
    """What is not stated is not managed: unlimited."""

    quota: CoresOrUnlimited = UNLIMITED
    limit: CoresOrUnlimited = UNLIMITED
    over_quota_weight: Weight = MILLI


class MemoryQuotaSchema(StrictSchema):
    """What is not stated is not managed: unlimited."""

    quota: BytesOrUnlimited = UNLIMITED
    limit: BytesOrUnlimited = UNLIMITED
    over_quota_weight: Weight = MILLI


class QueueQuotaSchema(StrictSchema):
    """One queue in one pool."""

    gpu: GpuQuotaSchema = GpuQuotaSchema()
    cpu: CpuQuotaSchema = CpuQuotaSchema()
    memory: MemoryQuotaSchema = MemoryQuotaSchema()
    rank: Whole = 100
    preempt_min_runtime: Duration | None = None
    reclaim_min_runtime: Duration | None = None

    def to_core(self) -> Quota:
        """The rules of the queue in this pool."""
        blocks = (self.gpu, self.cpu, self.memory)
        return Quota(
            quota=Amounts(*(block.quota for block in blocks)),
            limit=Amounts(*(block.limit for block in blocks)),
            weight=Amounts(*(block.over_quota_weight for block in blocks)),
            rank=self.rank,
            preempt_min_runtime=self.preempt_min_runtime,
            reclaim_min_runtime=self.reclaim_min_runtime,
        )


class NodeLabelSchema(StrictSchema):
    """The node label that puts a node into a pool."""

    key: Text
    value: Text


class PlacementSchema(StrictSchema):
    """How nodes and devices are chosen. `defragment` packs so that what is left fits what is asked
    for.
    """

    gpu: Literal["binpack", "spread", "defragment"] = "binpack"
    cpu: Strategy = "binpack"
    gpu_device: Strategy | None = None


class TimeBasedFairShareSchema(StrictSchema):
    """Time-based fair share; without `half_life` usage does not decay inside the window."""

    enabled: bool = True
    k: Weight = MILLI
    window: Duration = TimeBased().window
    half_life: Duration = 0


def _topology_by_name(value: object) -> object:
    """`topology: fabric` names one of the file's `topologies`; a mapping states it in place."""
    return {"name": value} if isinstance(value, str) else value


class TopologySchema(StrictSchema):
    """Node label keys from coarse to fine. Without levels: the name of one that is stated elsewhere
    in the file.
    """

    name: Name
    levels: list[Name] | None = None

    def to_core(self) -> Topology:
        """The topology; only for one that states its levels."""
        return Topology(self.name, tuple(self.levels or ()))


class _PoolKeysSchema(StrictSchema):
    """The keys of a node pool that are no named options."""

    name: Name
    label: NodeLabelSchema | None = None
    placement: PlacementSchema = PlacementSchema()
    workloads_per_gpu: Annotated[int, Field(strict=True, ge=2, le=5)] | None = None
    time_based_fairshare: TimeBasedFairShareSchema | None = None
    topology: Annotated[TopologySchema, BeforeValidator(_topology_by_name)] | None = None


def _option_type(option: PoolOption[Any]) -> Any:
    match option.values:
        case Choice(words):
            return Literal[words]
        case DurationValues():
            return Duration | None
        case Switch():
            return bool
        case WholeNumber(minimum, maximum):
            return Annotated[int, Field(strict=True, ge=minimum, le=maximum)] | None


def _option_fields() -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, option in registered().items():
        described = Field(option.default, description=option.documentation)
        fields[key] = (_option_type(option), described)
    return fields


if TYPE_CHECKING:

    class _PoolOptionsSchema(_PoolKeysSchema): ...

else:  # a field per registered option
    _PoolOptionsSchema = create_model(
        "_PoolOptionsSchema", __base__=_PoolKeysSchema, **_option_fields()
    )


class BaseNodePoolSchema(_PoolOptionsSchema):
    """One node pool. Its named options are listed in `core.pool_options`."""

    def to_core(self) -> NodePool:
        """The pool as the scheduler knows it."""
        timed, placement = self.time_based_fairshare, self.placement
        return NodePool(
            self.name,
            (self.label.key, self.label.value) if self.label else None,
            gpu="binpack" if placement.gpu == "defragment" else placement.gpu,
            gpu_device=placement.gpu_device,
            cpu=placement.cpu,
            workloads_per_gpu=self.workloads_per_gpu,
            time_based=TimeBased(timed.k, timed.window, timed.half_life)
            if timed and timed.enabled
            else None,
            topology=self.topology.name if self.topology else None,
            defragment=placement.gpu == "defragment",
            options=chosen(**{key: getattr(self, key) for key in registered()}),
        )


class OptionsSchema(StrictSchema):
    """Tunables of the cycle. `cycle` is the time between two cycles of a scenario."""

    max_consolidation_victims: Victims = 16
    staleness_grace: Grace = Options().staleness_grace
    saturation_multiplier: Weight = MILLI
    allow_consolidating_reclaim: bool = True
    preempt_min_runtime: Duration = 0
    reclaim_min_runtime: Duration = 0
    cycle: Duration = 1000

    def to_core(self, actions: tuple[str, ...] = ACTIONS) -> Options:
        """The options, with the actions that the caller wants to run."""
        victims = self.max_consolidation_victims
        return Options(
            actions,
            None if victims == UNLIMITED else victims,
            self.staleness_grace,
            self.saturation_multiplier,
            self.allow_consolidating_reclaim,
            self.preempt_min_runtime,
            self.reclaim_min_runtime,
        )
