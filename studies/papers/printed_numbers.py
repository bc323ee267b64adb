"""Printed numbers in a form that shows which of them are the same quantity in the same setting, in any table."""

from dataclasses import dataclass, fields
from functools import cached_property

from fedflat.analysis.published.numbers import as_printed, kinds
from fedflat.bench.methods.catalog import CATALOG

DATASETS = {
    "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "cifar100_pam": "CIFAR-100-PAM", "emnist": "EMNIST",
    "officehome": "OfficeHome", "domainnet": "DomainNet", "cityscapes": "Cityscapes", "idda": "IDDA",
    "landmarks_user_160k": "Landmarks-User-160k", "cifar10_c": "CIFAR-10-C", "cifar100_c": "CIFAR-100-C",
}  # fmt: skip

OTHER_METHODS = {"centralized": "centralised", "silobn": "SiloBN"}
"""Titles of methods that the catalog does not have."""

MODIFIERS = {"sam": "SAM", "asam": "ASAM", "swa": "SWA", "mixup": "Mixup", "cutout": "Cutout"}
"""Titles of the additions after a '+' in a method's name."""

PARTITIONS = {"lda": "alpha", "leave_one_domain_out": ""}
"""The word before a partition's parameter, if it is not the partition's name."""

SILENT = {
    "upper", "lower", "left", "right", "old", "epoch=1", "augmentation=none", "augmentation=mixup",
    "augmentation=cutout", "weights_avg=yes", "server_lr=1", "modules=sam", "no_dynamic_regularizer",
    "modules=sam+dynamic_regularization+dual_correction+sam_correction", "relative_to=fedavg", "per_round",
    "extra_storage", "extra_communication", "gpu=RTX3090", "includes=training+loading+evaluation",
    "clients_per_domain=1", "clients_per_domain=10", "participation=0.2", "participation=1.0",
    "swa_start=7500", "swa_start=15000",
}  # fmt: skip
"""Parts of `variant` that do not distinguish quantities: they name a place in the table, repeat another key, or state
a default of the papers."""

PLAIN = {
    ("fedgf", "c=0"): "fedsam",
    ("fedgf", "c=adaptive"): "fedgf",
    ("fedtoga", "modules=sam+dynamic_regularization"): "fedspeed",
    ("fedavg", "swa_cycle=1;weights_avg=no"): "fedavg",
    ("fedsam", "swa_cycle=1;weights_avg=no"): "fedsam",
    ("fedasam", "swa_cycle=1;weights_avg=no"): "fedasam",
}
"""Pairs (method, variant) that, according to the papers, are the same as a method without a variant."""


def dataset_title(name: str) -> str:
    """A data set as papers write it."""
    return DATASETS.get(name, name)


def method_title(method: str) -> str:
    """A method as papers write it, such as FedLESAM-D or FedAvg+SWA."""
    base, *more = method.split("+")
    name = CATALOG[base].title if base in CATALOG else OTHER_METHODS[base]
    return "+".join([name, *(MODIFIERS[part] for part in more)])


@dataclass(frozen=True)
class PrintedNumber:
    """One number printed in a paper; all fields are text, as in the files."""

    paper: str
    table: str
    method: str
    dataset: str
    model: str
    partition: str
    partition_param: str
    n_clients: str
    active_clients: str
    rounds: str
    metric: str
    value: str
    std: str
    variant: str
    note: str

    @property
    def number(self) -> float:
        """The printed value."""
        return float(self.value)

    @property
    def half_unit(self) -> float:
        """The rounding error: half a unit of the last printed digit."""
        return 0.5 * 10.0 ** -len(self.value.partition(".")[2])

    @property
    def shown(self) -> str:
        """The value, with its deviation if there is one."""
        return f"{self.value} ± {self.std}" if self.std else self.value

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its note."""
        return kinds(self.note)

    @cached_property
    def plain_method(self) -> str:
        """The method; if `PLAIN` has this variant, the method that `PLAIN` names."""
        return PLAIN.get((self.method, self.variant), self.method)

    @cached_property
    def own_variant(self) -> str:
        """The parts of the variant that neither the method nor the setting states."""
        if (self.method, self.variant) in PLAIN:
            return ""
        return ";".join(part for part in self.variant.split(";") if part not in SILENT)

    @cached_property
    def options(self) -> dict[str, str]:
        """The parts of the variant that have a value, such as target: 0.80."""
        pairs = (part.partition("=") for part in self.variant.split(";"))
        return {name: value for name, sign, value in pairs if sign}

    @cached_property
    def quantity(self) -> tuple[str, ...]:
        """Method, metric and variant; numbers of the same quantity and setting should be equal."""
        return (self.plain_method, self.metric, self.own_variant)

    @cached_property
    def setting(self) -> tuple[str, ...]:
        """The setting of the measurement; fields that the paper does not state are empty."""
        parameter = self.partition_param.replace("/", ";")
        return (self.dataset, self.model, self.partition, parameter, self.n_clients, self.active_clients)

    def same_as(self, other: "PrintedNumber") -> bool:
        """Whether both are the same quantity, in settings that agree in all fields that both state."""
        pairs = zip(self.setting, other.setting, strict=True)
        return self.quantity == other.quantity and all(a == b or not a or not b for a, b in pairs)

    @property
    def where(self) -> str:
        """The setting in words: CIFAR-10, dirichlet 0.6, 10 of 100 clients."""
        partition = f"{PARTITIONS.get(self.partition, self.partition)} {self.partition_param}".strip()
        if self.active_clients:
            clients = f"{self.active_clients} of {self.n_clients} clients"
        else:
            clients = f"{self.n_clients} clients" if self.n_clients else ""
        metric = "" if self.metric == "test_accuracy" else self.metric
        return ", ".join(filter(None, [dataset_title(self.dataset), partition, clients, metric, self.own_variant]))

    @property
    def place(self) -> str:
        """Paper, table, setting and method in words."""
        return ", ".join(filter(None, [f"{self.paper} table {self.table}", self.where, method_title(self.method)]))


def printed_numbers() -> list[PrintedNumber]:
    """All published numbers that have a value, in the order of papers, tables and lines."""
    frame = as_printed()
    names = [field.name for field in fields(PrintedNumber)]
    return [
        PrintedNumber(*map(str, row))
        for row in frame.loc[frame["value"] != "", names].itertuples(index=False, name=None)
    ]
