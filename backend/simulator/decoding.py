"""The requests that decode together, all at the same pace.

The state is one number, `pace`: the tokens that a request present since the beginning would have. A request ends at a pace
known when it joins, so a heap of those tells the next end, and any number of tokens is gained in one step.
"""

from __future__ import annotations

import heapq

from backend.simulator.sequences import Sequence


class DecodeBatch:
    """Running requests by rid, in the order in which they joined."""

    def __init__(self) -> None:
        self.pace = 0.0
        self.sequences: dict[str, Sequence] = {}
        self._tickets = 0
        self._ends: list[tuple[float, int, Sequence]] = []
        # tokens held = this + pace for each request: joining and leaving change it, decoding does not
        self._base_tokens = 0.0

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def held_tokens(self) -> int:
        """Tokens of prompts and texts that the batch keeps in the pool."""
        return round(self._base_tokens + len(self.sequences) * self.pace)

    def pace_when_holding(self, tokens: int) -> float:
        """The pace at which the batch as it is will hold so many tokens."""
        return (tokens - self._base_tokens) / len(self.sequences)

    def decoded_of(self, sequence: Sequence) -> int:
        """Tokens that a request gained since it joined."""
        gained = int(self.pace - sequence.joined_pace + 1e-6)
        return min(gained, sequence.target_tokens - sequence.joined_generated)

    def generated_of(self, sequence: Sequence) -> int:
        """All tokens of a request, here or not."""
        if sequence.ticket == 0:
            return sequence.generated
        return sequence.joined_generated + self.decoded_of(sequence)

    def join(self, sequence: Sequence) -> None:
        self._tickets += 1
        sequence.ticket = self._tickets
        sequence.joined_pace = self.pace
        sequence.joined_generated = sequence.generated
        self.sequences[sequence.rid] = sequence
        self._base_tokens += sequence.prompt_tokens + sequence.generated - self.pace
        end = self.pace + sequence.target_tokens - sequence.generated
        heapq.heappush(self._ends, (end, sequence.ticket, sequence))

    def leave(self, sequence: Sequence) -> int:
        """Take a request out, its `generated` brought up to date. Returns what it decoded during this stay."""
        decoded = self.decoded_of(sequence)
        sequence.generated = sequence.joined_generated + decoded
        self._base_tokens -= sequence.prompt_tokens + sequence.joined_generated - sequence.joined_pace
        sequence.ticket = 0
        del self.sequences[sequence.rid]
        if not self.sequences:
            self._base_tokens = 0.0
        return decoded

    def next_end(self) -> float:
        """The pace at which the next request has all its tokens; the batch must not be empty."""
        while self._ends[0][1] != self._ends[0][2].ticket:
            heapq.heappop(self._ends)
        return self._ends[0][0]

    def ended(self) -> list[Sequence]:
        """The requests that have all their tokens at this pace; they still have to leave."""
        ended: list[Sequence] = []
        while self._ends and (self._ends[0][1] != self._ends[0][2].ticket or self._ends[0][0] <= self.pace + 1e-7):
            _, ticket, sequence = heapq.heappop(self._ends)
            if ticket == sequence.ticket:
                ended.append(sequence)
        return ended
