"""The APIs of a controller's listener."""

from __future__ import annotations

from cordwood.controller import handlers
from cordwood.serving.authorizer import AclOperation, on_cluster
from cordwood.serving.registry import apis_with_modules


def test_what_controllers_alone_serve_is_for_members_of_the_cluster() -> None:
    needs = {
        api.name: api.needs
        for api, module in apis_with_modules(handlers.__name__)
        if module.__name__.startswith(handlers.__name__)
    }
    assert "BrokerRegistration" in needs
    assert set(needs.values()) == {(on_cluster(AclOperation.CLUSTER_ACTION),)}
