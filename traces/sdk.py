"""The real OpenTelemetry SDK with the recorder's settings, for those who ask for it (`RAFKA_TRACES=sdk`)."""

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased

from traces.exporter import RecorderStats
from traces.settings import RecorderSettings


class _CountingExporter(SpanExporter):
    """Passes on to the SDK's exporter, and counts."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self.exported = 0
        self.refused = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.exported += len(spans)
        else:
            self.refused += len(spans)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


class _CountingProcessor(SpanProcessor):
    """Counts ended spans: the SDK's batch processor does not say what it drops."""

    def __init__(self) -> None:
        self.ended = 0

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        return

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self.ended += 1


class SdkProvider(TracerProvider):
    """The SDK's provider, with the interface of `wiring.Provider`."""

    def __init__(self, settings: RecorderSettings) -> None:
        root: Sampler = TraceIdRatioBased(settings.ratio)
        super().__init__(
            sampler=ParentBased(root) if settings.parent_based else root,
            resource=Resource.create(dict(settings.resource)),
            shutdown_on_exit=False,
        )
        self._ended = _CountingProcessor()
        http = OTLPSpanExporter(
            endpoint=settings.endpoint, headers=dict(settings.headers), timeout=max(1, int(settings.timeout))
        )
        self._exporter = _CountingExporter(http)
        self._batches = BatchSpanProcessor(
            self._exporter,
            max_queue_size=settings.queue_size,
            max_export_batch_size=min(settings.batch_size, settings.queue_size),
            schedule_delay_millis=settings.delay * 1000,
        )
        self.add_span_processor(self._ended)
        self.add_span_processor(self._batches)
        self._flushed = 0

    def stats(self) -> RecorderStats:
        """`dropped` is exact after a flush; between flushes what is not exported yet counts as queued."""
        gone = self._exporter.exported + self._exporter.refused
        dropped = max(0, self._flushed - gone)
        return RecorderStats(
            exported=self._exporter.exported,
            refused=self._exporter.refused,
            dropped=dropped,
            queued=max(0, self._ended.ended - gone - dropped),
        )

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        ended = self._ended.ended
        done = super().force_flush(timeout_millis)
        if done:
            self._flushed = ended
        return done

    def shutdown(self, timeout: float | None = None) -> bool:  # type: ignore[override]
        done = self.force_flush(int((2.0 if timeout is None else timeout) * 1000))
        super().shutdown()
        return done
