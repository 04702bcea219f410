"""The catalogue of what can be asked of finished samples: queries/NAME.sql, what each wants to know, and how it is answered.

A query's first line is its question. Those that read texts are long: `long_question.py` answers them; the others are
answered at once by `database.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from backend.records import Outcome
from backend.report.connection import query_text
from backend.report.database import run_query
from backend.report.long_question import LongQuestion
from backend.run_dir import RunDir


class Kind(StrEnum):
    """What a parameter is."""

    DATASET = "dataset"  # None: all
    CHOICE = "choice"  # one of `choices`
    NUMBER = "number"  # a whole number between `least` and `most`
    RUN = "run"  # another run, to compare with


@dataclass(frozen=True, slots=True)
class Parameter:
    """One named parameter of a query, as the page asks for it."""

    name: str
    kind: Kind
    words: str
    default: Any = None
    choices: tuple[str, ...] = ()
    least: int = 1
    most: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Question:
    """A query of the catalogue. `other` names the parameter that is another run; it is no parameter of the SQL."""

    name: str
    title: str
    parameters: tuple[Parameter, ...] = ()
    long: bool = False

    @property
    def asks(self) -> str:
        """What it wants to know, as the file's first line says it."""
        return query_text(self.name).partition("\n")[0].removeprefix("-- ")

    @property
    def sql(self) -> str:
        """The query as it is run."""
        return query_text(self.name)

    @property
    def compares(self) -> bool:
        """Whether it needs another run."""
        return any(parameter.kind is Kind.RUN for parameter in self.parameters)


_DATASET: Final = Parameter("dataset", Kind.DATASET, "Dataset")
_BY: Final = Parameter("by", Kind.CHOICE, "Apart by", "dataset", ("dataset", "outcome", "source", "finish reason"))
_HOURS: Final = Parameter("step_s", Kind.NUMBER, "Span, seconds", 3600, least=1, most=7 * 86_400)


def _limit(default: int) -> Parameter:
    return Parameter("limit", Kind.NUMBER, "At most so many", default, most=10_000)


_OTHER: Final = Parameter("other", Kind.RUN, "Other run")
_MATCH: Final = Parameter("by", Kind.CHOICE, "Same prompt means the same", "id", ("id", "prompt"))

QUESTIONS: Final[tuple[Question, ...]] = (
    Question("progress_by_dataset", "Progress by dataset"),
    Question("tokens_by_hour", "Tokens by hour", (_DATASET,)),
    Question(
        "length_distribution",
        "Length distribution",
        (_DATASET, _BY, Parameter("per_octave", Kind.NUMBER, "Bins for each doubling", 2, most=16)),
    ),
    Question("quantiles", "Quantiles of lengths", (_DATASET, _BY)),
    Question("drift", "Drift by hour", (_DATASET, _HOURS)),
    Question("finish_reasons", "Finish reasons", (_DATASET,)),
    Question("outcomes", "Outcomes", (_DATASET,)),
    Question("outcomes_over_time", "Outcomes over time", (_DATASET, _HOURS)),
    Question("samples_of_an_outcome", "Samples of an outcome", (
        _DATASET, Parameter("outcome", Kind.CHOICE, "Outcome", Outcome.EMPTY.value, tuple(Outcome)), _limit(100),
    )),
    Question("longest_and_shortest", "Longest and shortest", (_DATASET, _limit(10))),
    Question("request_speed", "Latency and tokens/s of a request", (_DATASET,)),
    Question("throughput_by_concurrency", "Throughput against concurrency", (
        Parameter("step_s", Kind.NUMBER, "Span, seconds", 60, most=86_400),
        Parameter("width", Kind.NUMBER, "Requests in flight, in steps of", 10, most=10_000),
    )),
    Question("token_budget_use", "Token-budget use"),
    Question("restarts_and_lost_work", "Restarts and lost work"),
    Question("api_spend", "API spend"),
    Question("duplicate_prompts", "Duplicate prompts", (_DATASET, _limit(100)), long=True),
    Question("duplicate_answers", "Duplicate answers", (_DATASET, _limit(100)), long=True),
    Question(
        "near_duplicates",
        "Near-duplicate answers",
        (_DATASET, Parameter("bits", Kind.NUMBER, "Bits that may differ", 3, least=0, most=3), _limit(100)),
        long=True,
    ),
    Question("compared_lengths", "Two runs: lengths", (_OTHER, _MATCH), long=True),
    Question("compared_outcomes", "Two runs: outcomes", (_OTHER, _MATCH), long=True),
)  # fmt: skip
BY_NAME: Final[Mapping[str, Question]] = {question.name: question for question in QUESTIONS}


def ask(run: RunDir, question: Question, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The answer to a question that is not long. Raises RunDirError, ConfigError."""
    return run_query(run, question.name, **values)


def begin(run: RunDir, question: Question, values: Mapping[str, Any]) -> LongQuestion:
    """A long question on its way. Raises RunDirError."""
    other = next((values[p.name] for p in question.parameters if p.kind is Kind.RUN), None)
    parameters = {name: value for name, value in values.items() if not isinstance(value, RunDir)}
    return LongQuestion(run, name=question.name, parameters=parameters, other=other)


def defaults(question: Question) -> dict[str, Any]:
    """Its parameters as they are where nobody chose anything; another run has none."""
    return {p.name: p.default for p in question.parameters if p.kind is not Kind.RUN}
