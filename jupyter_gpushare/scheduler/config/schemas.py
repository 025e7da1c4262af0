"""Schemas of the parts that several kinds of files share: node pools, quotas, topologies, options.

`to_core` converts a part to the values of the core. Schemas are lenient where the meaning is clear
(`5` as a name, null as "not set"), and refuse unknown keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
    model_validator,
)

from jupyter_gpushare.core.model.amounts import MILLI, UNLIMITED, Amounts
from jupyter_gpushare.core.model.model import (
    ACTIONS,
    NodePool,
    Options,
    Quota,
    Strategy,
    TimeBased,
    Topology,
)
from jupyter_gpushare.core.model.pool_option import (
    Choice,
    OptionValue,
    PoolOption,
    Settings,
    Switch,
    WholeNumber,
)
from jupyter_gpushare.core.model.pool_option import Duration as DurationValues
from jupyter_gpushare.core.pool_options import chosen, registered

from .fields import (
    BytesOrUnlimited,
    CoresOrUnlimited,
    Duration,
    GpusOrUnlimited,
    Grace,
    LabelKey,
    LabelValue,
    Name,
    Victims,
    Weight,
    Whole,
)

__all__ = [
    "BaseNodePoolSchema",
    "OptionsSchema",
    "QueueQuotaSchema",
    "StrictSchema",
    "TopologySchema",
]


class StrictSchema(BaseModel):
    """The base of all schemas: unknown keys are refused, and null means not set."""

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
    """Without a value, the resource is unlimited."""

    quota: CoresOrUnlimited = UNLIMITED
    limit: CoresOrUnlimited = UNLIMITED
    over_quota_weight: Weight = MILLI


class MemoryQuotaSchema(StrictSchema):
    """Without a value, the resource is unlimited."""

    quota: BytesOrUnlimited = UNLIMITED
    limit: BytesOrUnlimited = UNLIMITED
    over_quota_weight: Weight = MILLI


class QueueQuotaSchema(StrictSchema):
    """The settings of one queue in one pool."""

    gpu: GpuQuotaSchema = GpuQuotaSchema()
    cpu: CpuQuotaSchema = CpuQuotaSchema()
    memory: MemoryQuotaSchema = MemoryQuotaSchema()
    rank: Whole = 100
    preempt_min_runtime: Duration | None = None
    reclaim_min_runtime: Duration | None = None

    def to_core(self) -> Quota:
        """The quota in the units of the core."""
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

    key: LabelKey
    value: LabelValue


class PlacementSchema(StrictSchema):
    """How nodes and devices are chosen. `defragment` keeps free what typical requests need."""

    gpu: Literal["binpack", "spread", "defragment"] = "binpack"
    cpu: Strategy = "binpack"
    gpu_device: Strategy | None = None


class TimeBasedFairShareSchema(StrictSchema):
    """Time-based fair share. Without `half_life`, usage does not decay inside the window."""

    enabled: bool = True
    k: Weight = MILLI
    window: Duration = TimeBased().window
    half_life: Duration = 0


def _topology_by_name(value: object) -> object:
    """`topology: fabric` refers to one of the file's `topologies`; a mapping defines one."""
    return {"name": value} if isinstance(value, str) else value


class TopologySchema(StrictSchema):
    """Node label keys from coarse to fine. Without levels: a reference to a topology that is
    defined elsewhere in the file.
    """

    name: Name
    levels: list[LabelKey] | None = None

    def to_core(self) -> Topology:
        """The topology. Only for one with levels."""
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
    if isinstance(option.values, Settings):
        return _settings_type(option.key, option.values)
    return _value_type(option.values)


def _settings_type(key: str, settings: Settings) -> Any:
    """A mapping with these keys, as the pairs that the option takes."""
    fields: dict[str, Any] = {
        name: (_value_type(kind), Field(default)) for name, kind, default in settings.parts
    }
    name = "".join(word.capitalize() for word in key.split("_")) + "Schema"
    model = create_model(name, __base__=StrictSchema, **fields)

    def pairs(value: BaseModel) -> OptionValue:
        return settings.pairs(value.model_dump())

    return Annotated[model, AfterValidator(pairs)] | None


def _value_type(values: object) -> Any:
    match values:
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
    """Settings of the cycle. `cycle` is the time between two cycles of a scenario."""

    max_consolidation_victims: Victims = 16
    staleness_grace: Grace = Options().staleness_grace
    saturation_multiplier: Weight = MILLI
    allow_consolidating_reclaim: bool = True
    preempt_min_runtime: Duration = 0
    reclaim_min_runtime: Duration = 0
    cycle: Duration = 1000

    def to_core(self, actions: tuple[str, ...] = ACTIONS) -> Options:
        """The options, with the actions to run."""
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
