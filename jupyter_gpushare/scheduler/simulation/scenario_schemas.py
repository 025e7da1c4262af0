"""Schema of scenario files (docs/reference/files.md, Scenario). `scenario_file` interprets them."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from jupyter_gpushare.core.model.amounts import GPU, UNLIMITED
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.gpu_request import check_amounts
from jupyter_gpushare.core.model.model import (
    BUILT_IN_PRIORITY_CLASSES,
    DEFAULT_POOL,
    Affinity,
    TopologyConstraint,
)

from ..config.fields import (
    Age,
    Bytes,
    Cores,
    Duration,
    Gpus,
    Id,
    LabelKey,
    LabelValue,
    Name,
    Text,
    Whole,
    refused,
)
from ..config.people_schemas import MembersPolicySchema, PoolMembersPolicySchema
from ..config.schemas import (
    BaseNodePoolSchema,
    OptionsSchema,
    QueueQuotaSchema,
    StrictSchema,
    TopologySchema,
)
from .session_schemas import SessionSchema

__all__ = [
    "AffinitySchema",
    "SubGroupSchema",
    "NodeSchema",
    "PodSchema",
    "ScenarioQueueSchema",
    "ScenarioSchema",
    "PodTopologySchema",
    "WorkloadSchema",
]

Action = Literal["allocate", "rotate", "consolidation", "reclaim", "preempt", "stale_gang_eviction"]
Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]


def _priority(value: object) -> object:
    """A number or the name of a class; `scenario_checks` checks the name."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise refused(f"must be a whole number or the name of a priority class, got {value!r}")
    return str(value)


Priority = Annotated[str, BeforeValidator(_priority)]


class ScenarioQueueSchema(QueueQuotaSchema):
    """A department or a project. Keys beside `pools` hold in every pool that `pools` does not
    list.
    """

    name: Name
    created: Age = 0
    pools: dict[Name, QueueQuotaSchema] = {}


class ScenarioDepartmentSchema(ScenarioQueueSchema):
    """A queue of queues."""

    parent: Name | None = None


class ScenarioProjectPoolSchema(QueueQuotaSchema):
    """One project in one node pool."""

    members_policy: PoolMembersPolicySchema | None = None


class ScenarioProjectSchema(ScenarioQueueSchema):
    """A queue of workloads."""

    pools: dict[Name, ScenarioProjectPoolSchema] = {}  # type: ignore[assignment]
    department: Name | None = None
    members_policy: MembersPolicySchema | None = None
    node_pools: list[Name] = []
    members: list[Id] = []


class TaintSchema(StrictSchema):
    """A taint, as in Kubernetes."""

    key: LabelKey
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class TolerationSchema(StrictSchema):
    """A toleration of a taint. Without a value it tolerates every value."""

    key: LabelKey
    value: LabelValue = ""


class NodeSchema(StrictSchema):
    """A machine. Without a value, CPU and memory are unlimited."""

    name: Name
    pool: Name | None = None
    gpus: Annotated[int, Field(strict=True, ge=0, le=10_000)] = 0
    gpu_memory: Bytes = 0
    cpu: Cores = UNLIMITED
    memory: Bytes = UNLIMITED
    max_pods: Count = 110
    ready: bool = True
    unhealthy: list[Whole] = []
    reasons: list[Text] = []
    labels: dict[LabelKey, LabelValue] = {}
    taints: list[TaintSchema] = []
    mig: dict[str, Annotated[int, Field(strict=True, ge=0, le=10_000)]] = {}


class PodTopologySchema(StrictSchema):
    """A topology constraint."""

    name: Name
    required: LabelKey | None = None
    preferred: LabelKey | None = None

    def to_core(self) -> TopologyConstraint:
        """The constraint."""
        return TopologyConstraint(self.name, self.required, self.preferred)


class AffinitySchema(StrictSchema):
    """Pods with all labels in `match` share, or do not share, the value of the node label
    `topology`.
    """

    topology: LabelKey
    match: dict[LabelKey, LabelValue] = {}

    def to_core(self) -> Affinity:
        """The rule."""
        return Affinity(self.topology, tuple(sorted(self.match.items())))


class SubGroupSchema(StrictSchema):
    """A sub-group: a leaf with `min_pods`, or one of `groups`."""

    name: Name
    min_pods: Count | None = None
    topology: PodTopologySchema | None = None
    groups: list[SubGroupSchema] = []

    @model_validator(mode="after")
    def _minimum_is_for_leaves(self) -> SubGroupSchema:
        if self.groups and self.min_pods is not None:
            raise refused(
                "has groups, so it has no min_pods of its own: all its groups are required"
            )
        return self


