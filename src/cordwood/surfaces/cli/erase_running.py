"""The part of `cordwood erase` that addresses a running broker, which does the work."""

from __future__ import annotations

from cordwood.cleanup.erasure.erasure_answer import Erasures, ErasureStatus
from cordwood.cleanup.erasure.request import EraseRequest, Erasure
from cordwood.model.clock import pause
from cordwood.model.errors import ConfigError, CordwoodError
from cordwood.queries.brokers import AddressedBroker, BrokerQuestion
from cordwood.queries.http_client import EndpointError
from cordwood.surfaces.cli.clean_progress import CleanProgress
from cordwood.surfaces.http.erasures import build_erasure

_LOOK_S = 0.2


def erase_running(
    request: EraseRequest, broker: AddressedBroker, display: CleanProgress
) -> Erasure:
    """Has a broker erase records, and returns its report when it is done.

    Replicas on other brokers are reported as failed: the command is to be run at each of them.

    Raises:
        ConfigError: the broker refuses the request, or what it asks for is wrong.
        CordwoodError: the erasure failed as a whole, or another one is under way.
        EndpointError: the broker does not answer, or has ended meanwhile.
    """
    begun = broker.ask(
        BrokerQuestion(
            path="/erasures/start", answer=Erasures, method="POST", body=build_erasure(request)
        )
    )
    ended = _ended(broker, request.id, begun, display)
    if ended.state == "failed":
        raise (ConfigError if ended.usage else CordwoodError)(ended.error)
    assert ended.report is not None, "it has not failed"
    found = Erasure(report=ended.report, failed=ended.report.failed, warnings=tuple(ended.warnings))
    return found.with_elsewhere(begun.elsewhere or {})


def _ended(
    broker: AddressedBroker, erasure_id: str, answer: Erasures, display: CleanProgress
) -> ErasureStatus:
    """The erasure, when it has ended; its progress is shown meanwhile."""
    where = f"broker {broker.identity.node_id}"
    question = BrokerQuestion(path="/erasures", answer=Erasures, parameters={"id": erasure_id})
    while True:
        found = next((each for each in answer.erasures if each.id == erasure_id), None)
        if found is None:
            raise EndpointError(
                f"{where} does not know of {erasure_id} any more: it was started again, and the "
                "erasure has not ended. Erase again"
            )
        if found.state != "running":
            return found
        if found.total:
            display.bytes_done(where, found.phase, found.done, found.total)
        pause(_LOOK_S)
        try:
            answer = broker.ask(question)
        except EndpointError as error:
            raise EndpointError(f"{error} The erasure may not have ended: erase again") from error
