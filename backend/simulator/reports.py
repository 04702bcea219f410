"""What the scheduler reports and when: gauges and the lines "Prefill batch" and "Decode batch".

Gauges change at reports only, as SGLang's do: at each prefill, every `--decode-log-interval` steps, and when it is idle.
"""

from __future__ import annotations

from dataclasses import replace

from backend.simulator.batching import Scheduler
from backend.simulator.counters import Gauges
from backend.simulator.log import Log
from backend.simulator.settings import Settings

_MIN_INTERVAL_S = 0.2
"""However fast simulated time runs, a report costs real time."""
_IDLE_INTERVAL_S = 30.0


class Reporter:
    """Gauges of one scheduler; `frozen` keeps them as they are."""

    def __init__(self, scheduler: Scheduler, settings: Settings, log: Log, *, now: float) -> None:
        self.gauges = Gauges()
        self.frozen = False
        self._scheduler = scheduler
        self._settings = settings
        self._log = log
        self._reported_steps = 0.0
        self._reported_decoded = 0
        self._reported_at = self._decode_reported_at = now

    def report_if_due(self, now: float) -> None:
        """Report decoding if enough steps passed."""
        steps = self._scheduler.decode_steps - self._reported_steps
        if steps >= self._settings.decode_log_interval and now - self._reported_at >= _MIN_INTERVAL_S:
            self._report_decode(now)

    def next_report_at(self, now: float) -> float:
        """When decoding will next be reported if it goes on as now."""
        left = self._settings.decode_log_interval - (self._scheduler.decode_steps - self._reported_steps)
        due_at = now + max(self._scheduler.seconds_of_steps(max(left, 0.0)), 0.001)
        return max(due_at, self._reported_at + _MIN_INTERVAL_S)

    def correct_if_idle(self, now: float) -> None:
        """An idle scheduler sets its gauges right at once, and again from time to time."""
        gauges, stale = self.gauges, now - self._reported_at >= _IDLE_INTERVAL_S
        if self._scheduler.idle and (gauges.running or gauges.queued or gauges.gen_throughput or stale):
            self._report(now, throughput=0.0)

    def reset_counters(self) -> None:
        self._reported_decoded = 0

    def tell_events(self) -> None:
        """Log what the scheduler did since the last call, and refresh the gauges that a prefill refreshes."""
        scheduler = self._scheduler
        for report in scheduler.prefill_reports:
            rate = report.new_tokens / report.seconds if report.seconds > 0 else 0.0
            usage = scheduler.used_tokens / scheduler.pool_tokens
            self._log.write(
                f"Prefill batch, #new-seq: {report.new_sequences}, #new-token: {report.new_tokens}, #cached-token: "
                f"{report.cached_tokens}, token usage: {usage:.2f}, #running-req: {report.running}, #queue-req: "
                f"{report.queued}, #pending-token: {report.pending_tokens}, cuda graph: False, "
                f"input throughput (token/s): {rate:.2f}"
            )
            total = report.new_tokens + report.cached_tokens
            if not self.frozen:
                self.gauges = replace(
                    self.gauges,
                    running=report.running + report.new_sequences,
                    queued=report.queued,
                    cache_hit_rate=report.cached_tokens / total if total else 0.0,
                    token_usage=round(usage, 2),
                    used_tokens=scheduler.used_tokens,
                )
        scheduler.prefill_reports.clear()
        for full in scheduler.retract_reports:
            self._log.write(
                f"KV cache pool is full. Retract requests. #retracted_reqs: {full.retracted}, #new_tokens_gained: "
                f"{full.tokens_gained}, #new_token_ratio: {full.ratio_before:.4f} -> {full.ratio_after:.4f}"
            )
        scheduler.retract_reports.clear()

    def _report_decode(self, now: float) -> None:
        decoded = self._scheduler.decoded_total
        throughput = max(decoded - self._reported_decoded, 0) / max(now - self._decode_reported_at, 1e-9)
        self._reported_decoded = decoded
        # moved by decode reports only: the first window after idle time includes that time, as SGLang's does
        self._decode_reported_at = now
        self._reported_steps = self._scheduler.decode_steps
        self._report(now, throughput=throughput)
        used, running = self._scheduler.used_tokens, len(self._scheduler.running)
        speculation = ""
        if self._settings.speculative_algorithm:
            accept = self._settings.accept_length
            speculation = f"accept len: {accept:.2f}, accept rate: {(accept - 1) / 3:.2f}, "
        self._log.write(
            f"Decode batch, #running-req: {running}, #token: {used}, token usage: "
            f"{used / self._scheduler.pool_tokens:.2f}, {speculation}cuda graph: True, gen throughput (token/s): "
            f"{throughput:.2f}, #queue-req: {len(self._scheduler.waiting)}"
        )

    def _report(self, now: float, *, throughput: float) -> None:
        self._reported_at = now
        if self.frozen:
            return
        scheduler = self._scheduler
        used = scheduler.used_tokens
        self.gauges = replace(
            self.gauges,
            running=scheduler.running_count,
            queued=len(scheduler.waiting),
            gen_throughput=throughput,
            used_tokens=used,
            token_usage=round(used / scheduler.pool_tokens, 2),
            sum_seq_lens=used,
            accept_length=self._settings.accept_length if self._settings.speculative_algorithm else 0.0,
            retracted=sum(1 for sequence in scheduler.waiting if sequence.retractions),
            new_token_ratio=scheduler.new_token_ratio,
        )
