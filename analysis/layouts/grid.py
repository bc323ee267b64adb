"""The settings of an experiment's grid that a table or figure shows where its layout names none."""

from collections.abc import Sequence
from typing import Literal

from fedflat.analysis.layouts.titles import data_title, participation_phrase, partition_title
from fedflat.bench.data.partitions import AnyPartition
from fedflat.bench.engine.participation import Participation
from fedflat.bench.experiments.address import Setting
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.errors import UserError

GridPart = Literal["all", "partitions", "main"]
"""All settings; one for each partition, that with the fewest active clients; or the main setting alone."""

PANELS_OF_GRID = (
    "which settings have panels, if `panels` lists none: all; partitions: one setting for each partition, with the "
    "fewest active clients; main: the one with the most heterogeneous partition and the fewest active clients"
)

MOST_SETTINGS = 100
"""Largest number of settings that a layout takes from a grid: panels and columns of more could not be read."""


def grid_settings(experiment: Experiment, part: GridPart) -> tuple[Setting, ...]:
    """The settings of each part of the experiment, partition after partition within each participation.

    A `UserError` if they are more than a figure or a table can show.
    """
    whole = experiment.settings if part == "all" else {(one.dataset, one.partition) for one in experiment.settings}
    if part != "main" and len(whole) > MOST_SETTINGS:
        raise UserError(
            f"the grid has {len(whole):,} settings to show (allowed: {MOST_SETTINGS}; grid: main shows one)"
        )
    found: list[Setting] = []
    for label in experiment.resolved_parts:
        settings = [setting for setting in experiment.settings if setting.dataset == label]
        if part == "all":
            participations = list(dict.fromkeys(setting.participation for setting in settings))
            found += sorted(settings, key=lambda setting: participations.index(setting.participation))
        elif part == "partitions":
            partitions = dict.fromkeys(setting.partition for setting in settings)
            found += [main_setting(experiment, [s for s in settings if s.partition == one]) for one in partitions]
        else:
            found.append(main_setting(experiment, settings))
    return tuple(found)


def main_setting(experiment: Experiment, settings: Sequence[Setting]) -> Setting:
    """The setting with the most heterogeneous partition and the smallest share of active clients; the first of equals.

    The most heterogeneous partition has the smallest α, or the fewest classes per client. Partitions of files have
    neither and go first, those with equal clients last.
    """
    first = settings[0].dataset  # parts are not compared
    return min(
        (setting for setting in settings if setting.dataset == first),
        key=lambda setting: _evenness(*experiment.settings[setting]),
    )


def _evenness(partition: AnyPartition, participation: Participation) -> tuple[float, float]:
    share = participation.probability or (participation.active or partition.clients) / partition.clients
    return partition.evenness, share


def part_prefix(experiment: Experiment, setting: Setting) -> str:
    """The label of the setting's part for headings, such as 'cifar10, '; empty if the experiment has one part."""
    return f"{setting.dataset}, " if len(experiment.resolved_parts) > 1 else ""


def in_words(text: str, experiment: Experiment, settings: Sequence[Setting]) -> str:
    """A title or caption with the data sets for {data}, and what all settings have in common for {setting}."""
    if "{data}" in text:
        parts = dict.fromkeys(setting.dataset for setting in settings)
        titles = dict.fromkeys(data_title(experiment.resolved_parts[part]) for part in parts)
        data = " and ".join(titles)
        text = text.replace("{data}", data if not text.startswith("{data}") else f"{data[:1].upper()}{data[1:]}", 1)
        text = text.replace("{data}", data)
    if "{setting}" in text:
        partitions = dict.fromkeys(partition_title(setting.partition) for setting in settings)
        participations = dict.fromkeys(participation_phrase(setting.participation) for setting in settings)
        shared = [title for titles in (partitions, participations) for title in titles if len(titles) == 1]
        text = text.replace("{setting}", ", ".join(shared) or "all settings")
    return text
