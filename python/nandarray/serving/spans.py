"""Spans of a server for OpenTelemetry: one for each run of programs and each slow command, sent by OTLP over HTTP.

A span is made of a line of the log (:data:`nandarray.serving.log.LINES`) that has a duration, so that there are as many
as the log may have, and nothing is counted twice. The packages of OpenTelemetry batch and send on a thread of their
own; what a collector does not take is lost, and the log says so. No context crosses the wire: spans have no parents.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from nandarray.errors import InvalidError
from nandarray.optional import needs

__all__ = ["SPANS", "SpanSender"]

#: Lines of the log that become spans, and whether what they tell of has failed.
SPANS: dict[str, bool] = {"run_end": False, "run_failed": True, "run_killed": True, "command_slow": False}
#: Least time between two lines about a collector that does not take spans.
_TOLD_SECONDS = 10.0


class SpanSender:
    """Sends spans to a collector until :meth:`stop`; no method waits for the collector.

    Parameters
    ----------
    url : str
        The collector: an ``http`` or ``https`` URL; without a path, ``/v1/traces`` is added (OTLP 1.0, OTLP/HTTP).
    resource : Mapping[str, str]
        Attributes of the server, which every span has, beside ``service.name``.
    failed : Callable[[str], None]
        Called with the reason when spans could not be sent, at most once in ten seconds.

    Raises
    ------
    ImportError
        The packages of OpenTelemetry are not installed.
    InvalidError
        The URL is none of HTTP.
    """

    #: Time that one sending may take, and time that the end waits for the last one.
    _SEND_SECONDS = 2.0

    def __init__(self, url: str, resource: Mapping[str, str], failed: Callable[[str], None] = lambda _: None) -> None:
        try:
            parts = urlsplit(url)
            is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # brackets that do not close, a port that is no number
            is_http = False
        if not is_http:
            raise InvalidError(f"the collector of spans must be an http or https URL, not {url!r}")
        with needs("opentelemetry", "otel"):
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace import SpanKind, Status, StatusCode

        self._failed, self._told = failed, float("-inf")
        self._follow_failures()
        endpoint = url if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/v1/traces"
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=self._SEND_SECONDS)
        self._provider = TracerProvider(resource=Resource.create({"service.name": "nandarray", **resource}))
        self._provider.add_span_processor(BatchSpanProcessor(exporter, export_timeout_millis=self._SEND_SECONDS * 1000))
        self._tracer = self._provider.get_tracer("nandarray")
        self._kind = SpanKind.SERVER
        self._error: Callable[[str], Status] = lambda why: Status(StatusCode.ERROR, why)

    def add(self, kind: str, at: float, fields: Mapping[str, Any]) -> None:
        """Send a line of the log, if it is of :data:`SPANS`; ``at`` is its time in seconds since 1970."""
        if kind not in SPANS:
            return
        end_ns = int(at * 1e9)
        span = self._tracer.start_span(
            f"run {fields.get('programs', '')}".strip() if kind.startswith("run_") else str(fields["operation"]),
            kind=self._kind,
            attributes={f"nandarray.{name}": value for name, value in fields.items() if value is not None},
            start_time=end_ns - int(fields["duration_ns"]),
        )
        if SPANS[kind]:
            span.set_status(self._error(str(fields.get("why", ""))))
        span.end(end_ns)

    def stop(self) -> None:
        """Send what is left, within two seconds."""
        ending = threading.Thread(target=self._provider.shutdown, name="nandarray-spans", daemon=True)
        ending.start()
        ending.join(self._SEND_SECONDS)

    def _follow_failures(self) -> None:
        """Have what the packages log, which tells of spans that were not sent, come to ``failed`` and nowhere else."""
        logger = logging.getLogger("opentelemetry")
        logger.handlers, logger.propagate = [_Failures(self._tell)], False

    def _tell(self, why: str) -> None:
        if time.monotonic() - self._told >= _TOLD_SECONDS:
            self._told = time.monotonic()
            self._failed(why)


class _Failures(logging.Handler):
    """Passes warnings on as texts."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())