class PodSchema(StrictSchema):
    """A pod, and the place of a placed one. `nominated` is the node that the previous cycle
    promised.
    """

    name: Id
    gpu: Gpus = 0
    gpu_memory: Bytes | None = None
    gpu_devices: Annotated[int, Field(strict=True, ge=1, le=1000)] = 1
    mig: dict[str, Annotated[int, Field(strict=True, ge=1, le=10_000)]] = {}
    cpu: Cores = 0
    memory: Bytes = 0
    state: Literal["pending", "running", "releasing", "failed", "succeeded"] = "pending"
    node: Name | None = None
    gpus: list[Text] = []
    nominated: Name | None = None
    group: Name | None = None
    priority: Whole | None = None
    node_selector: dict[LabelKey, LabelValue] = {}
    node_affinity: list[Name] = []
    tolerations: list[TolerationSchema] = []
    pod_labels: dict[LabelKey, LabelValue] = {}
    pod_affinity: AffinitySchema | None = None
    pod_anti_affinity: AffinitySchema | None = None

    @model_validator(mode="after")
    def _one_kind_of_request(self) -> PodSchema:
        try:
            check_amounts(self.gpu, self.gpu_memory)
        except InvalidInput as error:
            raise refused(error.message) from None
        if self.mig and (self.gpu or self.gpu_memory is not None):
            raise refused("mig excludes gpu and gpu_memory")
        if self.state in ("running", "releasing") and self.node is None:
            raise refused(f"is {self.state} and has no node")
        if len(set(self.gpus)) < len(self.gpus):
            raise refused("names a GPU twice")
        if self.gpus and self.node is not None and len(self.gpus) != self.devices:
            raise refused(f"names {len(self.gpus)} GPUs and uses {self.devices}")
        return self

    @property
    def devices(self) -> int:
        """The number of devices that it uses on its node."""
        if self.mig:
            return sum(self.mig.values())
        if self.gpu_memory is not None or 0 < self.gpu < GPU:
            return self.gpu_devices
        return self.gpu // GPU * self.gpu_devices


class WorkloadSchema(StrictSchema):
    """A workload. Times are relative to the first cycle."""

    name: Id
    project: Name
    priority: Priority = str(BUILT_IN_PRIORITY_CLASSES["train"])
    preemptible: bool | None = None
    created: Age | None = None
    started: Age | None = None
    stale_for: Duration | None = None
    min_pods: Count | None = None
    groups: list[SubGroupSchema] = []
    topology: PodTopologySchema | None = None
    node_pools: list[Name] = []
    pods: list[PodSchema]
    held: bool = False
    ends_when_evicted: bool = False
    user: Id | None = None
    """The person whom it counts for, in a project with a `members_policy`."""
    pending_since: Age | None = None
    """Since when it has been waiting, if that is not `created`."""


class UsageSchema(StrictSchema):
    """Past usage of one queue in one pool, as parts of the pool's capacity."""

    queue: Name
    pool: Name = DEFAULT_POOL
    gpu: Annotated[float, Field(ge=0, le=1000)] = 0.0
    cpu: Annotated[float, Field(ge=0, le=1000)] = 0.0
    memory: Annotated[float, Field(ge=0, le=1000)] = 0.0


class PersonSchema(StrictSchema):
    """A person who has used GPUs before: decayed GPU hours, and when a share was held last."""

    user: Id
    project: Name
    pool: Name = DEFAULT_POOL
    gpu_hours: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    served: Age | None = None
    active: bool = True
    """Whether the person was waiting or held a share in the last ten minutes."""


class ScenarioSchema(StrictSchema):
    """The whole file."""

    name: Annotated[
        str, BeforeValidator(lambda value: str(value) if isinstance(value, int | float) else value)
    ] = ""
    actions: list[Action] = list(get_args(Action))
    cycles: Annotated[int, Field(strict=True, ge=1, le=100_000)] = 1
    options: OptionsSchema = OptionsSchema()
    node_pools: list[BaseNodePoolSchema] = []
    topologies: list[TopologySchema] = []
    nodes: list[NodeSchema] = []
    departments: list[ScenarioDepartmentSchema] = []
    projects: list[ScenarioProjectSchema] = []
    workloads: list[WorkloadSchema] = []
    priority_classes: dict[Name, Whole] = {}
    usage: list[UsageSchema] = []
    people: list[PersonSchema] = []
    virtual_time: SessionSchema | None = None
