"""What engine and APIs are asked alike; the fields of each are tested with its driver."""

from __future__ import annotations

from backend.job.chat_body import sample_seed
from backend.records import Prompt


def test_the_seed_belongs_to_the_sample_its_turn_and_its_attempt() -> None:
    prompts = [
        Prompt(dataset, 0, sample_id, (), turn=turn, attempt=attempt)
        for dataset in "AB"
        for sample_id in ("1", "2", "a\ud835b")
        for turn in (0, 1)
        for attempt in (1, 2)
    ]
    seeds = [sample_seed(7, prompt) for prompt in prompts]
    assert seeds == [sample_seed(7, prompt) for prompt in prompts]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert sample_seed(8, prompts[0]) != seeds[0]
