"""DescribeConfigs (32), versions 1 to 4: settings with their values, origins and synonyms.

Versions: 1 synonyms, 3 types and documentation, 4 flexible. Topics, brokers (this one, or '' for
what is recorded for all), their loggers, client metrics and groups. Documentation is Cordwood's.

Source: kafka.server.ConfigHelper.handleDescribeConfigsRequest, Kafka 4.3; KIP-133, KIP-226,
KIP-569, KIP-1142.
"""

from __future__ import annotations

from cordwood.configs.describe import ConfigEntry, describe
from cordwood.configs.resource import ConfigResource
from cordwood.model.errors import ConfigError
from cordwood.model.kafka_errors import InvalidConfigError, InvalidRequestError, KafkaError
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import DescribeConfigsRequest, DescribeConfigsResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation
from cordwood.serving.handlers.config_authorization import config_authorization_error
from cordwood.serving.request_context import RequestContext

_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details."
)


def handle(context: RequestContext, request: DescribeConfigsRequest) -> Response:
    """Answers from the image and the settings in force; an unknown resource type fails all."""
    kinds = {int(kind) for kind in ConfigResource}
    if any(asked.resource_type not in kinds for asked in in_steps(request.resources, every=64)):
        error = InvalidRequestError(_MALFORMED)
        return DescribeConfigsResponse(
            results=[_refused(asked, error) for asked in in_steps(request.resources, every=16)]
        )
    return DescribeConfigsResponse(
        results=[_described(context, asked, request) for asked in in_steps(request.resources)]
    )


def _described(
    context: RequestContext,
    asked: DescribeConfigsRequest.DescribeConfigsResource,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse.DescribeConfigsResult:
    denied = config_authorization_error(
        context, AclOperation.DESCRIBE_CONFIGS, asked.resource_type, asked.resource_name
    )
    if denied is not None:
        return _refused(asked, denied)
    try:
        entries = describe(
            context.node.configs,
            asked.resource_type,
            asked.resource_name,
            wanted=asked.configuration_keys,
            documentation=request.include_documentation,
        )
    except KafkaError as error:
        return _refused(asked, error)
    except ConfigError as error:
        return _refused(asked, InvalidConfigError(str(error)))
    with_synonyms = request.include_synonyms
    configs = [_config(entry, with_synonyms=with_synonyms) for entry in entries]
    return _result(asked, 0, "", configs)


def _config(
    entry: ConfigEntry, *, with_synonyms: bool
) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    return DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.level.code,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(
                name=each.name, value=each.value, source=each.level.code
            )
            for each in (entry.synonyms if with_synonyms else ())
        ],
        config_type=entry.type_code,
        documentation=entry.documentation,
    )


def _refused(
    asked: DescribeConfigsRequest.DescribeConfigsResource, error: KafkaError
) -> DescribeConfigsResponse.DescribeConfigsResult:
    return _result(asked, error.code, str(error), [])


def _result(
    asked: DescribeConfigsRequest.DescribeConfigsResource,
    code: int,
    text: str,
    configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult],
) -> DescribeConfigsResponse.DescribeConfigsResult:
    return DescribeConfigsResponse.DescribeConfigsResult(
        error_code=code,
        error_message=text,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=configs,
    )


API = Api(32, "DescribeConfigs", 1, 4, handle, is_long=always)
