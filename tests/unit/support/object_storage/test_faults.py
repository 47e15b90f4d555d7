from __future__ import annotations

from support.object_storage.faults import (
    FAULT_KINDS,
    PASS,
    Fault,
    FaultKind,
    FaultScript,
    ProxiedRequest,
    RandomFaults,
)


def test_a_script_gives_its_faults_to_the_requests_that_it_is_of() -> None:
    lost = Fault(FaultKind.ANSWER_LOST)
    script = FaultScript(lost, lost, of=lambda request: request.is_conditional)
    plain = ProxiedRequest(0, "PUT", "/a", {})
    conditional = ProxiedRequest(1, "PUT", "/a", {"if-none-match": "*"})
    read = ProxiedRequest(2, "GET", "/a", {"if-match": "x"})
    found = [script(each) for each in (plain, conditional, read, conditional, conditional)]
    assert found == [PASS, lost, PASS, lost, PASS]
    assert script.left == []


def faults_of(plan: RandomFaults, targets: list[str]) -> dict[str, list[Fault]]:
    found: dict[str, list[Fault]] = {}
    for number, target in enumerate(targets):
        found.setdefault(target, []).append(plan(ProxiedRequest(number, "PUT", target, {})))
    return found


def test_a_seed_repeats_its_faults_in_whatever_order_targets_come() -> None:
    targets = [f"/{n % 7}" for n in range(700)]
    first = faults_of(RandomFaults(1), targets)
    assert faults_of(RandomFaults(1), sorted(targets)) == first
    assert faults_of(RandomFaults(2), targets) != first
    drawn = [fault for each in first.values() for fault in each]
    assert {fault.kind for fault in drawn} == {FaultKind.PASS, *FAULT_KINDS}
    assert 70 < sum(fault is not PASS for fault in drawn) < 210


def test_after_enough_faults_in_a_row_a_request_passes() -> None:
    found = faults_of(RandomFaults(1, share=1.0, in_a_row_max=3), ["/a"] * 8)["/a"]
    assert [fault is PASS for fault in found] == [False, False, False, True] * 2
