"""Loss and error on the plane through the local models of three clients."""

from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import needs_stored_states
from fedflat.analysis.analyses.landscape.plane import PlaneModels, ThroughModels
from fedflat.bench.engine.federation import FederationState
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.input.bounds import MOST, Count
from fedflat.bench.input.errors import UserError


class LocalPlane(ThroughModels):
    """Local models after one more round of training from a stored state (Caldarola et al. 2022, Figures 2, 12, 13)."""

    name: ClassVar[str] = "local_plane"
    of_final_model: ClassVar[bool] = False

    clients: tuple[Annotated[int, Field(ge=0, le=MOST)], ...] | None = Field(
        examples=[[0, 1, 2]],
        default=None,
        description="three clients; null: the first three participants of that round",
    )
    round: Count | None = Field(
        examples=[30], default=None, description="the round of the stored state; null: the last one"
    )

    @field_validator("clients")
    @classmethod
    def _three(cls, clients: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if clients is not None and (len(clients) != 3 or len(set(clients)) != 3):
            raise UserError(
                f"local_plane.clients = [{', '.join(map(str, clients))}] (allowed: three different clients, or null)"
            )
        return clients

    def check(self, evaluation: Evaluation) -> None:
        """A stored state is needed: local models are trained from it."""
        needs_stored_states(self.name, evaluation)

    def models(self, run: AnalysedRun) -> PlaneModels:
        """The local models after the local steps of one more round, on the clients' own data, with their own states."""
        finished = self.round or run.config.training.rounds
        state = run.state(finished)
        clients = self._selected_clients(run, state)
        names = [f"client {i}" for i in clients]
        which = f"the local models of {', '.join(names)}, trained from the model after round {finished}"
        return PlaneModels(names, [run.retrained(state, i) for i in clients], which)

    def _selected_clients(self, run: AnalysedRun, state: FederationState) -> tuple[int, ...]:
        """The requested clients, or the first three of: the next round's participants, then all other clients."""
        count = len(run.setup.split)
        if self.clients is None:
            clients = tuple(dict.fromkeys([*run.next_clients(state), *range(count)]))[:3]
        else:
            clients = self.clients
        if len(clients) < 3 or not set(clients) <= set(range(count)):
            raise UserError(
                f"local_plane needs three of the run's {count} clients, numbered from 0; "
                f"requested: {', '.join(map(str, clients))}"
            )
        return clients
